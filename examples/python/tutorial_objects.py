"""google/learned_optimization's tutorial of meta-training, call by call, with objects for configs."""

import numpy as np

import lopt

UPDATES = 20

optimizer = lopt.MLPLOpt(hidden_size=16)
theta_opt = lopt.Adam(learning_rate=1e-3)
lengths = lopt.LogUniformLengthSchedule(min_length=100, max_length=300)


def estimator(task_family):
    """The gradient of theta on tasks of a family."""
    return lopt.TruncatedPES(task_family=task_family, trunc_sched=lengths, num_tasks=4,
                             trunc_length=50, random_initial_iteration_offset=300)


# A dictionary can stand for each of these objects, and each object in every dictionary.
mlp = lopt.single_task_to_family(lopt.ImageMLP(hidden=[32]))
estimators = [estimator(lopt.FixedDimQuadraticFamily(dim=10)), estimator(mlp)]

# On one machine: states go in and out, and never change.
trainer = lopt.SingleMachineGradientLearner(optimizer, estimators, theta_opt)
key = lopt.Key(0)
state = trainer.init(key)
for update in range(UPDATES):
    state, loss, metrics = trainer.update(state, key, with_metrics=True)
    print(f"update {update}: loss {loss:.4f}, norm {metrics['gradient_norm']:.4f}")

# With the learner and its workers apart, as on many machines: only weights go out, and only
# gradients come back.
learner = lopt.GradientLearner(optimizer, theta_opt)
learner_state = learner.init(lopt.theta_key(key))
weights = learner.get_state_for_worker(learner_state)
worker_key, own = lopt.worker_key(key, 0), lopt.Estimators(optimizer, estimators)
unroll_states = lopt.init_worker_state(weights, own, worker_key)
for _ in range(UPDATES):
    weights = learner.get_state_for_worker(learner_state)
    to_put = lopt.gradient_worker_compute(weights, own, worker_key, unroll_states)
    learner_state, summary = learner.update(learner_state, [to_put])

# Both have the bits of the program's loop.
theta = trainer.theta(state)
training = lopt.meta_train(trainer.config | {"seed": 0, "meta_steps": UPDATES})
assert np.array_equal(theta.values, training.theta.values)
assert np.array_equal(learner.get_meta_params(learner_state), training.theta.values)
theta.write("tutorial_objects.safetensors")
