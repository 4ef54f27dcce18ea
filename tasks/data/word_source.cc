#include "lopt/tasks/data/word_source.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr size_t kBytes = 256;

// Of the words of a class.
std::vector<double> WordProbabilities(const WordClass& of) {
  std::vector<double> probabilities(of.words.size());
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    probabilities[i] = 1 / static_cast<double>(i + 1);
    sum += probabilities[i];
  }
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

std::vector<double> NextProbabilities(const WordClass& of) {
  std::vector<double> probabilities;
  for (const auto& next : of.next) probabilities.push_back(next.second);
  return probabilities;
}

double EntropyOf(std::span<const double> probabilities) {
  double sum = 0;
  for (const double p : probabilities) {
    if (p > 0) sum -= p * std::log(p);
  }
  return sum;
}

// Shares of the classes among the steps of an endless text. A step is delayed by one half of the
// time, which leaves the shares as they are and lets a chain with a period settle too.
std::vector<double> StationaryShares(const std::vector<WordClass>& classes) {
  constexpr int kSteps = 10000;
  std::vector<double> shares(classes.size(), 1 / static_cast<double>(classes.size()));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> after(classes.size());
    for (size_t c = 0; c < classes.size(); ++c) {
      after[c] += shares[c] / 2;
      for (const auto& [next, probability] : classes[c].next) {
        after[next] += shares[c] * probability / 2;
      }
    }
    shares = std::move(after);
  }
  return shares;
}

uint8_t ByteOf(char c) { return static_cast<uint8_t>(c); }

// The place that the number u in [0, 1) chooses.
size_t Choose(std::span<const double> probabilities, double u) {
  size_t i = 0;
  for (; i + 1 < probabilities.size() && u >= probabilities[i]; ++i) u -= probabilities[i];
  return i;
}

}  // namespace

WordSource::WordSource(std::vector<WordClass> classes) : classes_(std::move(classes)) {
  for (size_t c = 0; c < classes_.size(); ++c) {
    const WordClass& of = classes_[c];
    Require(!of.words.empty() && std::ranges::none_of(of.words, &std::string::empty),
            "word source: class {} has no word, or an empty one", c);
    double sum = 0;
    for (const auto& [next, probability] : of.next) {
      Require(next < classes_.size(), "word source: class {} goes on to class {} of {}", c, next,
              classes_.size());
      sum += probability;
    }
    Require(std::abs(sum - 1) < 1e-12,
            "word source: the probabilities after class {} add up to {}, wanted 1", c, sum);
  }
  const std::vector<double> shares = StationaryShares(classes_);
  // Per step of the chain: its length in bytes, its entropy, and how often each byte (row) is
  // followed by each.
  double length = 0;
  double entropy = 0;
  std::vector<double> pairs(kBytes * kBytes);
  const auto add_pair = [&](char first, char second, double probability) {
    pairs[kBytes * ByteOf(first) + ByteOf(second)] += probability;
  };
  for (size_t c = 0; c < classes_.size(); ++c) {
    const WordClass& of = classes_[c];
    const std::vector<double> chosen = WordProbabilities(of);
    entropy += shares[c] * (EntropyOf(chosen) + EntropyOf(NextProbabilities(of)));
    for (size_t w = 0; w < of.words.size(); ++w) {
      const std::string& word = of.words[w];
      const double probability = shares[c] * chosen[w];
      length += probability * static_cast<double>(word.size());
      for (size_t i = 1; i < word.size(); ++i) add_pair(word[i - 1], word[i], probability);
      for (const auto& [next, next_probability] : of.next) {
        const std::vector<double> next_chosen = WordProbabilities(classes_[next]);
        for (size_t v = 0; v < next_chosen.size(); ++v) {
          add_pair(word.back(), classes_[next].words[v].front(),
                   probability * next_probability * next_chosen[v]);
        }
      }
    }
  }
  entropy_rate_ = entropy / length;
  for (double& pair : pairs) pair /= length;
  std::vector<double> firsts(kBytes);
  for (size_t i = 0; i < pairs.size(); ++i) firsts[i / kBytes] += pairs[i];
  bigram_entropy_ = EntropyOf(pairs) - EntropyOf(firsts);
}

std::vector<uint8_t> WordSource::Generate(Key key, int64_t size) const {
  std::vector<uint8_t> text;
  text.reserve(static_cast<size_t>(size));
  size_t at = 0;
  for (uint64_t step = 0; std::ssize(text) < size; ++step) {
    float draws[2];
    Uniform(key, draws, 2 * step);
    at = classes_[at].next[Choose(NextProbabilities(classes_[at]), draws[0])].first;
    const std::string& word = classes_[at].words[Choose(WordProbabilities(classes_[at]), draws[1])];
    text.insert(text.end(), word.begin(), word.end());
  }
  text.resize(static_cast<size_t>(size));
  return text;
}

WordSource SentenceSource() {
  enum : size_t {
    kEnd,
    kDeterminerOfOne,
    kDeterminerOfMany,
    kAdjectiveOfOne,
    kAdjectiveOfMany,
    kOne,
    kMany,
    kVerbOfOne,
    kVerbOfMany,
    kAdverb,
    kConjunction,
  };
  const std::vector<std::string> adjectives = {"old ",   "small ", "green ",
                                               "quiet ", "young ", "heavy "};
  const std::vector<std::pair<size_t, double>> begin = {{kDeterminerOfOne, .5},
                                                        {kDeterminerOfMany, .5}};
  const std::vector<std::pair<size_t, double>> go_on = {
      {kAdverb, .4}, {kConjunction, .2}, {kEnd, .4}};
  std::vector<WordClass> classes(kConjunction + 1);
  classes[kEnd] = {{".\n"}, begin};
  classes[kDeterminerOfOne] = {{"a ", "every ", "this "}, {{kAdjectiveOfOne, .4}, {kOne, .6}}};
  classes[kDeterminerOfMany] = {{"all ", "some ", "these "}, {{kAdjectiveOfMany, .4}, {kMany, .6}}};
  classes[kAdjectiveOfOne] = {adjectives, {{kAdjectiveOfOne, .2}, {kOne, .8}}};
  classes[kAdjectiveOfMany] = {adjectives, {{kAdjectiveOfMany, .2}, {kMany, .8}}};
  classes[kOne] = {{"ship ", "bird ", "child ", "river ", "machine ", "stone "}, {{kVerbOfOne, 1}}};
  classes[kMany] = {{"ships ", "birds ", "children ", "rivers ", "machines ", "stones "},
                    {{kVerbOfMany, 1}}};
  classes[kVerbOfOne] = {{"waits", "sings", "falls", "turns", "sleeps", "returns"}, go_on};
  classes[kVerbOfMany] = {{"wait", "sing", "fall", "turn", "sleep", "return"}, go_on};
  classes[kAdverb] = {{" slowly", " again", " at night", " alone"},
                      {{kConjunction, .3}, {kEnd, .7}}};
  classes[kConjunction] = {{" and ", " while ", " because "}, begin};
  return WordSource(std::move(classes));
}

}  // namespace lopt
