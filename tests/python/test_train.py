"""Tests of `lopt train` against PyTorch's DistributedDataParallel.

Environment: LOPT_PROGRAM (the program; without it, the tests are skipped), LOPT_TORCH (ON: it has the torch module).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from test_lopt_optimizer import read_safetensors

PROGRAM = os.environ.get("LOPT_PROGRAM")
WORKERS = 2
IMAGES = 102
TRAINED = 71  # of them: 70 %, as one set is split
BATCH = 8  # of each worker: an epoch is 36 images of each, the last batch 4 of them
EPOCHS = 3


def images_and_labels():
    generator = numpy.random.default_rng(5)
    return (generator.integers(0, 256, (IMAGES, 8, 8), dtype=numpy.uint8),
            generator.integers(0, 10, IMAGES, dtype=numpy.uint8))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(header + array.tobytes())


class Mlp(torch.nn.Module):
    def __init__(self, arrays):
        super().__init__()
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", ""): torch.nn.Parameter(torch.tensor(array)) for name, array in arrays.items()})
        self.names = sorted(self.weights.keys())  # b and w of each layer in turn

    def forward(self, x):
        for layer in range(0, len(self.names), 2):
            if layer > 0:
                x = torch.relu(x)
            x = x @ self.weights[self.names[layer + 1]] + self.weights[self.names[layer]]
        return x


def params_of(path):
    arrays, _ = read_safetensors(path)
    return {name[len("params/"):].replace("/", "_").replace("~", ""): array
            for name, array in arrays.items() if name.startswith("params/")}


def train_as_rank(rank, run, drop_last):
    """What a user of DistributedDataParallel writes; the params at the end go to a file."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{run}/gloo", rank=rank, world_size=WORKERS)
    images, labels = images_and_labels()
    data = TensorDataset(torch.tensor(images[:TRAINED].reshape(TRAINED, 64) / numpy.float32(255)),
                         torch.tensor(labels[:TRAINED].astype(numpy.int64)))
    sampler = DistributedSampler(data, shuffle=False, drop_last=drop_last)
    loader = DataLoader(data, BATCH, sampler=sampler, drop_last=drop_last)
    model = torch.nn.parallel.DistributedDataParallel(Mlp(params_of(run / "checkpoints/step-00000000/state.safetensors")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    if rank == 0:
        torch.save(dict(model.module.weights.items()), run / "ddp.pt")
    torch.distributed.barrier()


@unittest.skipUnless(PROGRAM, "LOPT_PROGRAM is not set")
class DistributedDataParallelTest(unittest.TestCase):
    def train(self, drop_last, steps, task="ImageMLP"):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            images, labels = images_and_labels()
            write_idx(scratch / "train-images-idx3-ubyte", images)
            write_idx(scratch / "train-labels-idx1-ubyte", labels)
            config = {
                "task": {"type": task, "image_size": 8, "hidden": [16], "batch_size": WORKERS * BATCH,
                         "data": "idx"},
                "optimizer": {"type": "SGD", "learning_rate": 0.1},
                "workers": WORKERS,
                "batches": {"type": "Epochs", "shuffle": False, "drop_last": drop_last},
                "steps": steps,
            }
            (scratch / "config.json").write_text(json.dumps(config))
            run = scratch / "run"
            subprocess.run([PROGRAM, "train", scratch / "config.json", "--data-dir", scratch, "--out", run], check=True,
                           stdout=subprocess.DEVNULL)
            ranks = [subprocess.Popen([sys.executable, __file__, str(rank), run, str(drop_last)])
                     for rank in range(WORKERS)]
            for rank in ranks:
                self.assertEqual(rank.wait(300), 0)
            start = params_of(run / "checkpoints/step-00000000/state.safetensors")
            ours = params_of(run / "model.safetensors")
            theirs = torch.load(run / "ddp.pt")
            self.assertEqual(len(ours), 4)
            self.assertEqual(set(ours), set(theirs))
            for name, array in ours.items():
                moved = numpy.abs(array - start[name]).max()
                difference = numpy.abs(array - theirs[name].detach().numpy()).max()
                print(f"{task}, drop_last {drop_last}, {name}: moved {moved:.3g}, difference {difference:.3g}")
                self.assertGreater(moved, 1e-2)
                self.assertLess(difference, 1e-5)

    def test_sgd_on_padded_shards(self):
        self.train(drop_last=False, steps=5 * EPOCHS)

    def test_sgd_with_drop_last(self):
        self.train(drop_last=True, steps=4 * EPOCHS)

    @unittest.skipUnless(os.environ.get("LOPT_TORCH") == "ON", "there is no torch module")
    def test_sgd_of_a_torch_module(self):
        self.train(drop_last=False, steps=5 * EPOCHS, task="TorchImageMLP")


if __name__ == "__main__":
    train_as_rank(int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "True")
