#pragma once

#include <cstdint>

#include "lopt/base/fields.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Quadratic bowls over one tensor "x" of shape [dim], all started at x ~ N(0, I). Constructors
// throw Error as CheckOptions does.

struct QuadraticOptions {
  int64_t dim = 10;
  void Visit(FieldVisitor& v);
};

struct NoisyQuadraticOptions {
  int64_t dim = 10;
  double cov = 0.01;
  void Visit(FieldVisitor& v);
};

// What the quadratics have in common: the params layout and the start.
class QuadraticBase : public TaskFamily {
 protected:
  QuadraticBase(int64_t dim, Layout config, Gradients gradients = Gradients::kOfLoss);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const final;
};

// loss = sum x^2.
class QuadraticTask : public QuadraticBase {
 public:
  explicit QuadraticTask(const QuadraticOptions& options);

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

// loss = sum (c - x)^2. A task is its target c ~ N(0, I), config "target" [dim]. The mean loss at
// the start is 2 dim.
class FixedDimQuadraticFamily : public QuadraticBase {
 public:
  explicit FixedDimQuadraticFamily(const QuadraticOptions& options);

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

// loss = sum (scale (center - x))^2. A task is config "center" [dim] ~ N(0, I) and "scale" [dim] ~
// 25 U(0, 1). The gradient, and not the loss, carries noise: cov z x is added to it, with z ~ N(0,
// I) drawn from the evaluation's key.
class NoisyQuadraticFamily : public QuadraticBase {
 public:
  explicit NoisyQuadraticFamily(const NoisyQuadraticOptions& options);

  float cov() const { return cov_; }

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  float cov_;
};

// loss = log(sum x^2): minus infinity at the optimum.
class LogQuadraticTask : public QuadraticBase {
 public:
  explicit LogQuadraticTask(const QuadraticOptions& options);

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

}  // namespace lopt
