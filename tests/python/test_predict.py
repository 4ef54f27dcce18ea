"""Tests of `lopt predict` and of the models that `lopt export --model` writes, which PyTorch opens.

Environment: LOPT_PROGRAM (the program; without it, the tests are skipped), LOPT_TORCH (ON: it has the torch module).
"""

import collections
import json
import os
import unittest

import numpy
import torch
from torch import nn

import test_lopt_optimizer as one_file
from test_lopt_optimizer import read_safetensors, run

HEIGHT, WIDTH, CHANNELS = 7, 6, 3
ROWS = 60  # of test
TOLERANCE = 1e-5  # of logits, which are about 1: sums in another order
HAS_TORCH_MODULE = os.environ.get("LOPT_TORCH") != "OFF"


def same_padding(size, kernel, stride):
    """Zeros before and behind, as TensorFlow's "SAME" has them."""
    outputs = -(-size // stride)
    zeros = max((outputs - 1) * stride + kernel - size, 0)
    return zeros // 2, zeros - zeros // 2


class ConvNet(nn.Module):
    """An ImageConv with 5 x 3 kernels, as a user of PyTorch writes it."""

    def __init__(self, channels, strides, pool, flatten, classes):
        super().__init__()
        self.strides, self.pool, self.flatten = strides, pool, flatten
        size = [HEIGHT, WIDTH]
        for layer, (inputs, outputs) in enumerate(zip([CHANNELS, *channels], channels)):
            self.add_module(f"conv_{layer}", nn.Conv2d(inputs, outputs, (5, 3), strides[layer]))
            size = [-(-s // strides[layer]) // (1 if pool is None else 2) for s in size]
        self.linear = nn.Linear(channels[-1] * (size[0] * size[1] if flatten else 1), classes)

    def forward(self, x):
        for layer, stride in enumerate(self.strides):
            rows, columns = (same_padding(x.shape[2 + d], (5, 3)[d], stride) for d in range(2))
            x = torch.relu(getattr(self, f"conv_{layer}")(nn.functional.pad(x, (*columns, *rows))))
            if self.pool is not None:
                x = self.pool(x, 2)
        return self.linear(x.flatten(1) if self.flatten else x.mean((2, 3)))


def mlp(hidden, classes, activation, norm=None):
    layers = collections.OrderedDict(flatten=nn.Flatten())
    sizes = [HEIGHT * WIDTH * CHANNELS, *hidden, classes]
    for layer in range(len(sizes) - 1):
        layers[f"linear_{layer}"] = nn.Linear(sizes[layer], sizes[layer + 1])
        if layer < len(hidden):
            if norm is not None:
                layers[f"norm_{layer}"] = norm(sizes[layer + 1])
            layers[f"activation_{layer}"] = activation
    return nn.Sequential(layers)


@unittest.skipUnless(one_file.PROGRAM, "LOPT_PROGRAM does not name the program")
class TrainedModels(one_file.TestCase):
    def setUp(self):
        super().setUp()
        generator = numpy.random.default_rng(7)
        labels = numpy.arange(3 * ROWS, dtype=numpy.uint8) % 4
        images = generator.integers(0, 256, (3 * ROWS, HEIGHT, WIDTH, CHANNELS), dtype=numpy.uint8)
        numpy.savez(self.directory / "images.npz", x_train=images[ROWS:], y_train=labels[ROWS:],
                    x_test=images[:ROWS], y_test=labels[:ROWS])
        order = self.order_of_rows(torch.tensor(images[:ROWS] / numpy.float32(255)))
        self.labels = labels[order]
        self.inputs = torch.tensor(images[order] / numpy.float32(255)).permute(0, 3, 1, 2)

    def order_of_rows(self, images):
        """lopt shuffles the rows of such files: those of test in its order, which a linear model shows."""
        path = self.trained(type="ImageMLP", hidden=[])
        arrays, _ = read_safetensors(path / "model.safetensors")
        linear = [torch.tensor(arrays[f"params/mlp/linear_0/{name}"]) for name in "wb"]
        rows = json.loads(run("predict", path, "--json"))["predictions"]
        logits = torch.tensor([row["logits"] for row in rows])
        order = torch.cdist(logits, images.flatten(1) @ linear[0] + linear[1]).argmin(1)
        self.assertEqual(sorted(order.tolist()), list(range(ROWS)))
        return order.numpy()

    def trained(self, **task):
        if "task" not in task:
            task = {"data": "npz", "image_size": 0, "batch_size": 16, **task}
        config = {"task": task, "data_dir": str(self.directory), "steps": 20,
                  "optimizer": {"type": "Adam", "learning_rate": 0.01}}
        (self.directory / "config.json").write_text(json.dumps(config))
        path = self.directory / "run"
        run("train", self.directory / "config.json", "--out", path, "--overwrite")
        return path

    def logits(self, path):
        """Those of lopt on all rows of test."""
        predicted = json.loads(run("predict", path, "--json"))
        self.assertEqual(predicted["rows"], ROWS)
        rows = predicted["predictions"]
        self.assertEqual([row["label"] for row in rows], self.labels.tolist())
        logits = torch.tensor([row["logits"] for row in rows])
        self.assertClose(torch.tensor([row["probabilities"] for row in rows]), logits.softmax(1), 1e-6)
        self.assertEqual([row["class"] for row in rows], logits.argmax(1).tolist())
        labels = torch.tensor(self.labels.astype(numpy.int64))
        self.assertAlmostEqual(predicted["loss"], nn.functional.cross_entropy(logits, labels).item(), delta=1e-5)
        counts = numpy.zeros((4, 4), int)
        for row in rows:
            counts[row["label"], row["class"]] += 1
        self.assertEqual(predicted["confusion"], counts.tolist())
        self.assertAlmostEqual(predicted["accuracy"], counts.trace() / ROWS)
        self.assertGreater(logits.std(0).max().item(), 0.05)  # images matter
        return logits

    def assert_exports(self, path, module):
        wanted = self.logits(path)
        exported = self.directory / "model.safetensors"
        run("export", "--model", path, "--format", "state_dict", "--out", exported)
        arrays, metadata = read_safetensors(exported)
        self.assertEqual(metadata["format"], "pt")
        self.assertIn(f"float32 [n, {CHANNELS}, {HEIGHT}, {WIDTH}]", metadata["input"])
        module.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
        module.eval()
        self.assertClose(module(self.inputs), wanted, TOLERANCE)
        if not HAS_TORCH_MODULE:
            return
        run("export", "--model", path, "--format", "torchscript", "--out", self.directory / "model.pt")
        extra = {"input": "", "task": "", "version": ""}
        script = torch.jit.load(str(self.directory / "model.pt"), _extra_files=extra)
        self.assertClose(script(self.inputs), wanted, TOLERANCE)
        self.assertEqual(extra["input"].decode() if isinstance(extra["input"], bytes) else extra["input"],
                         metadata["input"])
        own = script.state_dict()
        self.assertEqual(set(own), set(arrays))
        for name, array in arrays.items():
            self.assertTrue(numpy.array_equal(own[name].detach().numpy(), array))
        self.assertTrue(all(p.requires_grad for p in script.parameters()))

    def test_a_perceptron_is_that_of_pytorch(self):
        path = self.trained(type="ImageMLP", hidden=[9, 5])
        self.assert_exports(path, mlp([9, 5], 4, nn.ReLU()))

    def test_a_perceptron_without_hidden_layers_is_that_of_pytorch(self):
        self.assert_exports(self.trained(type="ImageMLP", hidden=[]), mlp([], 4, None))

    def test_norms_and_running_statistics_are_those_of_pytorch(self):
        for norm, module in (("layer", nn.LayerNorm), ("batch", nn.BatchNorm1d)):
            with self.subTest(norm=norm):
                path = self.trained(type="ImageMLP", hidden=[9, 5], norm=norm, activation="tanh")
                self.assert_exports(path, mlp([9, 5], 4, nn.Tanh(), module))

    def test_every_activation_is_that_of_pytorch(self):
        class Of(nn.Module):
            def __init__(self, function):
                super().__init__()
                self.function = function

            def forward(self, x):
                return self.function(x)

        for name, function in {
                "relu6": torch.nn.functional.relu6, "selu": torch.selu, "cos": torch.cos, "sin": torch.sin,
                "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu, "sign": lambda x: x.sign() + (x == 0),
                "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, -0.5)}.items():
            with self.subTest(activation=name):
                path = self.trained(type="ImageMLP", hidden=[8], activation=name)
                self.assert_exports(path, mlp([8], 4, Of(function)))

    def test_conv_nets_are_those_of_pytorch(self):
        for pool, module in (("none", None), ("max", nn.functional.max_pool2d),
                             ("average", nn.functional.avg_pool2d)):
            for head in ("mean", "flatten"):
                for strides in ([1, 1], [2, 1]):
                    if pool != "none" and strides == [2, 1]:
                        continue  # nothing is left to pool
                    with self.subTest(pool=pool, head=head, strides=strides):
                        path = self.trained(type="ImageConv", channels=[4, 6], strides=strides, kernel=[5, 3],
                                            pool=pool, head=head)
                        self.assert_exports(path, ConvNet([4, 6], strides, module, head == "flatten", 4))

    @unittest.skipUnless(HAS_TORCH_MODULE, "lopt was built without LibTorch")
    def test_models_of_torch_tasks_are_predicted_with_and_exported_as_the_native_ones(self):
        path = self.trained(type="TorchImageMLP", hidden=[9, 5])
        self.assert_exports(path, mlp([9, 5], 4, nn.ReLU()))
        path = self.trained(type="TorchImageConv", channels=[4], strides=[2], kernel=[5, 3])
        self.assert_exports(path, ConvNet([4], [2], None, False, 4))
        self.logits(self.trained(type="TorchRowLSTM", hidden_size=5))

    def test_what_has_no_such_form_is_an_error_that_says_what_has(self):
        path = self.trained(type="ImageMLP", hidden=[4])
        for words, message in (
                (("--format", "npz"), "--format of a --model must be torchscript or state_dict, got 'npz'"),
                ((), "--format of a --model must be torchscript or state_dict, got none"),
                (("--format", "state_dict", "recommended"), "THETA is not for --model"),
                (("--format", "state_dict", "--isa", "x"), "--isa is not for --model")):
            with self.assertRaisesRegex(AssertionError, message):
                run("export", "--model", path, "--out", self.directory / "x", *words)
        with self.assertRaisesRegex(AssertionError, "--out is the model"):
            run("export", "--model", path, "--format", "state_dict", "--out", path / "model.safetensors")
        path = self.trained(type="DelayedGradients", task={
            "type": "ImageMLP", "data": "npz", "image_size": 0})
        with self.assertRaisesRegex(AssertionError, "only models of ImageMLP, ImageConv, TorchImageMLP and"):
            run("export", "--model", path, "--format", "state_dict", "--out", self.directory / "x")


if __name__ == "__main__":
    unittest.main()
