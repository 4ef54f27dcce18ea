"""A learned optimizer's weights, fresh and trained, and what each of them is worth."""

import pathlib

import torch

import lopt
from lopt.torch import LearnedOptimizer

# The weights of an optimizer, by its name and options as in a config. They are those that a run
# with this seed begins with: one row of float32 numbers, and a view of it for each tensor.
fresh = lopt.Theta.init({"type": "MLPLOpt", "hidden_size": 4}, seed=0)
for name, tensor in fresh.tensors.items():
    print(name, list(tensor.shape))
print(fresh.values.shape, fresh.values.dtype)

# With theta bound it is an ordinary optimizer, here of one tensor of PyTorch. All that it keeps
# between two steps is in its state_dict.
w = torch.tensor([1.0, -2.0], requires_grad=True)
optimizer = LearnedOptimizer([w], fresh)
for step in range(3):
    optimizer.zero_grad()
    w.square().sum().backward()
    optimizer.step()
    print(f"step {step}: w = {w[0]:.6f}, {w[1]:.6f}")

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

assert 0 < (w - torch.tensor([1.0, -2.0])).abs().max() < 0.01  # a fresh theta hardly moves
losses = {row["optimizer"]: row["test_loss"]["value"] for row in evaluation.rows}
assert losses["trained"] < losses["Adam"] < losses["fresh"]
