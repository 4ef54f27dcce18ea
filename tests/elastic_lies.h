#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/elastic/frame.h"

namespace lopt {

// Changes a frame of a worker process on its way to the learner.
using Mangle = std::function<void(Frame*)>;

// What no worker of a run would send.
struct ElasticLie {
  std::string name;
  Mangle mangle;
  std::string why;  // it is refused
};

// Changes what frames of this type say.
template <class T>
Mangle ChangeFrames(FrameType type, const std::function<void(T*)>& change) {
  return [=](Frame* frame) {
    if (frame->type != type) return;
    T message = FromWire<T>(BytesOf(*frame));
    change(&message);
    frame->body = MakeBody(ToWire(message));
  };
}

// The same, of answers of this kind.
template <class T>
Mangle ChangeAnswers(int kind, const std::function<void(T*)>& change) {
  return [=, mangle = ChangeFrames<T>(FrameType::kAnswer, change)](Frame* frame) {
    if (frame->kind == kind) mangle(frame);
  };
}

// Of a process that is the second in a job with several estimators and with a logical worker for
// each process.
inline std::vector<ElasticLie> ElasticLies() {
  using Gradients = std::vector<WorkerGradient>;
  using Files = std::vector<SavedFile>;
  const auto gradient = [](const std::function<void(WorkerGradient*)>& change) {
    return ChangeAnswers<Gradients>(kGradients, [=](Gradients* all) { change(&(*all)[0]); });
  };
  const auto files = [](const std::function<void(Files*)>& change) {
    return ChangeAnswers<Files>(kSaved, change);
  };
  const auto join = [](const std::function<void(JoinRequest*)>& change) {
    return ChangeFrames<JoinRequest>(FrameType::kJoin, change);
  };
  const auto hello = [](const std::function<void(Hello*)>& change) {
    return ChangeFrames<Equipment>(FrameType::kEquipped,
                                   [=](Equipment* equipment) { change(&equipment->hello); });
  };
  const auto bytes = [](FrameType type, const std::vector<std::byte>& instead) {
    return [=](Frame* frame) {
      if (frame->type == type) frame->body = MakeBody(instead);
    };
  };
  const auto answer = [](const std::function<void(Frame*)>& change) {
    return [=](Frame* frame) {
      if (frame->type == FrameType::kAnswer) change(frame);
    };
  };
  const auto other_arrays = [](Files* all) {
    ArrayFile file = ParseArrayFile((*all)[0].bytes, "test");
    for (auto& [name, array] : file.arrays) {
      if (name.find("windows") == std::string::npos) array = Array(DType::kFloat32, {1});
    }
    (*all)[0].bytes = SerializeArrayFile(file);
  };
  return {
      {"size", gradient([](WorkerGradient* g) { g->gradient.gradient.resize(3); }),
       "it sends a gradient of 3 numbers for "},
      {"worker", gradient([](WorkerGradient* g) { g->worker += 7; }),
       "it sends a gradient of worker "},
      {"window", gradient([](WorkerGradient* g) { ++g->first_window; }),
       "it sends a gradient of 2 windows from "},
      {"windows", gradient([](WorkerGradient* g) { g->windows = 3; }),
       "it sends a gradient of 3 windows from "},
      {"update", gradient([](WorkerGradient* g) { ++g->gradient.outer_step; }),
       "it sends a gradient of outer step "},
      {"estimators", gradient([](WorkerGradient* g) { g->gradient.estimators.pop_back(); }),
       "it reports on 2 estimators, the config has 3"},
      {"estimator's gradient",
       gradient([](WorkerGradient* g) { g->gradient.estimators[0].gradient.resize(1); }),
       "it sends an estimator's gradient of 1 numbers, 0 were asked for"},
      {"estimator's weight",
       gradient([](WorkerGradient* g) { g->gradient.estimators[0].weight = 2; }),
       "it sends an estimator's weight of 2, that is 0"},
      {"diagnostic that is not UTF-8",
       gradient([](WorkerGradient* g) { g->gradient.estimators[0].metrics["a\xff"] = 1; }),
       R"(it names a diagnostic 'a\xff'; wanted are 1 to 200 bytes of plain text in UTF-8)"},
      {"diagnostic's steps", gradient([](WorkerGradient* g) {
         g->gradient.estimators[0].metrics[{"loss_at", StepRange{.first = 9, .last = 3}}] = 1;
       }),
       "it sends a diagnostic of the inner steps 9 to 3"},
      {"sum of many",
       gradient([](WorkerGradient* g) { g->gradient.partial.gradients = 1000000000000; }),
       "it sends a sum of 1000000000000 gradients, of 0 numbers; "},
      {"sum of one", gradient([](WorkerGradient* g) {
         g->gradient.partial = {.gradients = 1, .sum = g->gradient.gradient.cast<double>()};
       }),
       "it sends a sum of 1 gradients, of "},
      {"sum of three numbers",
       gradient([](WorkerGradient* g) { g->gradient.partial.sum.setZero(3); }),
       "it sends a sum of 0 gradients, of 3 numbers; "},
      {"estimator's sum",
       gradient([](WorkerGradient* g) { g->gradient.estimators[1].partial.gradients = 5; }),
       "it sends a sum of 5 gradients, of 0 numbers; "},
      {"counts", gradient([](WorkerGradient* g) { g->gradient.counts.inner_steps = -1; }),
       "it counts less than no steps"},
      {"many steps", gradient([](WorkerGradient* g) {
         g->gradient.estimators[0].counts.inner_steps = int64_t{1} << 60;
       }),
       "it counts 1152921504606846976 inner steps, "},
      {"other steps in all", gradient([](WorkerGradient* g) { ++g->gradient.counts.inner_steps; }),
       "it counts other steps than its estimators together"},
      {"two",
       ChangeAnswers<Gradients>(kGradients, [](Gradients* all) { all->push_back((*all)[0]); }),
       "it sends 2 gradients for one worker"},
      {"none", ChangeAnswers<Gradients>(kGradients, [](Gradients* all) { all->clear(); }),
       "it sends 0 gradients for one worker"},
      {"file name", files([](Files* all) { (*all)[0].file.name = "../../x"; }),
       "it does not send the one file "},
      {"no file", files([](Files* all) { all->clear(); }), "it does not send the one file "},
      {"half a file", files([](Files* all) { (*all)[0].bytes.resize((*all)[0].bytes.size() / 2); }),
       "a worker's states"},
      {"other arrays", files(other_arrays), "have other arrays or shapes than its estimators make"},
      {"metadata", files([](Files* all) {
         ArrayFile file = ParseArrayFile((*all)[0].bytes, "test");
         file.metadata["more"] = "text";
         (*all)[0].bytes = SerializeArrayFile(file);
       }),
       "have other arrays or shapes than its estimators make"},
      {"data", ChangeAnswers<std::string>(kReady, [](std::string* data) { *data = "mnist 1\n"; }),
       "it computes on mnist 1\\x0a, the learner on data that are drawn"},
      {"bytes", bytes(FrameType::kAnswer, std::vector<std::byte>(7, std::byte{0xff})),
       "a message from another rank is damaged: "},
      {"damaged", answer([](Frame* frame) {
         if (frame->kind == kGradients)
           frame->body = MakeBody(std::vector<std::byte>(7, std::byte{0xff}));
       }),
       "a message from another rank is damaged: "},
      {"hello", bytes(FrameType::kEquipped, std::vector<std::byte>(9, std::byte{0xff})),
       "is damaged: 'host' is to have "},
      {"no hello", bytes(FrameType::kJoin, {}), "is damaged: it ends in "},
      {"protocol", join([](JoinRequest* request) { request->protocol = 0; }),
       "it speaks protocol 0, the learner protocol 2"},
      {"version", join([](JoinRequest* request) { request->version = "older"; }),
       "it runs another version of the program than the learner"},
      {"token", join([](JoinRequest* request) { request->token = "a guess"; }), " token"},
      {"config", hello([](Hello* hello) { hello->config += " "; }),
       " has another config than rank 0 "},
      {"commit", hello([](Hello* hello) { hello->version = "older"; }),
       " runs version 'older' of the program, rank 0 ("},
      {"instruction set", hello([](Hello* hello) { hello->isa = "abacus"; }),
       " computes with instruction set abacus, rank 0 ("},
      {"device", hello([](Hello* hello) { hello->device = "abacus"; }),
       " run on the device abacus, those of the run on cpu, "},
      {"no device", hello([](Hello* hello) { hello->device.clear(); }),
       "it says that its windows run on the device ''; wanted is the model of one"},
      {"threads",
       ChangeFrames<Equipment>(FrameType::kEquipped,
                               [](Equipment* equipment) { equipment->threads = 0; }),
       "it says that it has 0 threads; there may be 1 to "},
      {"kind", answer([](Frame* frame) { frame->kind = kHello; }), "with one of kind 0"},
      {"lease", answer([](Frame* frame) { frame->lease += 1000000; }), "there is no lease 10000"},
      {"type", answer([](Frame* frame) { frame->type = FrameType::kWelcome; }),
       "a frame of type 2 is not for the learner"},
      {"stop", answer([](Frame* frame) { *frame = {.type = FrameType::kAskStop}; }),
       "a worker does not stop this job"},
  };
}

}  // namespace lopt
