"""Tests of `lopt predict`, what it writes for TensorBoard's projector, and `lopt export --model`, whose files PyTorch
opens.

Environment: LOPT_PROGRAM (the program; without it, the tests are skipped), LOPT_TORCH (ON: it has the torch module).
"""

import collections
import json
import os
import re
import struct
import unittest
import zlib

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


def read_png(path):
    """The bytes [height, width, channels] of a picture without a palette."""
    content, data = path.read_bytes(), b""
    at = 8
    while at < len(content):
        (size,), kind = struct.unpack(">I", content[at:at + 4]), content[at + 4:at + 8]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", content[at + 8:at + 18])
        if kind == b"IDAT":
            data += content[at + 8:at + 8 + size]
        at += 12 + size
    assert depth == 8, depth
    channels = {0: 1, 2: 3}[colour]
    lines = numpy.frombuffer(zlib.decompress(data), numpy.uint8).reshape(height, 1 + width * channels).astype(int)
    pixels = numpy.zeros((height + 1, (width + 1) * channels), int)  # a line above and a pixel on the left
    for y, (method, *line) in enumerate(lines, 1):
        for i, value in enumerate(line, channels):
            left, up, corner = pixels[y, i - channels], pixels[y - 1, i], pixels[y - 1, i - channels]
            nearest = min((left, up, corner), key=lambda p: abs(left + up - corner - p))
            pixels[y, i] = value + (0, left, up, (left + up) // 2, nearest)[method] & 255
    return pixels[1:, channels:].reshape(height, width, channels)


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
        return self.linear(self.features(x))

    def features(self, x):
        for layer, stride in enumerate(self.strides):
            rows, columns = (same_padding(x.shape[2 + d], (5, 3)[d], stride) for d in range(2))
            x = torch.relu(getattr(self, f"conv_{layer}")(nn.functional.pad(x, (*columns, *rows))))
            if self.pool is not None:
                x = self.pool(x, 2)
        return x.flatten(1) if self.flatten else x.mean((2, 3))


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
                  "optimizer": {"type": "Adam", "learning_rate": 0.001}}
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
        self.assertGreater(logits.std(0).max().item(), 0.002)  # images matter
        return logits

    def assert_exports(self, path, module):
        wanted = self.logits(path)
        exported = self.directory / "model.safetensors"
        run("export", "--model", path, "--format", "safetensors", "--out", exported)
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
        run("export", "--model", path, "--format", "state_dict", "--out", self.directory / "model.pth")
        state = torch.load(self.directory / "model.pth", weights_only=True)
        self.assertEqual(set(state), set(arrays))
        for name, array in arrays.items():
            self.assertTrue(numpy.array_equal(state[name].numpy(), array))
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

    def assert_projects(self, path, features, *options, rows=slice(None)):
        """`features` are those of all rows of test."""
        directory = self.directory / "projector"
        run("predict", path, "--projector", directory, *options)
        lines = (directory / "tensors.tsv").read_text().splitlines()
        values = torch.tensor([[float(value) for value in line.split("\t")] for line in lines])
        self.assertClose(values, features[rows], TOLERANCE)
        self.assertGreater(values.std(0).max().item(), 0.002)
        head, *lines = (directory / "metadata.tsv").read_text().splitlines()
        self.assertEqual(head, "label\tclass\tright\trow")
        predicted = json.loads(run("predict", path, "--json"))["predictions"][rows]
        self.assertEqual(lines, ["{}\t{}\t{}\t{}".format(row["label"], row["class"], "yes"
                                 if row["label"] == row["class"] else "no", row["row"]) for row in predicted])
        config = (directory / "projector_config.pbtxt").read_text()
        self.assertEqual(re.findall(r"tensor_shape: (\d+)", config), [str(size) for size in values.shape])
        self.assertEqual(re.findall(r"single_image_dim: (\d+)", config), [str(WIDTH), str(HEIGHT)])
        images = (self.inputs[rows] * 255).round().int().permute(0, 2, 3, 1).numpy()
        sprite = read_png(directory / "sprite.png")
        columns = sprite.shape[1] // WIDTH
        for i, image in enumerate(images):
            y, x = i // columns * HEIGHT, i % columns * WIDTH
            self.assertTrue(numpy.array_equal(sprite[y:y + HEIGHT, x:x + WIDTH], image), i)

    def with_weights(self, path, module):
        exported = self.directory / "model.safetensors"
        run("export", "--model", path, "--format", "safetensors", "--out", exported)
        module.load_state_dict({name: torch.tensor(array) for name, array in read_safetensors(exported)[0].items()})
        return module.eval()

    def test_the_projector_has_what_the_last_layer_takes(self):
        path = self.trained(type="ImageMLP", hidden=[9, 7], norm="batch")  # more features than classes
        module = self.with_weights(path, mlp([9, 7], 4, nn.ReLU(), nn.BatchNorm1d))
        with torch.no_grad():
            self.assert_projects(path, module[:-1](self.inputs))
            self.assert_projects(path, module[:-1](self.inputs), "--rows", "3:20", rows=slice(3, 20))
        path = self.trained(type="ImageMLP", hidden=[4], activation="tanh")  # as many as classes
        with torch.no_grad():
            self.assert_projects(path, self.with_weights(path, mlp([4], 4, nn.Tanh()))[:-1](self.inputs))
        path = self.trained(type="ImageMLP", hidden=[])
        arrays, _ = read_safetensors(path / "model.safetensors")
        self.assertEqual(arrays["params/mlp/linear_0/w"].shape[0], HEIGHT * WIDTH * CHANNELS)
        self.assert_projects(path, self.inputs.permute(0, 2, 3, 1).flatten(1))

    def test_the_projector_has_the_features_of_conv_nets(self):
        for head in ("mean", "flatten"):
            with self.subTest(head=head):
                path = self.trained(type="ImageConv", channels=[4, 6], strides=[2, 1], kernel=[5, 3], head=head)
                module = self.with_weights(path, ConvNet([4, 6], [2, 1], None, head == "flatten", 4))
                with torch.no_grad():
                    features = module.features(self.inputs)
                if head == "flatten":  # those of lopt have the channel last
                    features = features.view(ROWS, 6, -1).transpose(1, 2).flatten(1)
                self.assert_projects(path, features)

    @unittest.skipUnless(HAS_TORCH_MODULE, "lopt was built without LibTorch")
    def test_the_projector_has_the_features_of_torch_tasks(self):
        for size in (5, 4):  # 4: as many as classes
            path = self.trained(type="TorchRowLSTM", hidden_size=size)
            arrays, _ = read_safetensors(path / "model.safetensors")
            weights = {name.split("/")[-1]: torch.tensor(array) for name, array in arrays.items() if "linear" in name}
            run("predict", path, "--projector", self.directory / "projector")
            lines = (self.directory / "projector/tensors.tsv").read_text().splitlines()
            features = torch.tensor([[float(value) for value in line.split("\t")] for line in lines])
            self.assertEqual(features.shape, (ROWS, size))
            self.assertClose(features @ weights["weight"].T + weights["bias"], self.logits(path), TOLERANCE)

    def test_what_has_no_such_form_is_an_error_that_says_what_has(self):
        path = self.trained(type="ImageMLP", hidden=[4])
        for words, message in (
                (("--format", "npz"), "--format of a --model must be torchscript, state_dict or safetensors, got 'npz'"),
                ((), "--format of a --model must be torchscript, state_dict or safetensors, got none"),
                (("--format", "safetensors", "recommended"), "THETA is not for --model"),
                (("--format", "safetensors", "--isa", "x"), "--isa is not for --model")):
            with self.assertRaisesRegex(AssertionError, message):
                run("export", "--model", path, "--out", self.directory / "x", *words)
        with self.assertRaisesRegex(AssertionError, "--out is the model"):
            run("export", "--model", path, "--format", "safetensors", "--out", path / "model.safetensors")
        path = self.trained(type="DelayedGradients", task={
            "type": "ImageMLP", "data": "npz", "image_size": 0})
        with self.assertRaisesRegex(AssertionError, "only models of ImageMLP, ImageConv, TorchImageMLP and"):
            run("export", "--model", path, "--format", "safetensors", "--out", self.directory / "x")
        path = self.trained(type="ImageMLP", hidden=[4], augment={"type": "Drawn"})
        for model_format in ("torchscript", "state_dict", "safetensors"):
            with self.assertRaisesRegex(AssertionError, "ImageMLP: augment is 'Drawn', which changes the images of every"):
                run("export", "--model", path, "--format", model_format, "--out", self.directory / "x")


if __name__ == "__main__":
    unittest.main()
