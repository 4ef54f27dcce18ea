"""A learned optimizer's weights, fresh and trained, and what each of them is worth."""

import pathlib

import lopt

# The weights of an optimizer, by its name and options as in a config. They are those that a run
# with this seed begins with: one row of float32 numbers, and a view of it for each tensor.
fresh = lopt.Theta.init({"type": "MLPLOpt", "hidden_size": 4}, seed=0)
for name, tensor in fresh.tensors.items():
    print(name, list(tensor.shape))
print(fresh.values.shape, fresh.values.dtype)

# A file names the optimizer that its weights are for, and what it was trained on.
trained = lopt.Theta.read(pathlib.Path(__file__).parents[2] / "trained/recommended.safetensors")
print(trained.learned_optimizer["type"], trained.meta_steps, trained.trained_horizon)

# Both train new image MLPs for 300 steps, beside Adam at the best of three learning rates.
task = {"type": "ImageMLP", "image_size": 8, "hidden": [32]}
evaluation = lopt.evaluate(
    {"fresh": fresh, "trained": trained},
    {"steps": [300], "seeds": 3, "trials": 3, "tuning_seeds": 1, "tasks": {"mlp": {"task": task}}},
    baselines="Adam",
)
for row in evaluation.rows:
    loss = row["test_loss"]
    print(f"{row['optimizer']:8} {loss['value']:.3f} [{loss['low']:.3f}, {loss['high']:.3f}]")

losses = {row["optimizer"]: row["test_loss"]["value"] for row in evaluation.rows}
assert losses["trained"] < losses["Adam"] < losses["fresh"]
