# %% [markdown]
# # Meta-training, call by call
#
# The comments name the calls of google/learned_optimization's tutorial.

# %%
import os
import time

import numpy as np

import lopt

UPDATES = int(os.environ.get("LOPT_TUTORIAL_UPDATES", 500))

# %% [markdown]
# ## What is trained

# %%
optimizer = lopt.MLPLOpt(hidden_size=16)        # mlp_lopt.MLPLOpt
theta_opt = lopt.Adam(learning_rate=1e-3)       # opt_base.Adam
lengths = lopt.LogUniformLengthSchedule(        # truncation_schedule.LogUniformLengthSchedule
    min_length=100, max_length=300)


def estimator(task_family):
    """The gradient of theta on tasks of a family."""
    return lopt.TruncatedPES(                   # truncated_pes.TruncatedPES, with
        task_family=task_family,                # lopt_truncated_step.VectorizedLOptTruncatedStep
        trunc_sched=lengths, num_tasks=16, trunc_length=50, random_initial_iteration_offset=300)


quadratics = lopt.FixedDimQuadraticFamily(dim=10)  # quadratics.FixedDimQuadraticFamily
mlp = lopt.single_task_to_family(                  # tasks_base.single_task_to_family
    lopt.ImageMLP(hidden=[32]))                    # image_mlp.ImageMLP_FashionMnist8_Relu32:
# lopt.FixedTask(name="ImageMLP_FashionMnist8_Relu32") is that task, and wants its data.
estimators = [estimator(quadratics), estimator(mlp)]

# %% [markdown]
# ## On one machine
#
# States go in and out, and never change.

# %%
trainer = lopt.SingleMachineGradientLearner(    # gradient_learner.SingleMachineGradientLearner
    optimizer, estimators, theta_opt)
key = lopt.Key(0)                               # jax.random.PRNGKey
state = trainer.init(key)                       # .init
curve = lopt.callbacks.Curve()                  # plt.plot; a notebook shows it at once
curve.on_start(trainer.config | {"meta_steps": UPDATES})
start = time.perf_counter()
for update in range(UPDATES):
    state, loss, metrics = trainer.update(      # .update
        state, key, with_metrics=True)
    curve.on_metrics(update, {"meta_loss": loss})
    if update < 20:
        early = state
curve.on_end(None)
print(f"{UPDATES} updates in {time.perf_counter() - start:.0f} s, loss {loss:.4f}, "
      f"norm {metrics['gradient_norm']:.4f}")
theta = trainer.theta(state)                    # .get_meta_params
theta.write("tutorial.safetensors")             # checkpoints.save_state

# %% [markdown]
# ## A learner and its workers, as on many machines
#
# Only weights go out, and only gradients come back.

# %%
learner = lopt.GradientLearner(optimizer, theta_opt)       # gradient_learner.GradientLearner
learner_state = learner.init(lopt.theta_key(key))          # .init
weights = learner.get_state_for_worker(learner_state)      # .get_state_for_worker
worker_key, own = lopt.worker_key(key, 0), lopt.Estimators(optimizer, estimators)
unroll_states = lopt.init_worker_state(                    # GradientEstimator.init_worker_state
    weights, own, worker_key)
for _ in range(min(UPDATES, 20)):
    weights = learner.get_state_for_worker(learner_state)
    to_put = lopt.gradient_worker_compute(                 # gradient_learner.gradient_worker_compute
        weights, own, worker_key, unroll_states)
    learner_state, summary = learner.update(learner_state, [to_put])  # .update
assert np.array_equal(learner.get_meta_params(learner_state), trainer.theta(early).values)

# %% [markdown]
# ## Three seeds
#
# `meta_train` is the whole loop, and has the same bits.

# %%
curve = lopt.callbacks.Curve()
start = time.process_time()
for seed in range(3):
    training = lopt.meta_train(trainer.config | {"seed": seed, "meta_steps": UPDATES},
                               callbacks=[curve])
    if seed == 0:
        assert np.array_equal(theta.values, training.theta.values)
print(f"{(time.process_time() - start) / 3:.0f} s of processor time a seed")
curve.write("tutorial.svg")
