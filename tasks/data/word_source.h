#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/key.h"

namespace lopt {

// Words that may stand in the same places. A word's probability is proportional to 1 / (its place
// in the list, from 1), and the next class is `next[i].first` with probability `next[i].second`.
struct WordClass {
  std::vector<std::string> words;
  std::vector<std::pair<size_t, double>> next;
};

// A source of text whose entropy is known: a Markov chain over classes of words, from which a
// word's bytes are emitted at each step. Immutable.
class WordSource {
 public:
  // Throws Error if a class has no word or an empty one, or probabilities that do not add up to 1.
  // Every class must be reached from every other, and text must tell the steps that made it: no
  // word that may come next is another such word, or the beginning of one.
  explicit WordSource(std::vector<WordClass> classes);

  // The first `size` bytes of the text that a key draws. The class before the first word is class
  // 0.
  std::vector<uint8_t> Generate(Key key, int64_t size) const;

  // Nats per byte of an endless text: no model of bytes has a lower expected loss.
  double EntropyRate() const { return entropy_rate_; }
  // Expected nats of a byte of an endless text given the one before it.
  double BigramEntropy() const { return bigram_entropy_; }

 private:
  std::vector<WordClass> classes_;
  double entropy_rate_ = 0;
  double bigram_entropy_ = 0;
};

// Sentences like "every old ship waits slowly while some birds sing.", in which determiner, noun
// and verb agree in number over any adjectives between them.
WordSource SentenceSource();

}  // namespace lopt
