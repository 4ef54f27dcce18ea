"""Tests of tasks of one's own."""

import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
import typing
import unittest

import numpy as np
import torch

import lopt


@lopt.task
class Regression:
    """Least squares with new examples in each step.

    In torch.
    """

    dim: int = lopt.option(8, "Inputs.", min=1)
    scale: float = lopt.option(1.0, "Of the examples.", above=0)
    name: str = "plain"
    flag: bool = False
    widths: list[int] = lopt.option([4, 5], "Unused.", min=1)
    limit: typing.Optional[float] = None

    def sample(self, key):
        return {"target": key.normal(self.dim)}

    def init(self, key):
        return {"w": key.normal(self.dim)}

    def batch(self, keys):
        return self.scale * keys.normal((16, self.dim))

    def loss(self, params, batch, config):
        return (batch @ (params["w"] - config["target"])).square().mean()


@lopt.task
class NumpyQuadratic:
    """The counterpart of FixedDimQuadraticFamily."""

    dim: int = 10

    def sample(self, key):
        return {"target": key.normal(self.dim)}

    def init(self, key):
        return {"x": key.normal(self.dim)}

    def loss_and_grad(self, params, config):
        difference = params["x"] - config["target"]
        return np.square(difference).sum(1), {"x": 2 * difference}


@lopt.task
class NumpyQuadraticOneByOne(NumpyQuadratic):
    per_replica = True

    def loss_and_grad(self, params, config):
        difference = params["x"] - config["target"]
        return difference @ difference, {"x": 2 * difference}


@lopt.task
class TorchQuadratic(NumpyQuadratic):
    loss_and_grad = None

    def loss(self, params, config):
        return (params["x"] - config["target"]).square().sum()


@lopt.task
class TorchQuadraticOneByOne(TorchQuadratic):
    per_replica = True

    def loss(self, params, config):
        loss = (params["x"] - config["target"]).square().sum()
        return loss if loss.item() >= 0 else None  # what vmap cannot do


def write_idx(path, array):
    path.write_bytes(struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
                     + array.tobytes())


DIGITS = pathlib.Path(tempfile.mkdtemp(prefix="lopt-test-"))
IMAGES = {"train": (400, 1), "t10k": (100, 2)}
for name, (count, seed) in IMAGES.items():
    key = lopt.Key(seed)
    IMAGES[name] = (key.integers((count, 8, 8), 0, 256).astype(np.uint8),
                    key.fold_in(1).integers(count, 0, 10).astype(np.uint8))
    write_idx(DIGITS / f"{name}-images-idx3-ubyte", IMAGES[name][0])
    write_idx(DIGITS / f"{name}-labels-idx1-ubyte", IMAGES[name][1])


def rows_of(name):
    images, labels = IMAGES[name]
    return images.reshape(-1, 64).astype(np.float32) / np.float32(255), labels.astype(np.int64)


class ImageNetwork:
    """What the counterparts of ImageMLP have in common."""

    batch_size: int = 32
    hidden: int = 16
    sampling: str = "replacement"
    aux = ("accuracy",)

    def data(self):
        return rows_of("train")

    def test_data(self):
        return rows_of("t10k")

    def init(self, key):
        sizes = (64, self.hidden, 10)
        params = {}
        for layer, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            w = key.fold_in(layer).truncated_normal((inputs, outputs), -2, 2)
            params[f"mlp/linear_{layer}/w"] = w * (np.float32(1) / np.sqrt(np.float32(inputs)))
            params[f"mlp/linear_{layer}/b"] = np.zeros(outputs)
        return params


@lopt.task
class TorchImages(ImageNetwork):
    batch_size: int = 32
    hidden: int = 16
    sampling: str = "replacement"

    def loss(self, params, batch):
        images, labels = batch
        hidden = torch.relu(images @ params["mlp/linear_0/w"] + params["mlp/linear_0/b"])
        logits = hidden @ params["mlp/linear_1/w"] + params["mlp/linear_1/b"]
        accuracy = (logits.argmax(-1) == labels).float().mean()
        return torch.nn.functional.cross_entropy(logits, labels), {"accuracy": accuracy}


@lopt.task
class NumpyImages(ImageNetwork):
    batch_size: int = 32
    hidden: int = 16
    sampling: str = "replacement"

    def loss_and_grad(self, params, batch):
        images, labels = batch
        w0, b0, w1, b1 = params.values()
        hidden = np.maximum(images @ w0 + b0[:, None], 0)
        logits = hidden @ w1 + b1[:, None]
        logits -= logits.max(-1, keepdims=True)
        log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        at_labels = np.take_along_axis(log, labels[..., None], -1)[..., 0]
        d_logits = np.exp(log)
        np.put_along_axis(d_logits, labels[..., None],
                          np.take_along_axis(d_logits, labels[..., None], -1) - 1, -1)
        d_logits /= labels.shape[-1]
        d_hidden = (d_logits @ w1.swapaxes(-1, -2)) * (hidden > 0)
        gradients = (images.swapaxes(-1, -2) @ d_hidden, d_hidden.sum(1),
                     hidden.swapaxes(-1, -2) @ d_logits, d_logits.sum(1))
        accuracy = (logits.argmax(-1) == labels).mean(-1)
        return -at_labels.mean(-1), dict(zip(params, gradients)), {"accuracy": accuracy}


# The program with a task whose data differ by SHIFT.
ROWS_OF_RANK = """
import os
import sys

import numpy

import lopt
from lopt._core import run_program


@lopt.task
class RowsOfRank:
    batch_size = 4
    per_replica = True

    def data(self):
        return numpy.arange(40, dtype=numpy.float32).reshape(20, 2) + int(os.environ["SHIFT"])

    def init(self, key):
        return {"w": key.normal(2)}

    def loss_and_grad(self, params, batch):
        difference = params["w"] - batch.mean(0)
        return difference @ difference, {"w": 2 * difference}


sys.exit(run_program(sys.argv[1:], [sys.executable, __file__]))
"""


def config_of(task, steps=3, **estimator):
    """A meta-training of a second at most."""
    return {
        "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
        "theta_opt": {"type": "Adam", "learning_rate": 0.01},
        "meta_steps": steps,
        "data_dir": str(DIGITS) if task["type"] == "ImageMLP" else "",
        "estimators": [
            {
                "type": "TruncatedPES",
                "task": task,
                "num_tasks": 4,
                "trunc_length": 5,
                "std": 0.01,
                "lengths": {"type": "ConstantTruncationSchedule", "total_length": 8},
                **estimator,
            }
        ],
    }


def train(task, steps=3, threads=1, **estimator):
    """theta, and the mean loss of each update."""
    losses = []
    training = lopt.meta_train(
        config_of(task, steps, **estimator), threads=threads,
        callbacks=[lambda step, metrics: losses.append(metrics["meta_loss"])])
    return training.theta.values, np.array(losses), training


def noted(task, **options):
    """What the task notes in each update, by the names of metrics."""
    found = []
    lopt.meta_train(config_of(task, with_metrics=True), **options, callbacks=[
        lambda step, metrics: found.append(
            {name: value for name, value in metrics.items() if name.startswith("task/")})])
    return found


class Options(unittest.TestCase):
    def assert_wrong(self, task, text):
        with self.assertRaises(lopt.Error) as caught:
            lopt.resolve(config_of(task))
        self.assertEqual(str(caught.exception), text)

    def test_defaults_are_written_out(self):
        resolved = lopt.resolve(config_of({"type": "Regression", "dim": 3}))
        self.assertEqual(
            resolved["estimators"][0]["task"],
            {"type": "Regression", "dim": 3, "scale": 1.0, "name": "plain", "flag": False,
             "widths": [4, 5], "limit": None},
        )

    def test_the_instance_has_the_values_of_the_config(self):
        seen = []

        @lopt.task
        class Seen(NumpyQuadratic):
            rate: float = 1
            words: list[str] = lopt.option(["a"])
            limit: typing.Optional[int] = None

            def __post_init__(self):
                seen.append((self.dim, self.rate, self.words, self.limit))

        train({"type": "Seen", "dim": 2, "rate": 3, "limit": 5}, steps=1)
        self.assertEqual(seen[0], (2, 3.0, ["a"], 5))
        self.assertIsInstance(seen[0][1], float)

    def test_an_option_that_its_instance_changes_again_and_again_is_an_error(self):
        @lopt.task
        class Doubled(NumpyQuadratic):
            rate: float = 1.0

            def __post_init__(self):
                self.rate = 2 * self.rate

        @lopt.task
        class Longer(NumpyQuadratic):
            sizes: list[int] = lopt.option([])

            def __post_init__(self):
                self.sizes.append(7)

        @lopt.task
        class Rounded(NumpyQuadratic):
            def __post_init__(self):
                self.dim = max(self.dim, 4)

        config = config_of({"type": "NumpyQuadratic"})
        config["estimators"][0]["task"] = Doubled(rate=3.0)
        with self.assertRaises(lopt.Error) as caught:
            lopt.resolve(config)
        self.assertEqual(
            str(caught.exception),
            "task Doubled: __post_init__ changes option 'rate', again where a config makes an "
            "instance of it: it makes 12.0 of 6.0; put what is made from options into attributes of "
            "other names")
        longer = Longer(sizes=[1])
        config["estimators"][0]["task"] = longer
        with self.assertRaisesRegex(lopt.Error, "changes option 'sizes'"):
            lopt.resolve(config)
        self.assertEqual(longer.sizes, [1, 7])
        config["estimators"][0]["task"] = Rounded(dim=2)
        resolved = lopt.resolve(config)
        self.assertEqual(resolved["estimators"][0]["task"]["dim"], 4)

    def test_errors_are_those_of_built_in_types(self):
        at = "config: 'estimators[0].task."
        self.assert_wrong(
            {"type": "Regression", "dmi": 3},
            "config: unknown key 'estimators[0].task.dmi'; valid keys: dim, scale, name, flag, "
            "widths, limit; did you mean 'dim'?",
        )
        self.assert_wrong(
            {"type": "Regression", "dim": 0}, f"{at}dim' must be an integer of at least 1, got 0")
        self.assert_wrong(
            {"type": "Regression", "dim": 2.5},
            f"{at}dim' must be an integer of at least 1, got 2.5")
        self.assert_wrong(
            {"type": "Regression", "scale": 0}, f"{at}scale' must be a number above 0, got 0")
        self.assert_wrong({"type": "Regression", "name": 3}, f"{at}name' must be text, got 3")
        self.assert_wrong({"type": "Regression", "widths": [0]},
                          f"{at}widths[0]' must be an integer of at least 1, got 0")

    def test_describe_shows_the_type_and_its_options(self):
        text = lopt.describe()
        self.assertIn("Least squares with new examples in each step.", text)
        self.assertIn("Of the examples.", text)


class Registration(unittest.TestCase):
    def assert_wrong(self, text, cls, name="Wrong"):
        with self.assertRaises(lopt.Error) as caught:
            lopt.register_task(name, cls)
        self.assertEqual(str(caught.exception), text)

    def test_a_name_that_is_taken_is_an_error_and_a_cell_that_runs_again_none(self):
        def cell(dim):
            class Again(NumpyQuadratic):
                dim: int = 1

            Again.__annotations__["dim"] = int
            Again.dim = dim
            return Again

        lopt.register_task("Again", cell(2))
        lopt.register_task("Again", cell(3))
        resolved = lopt.resolve(config_of({"type": "Again"}))
        self.assertEqual(resolved["estimators"][0]["task"]["dim"], 3)
        self.assert_wrong(
            "task Again: this type is test_own_tasks.Registration.test_a_name_that_is_taken_is_an_"
            "error_and_a_cell_that_runs_again_none.<locals>.cell.<locals>.Again already; choose "
            "another name", NumpyQuadratic, "Again")
        self.assert_wrong("task type 'ImageMLP' is registered already", NumpyQuadratic, "ImageMLP")

    def test_classes_that_are_no_tasks_are_errors(self):
        class NoInit:
            def loss_and_grad(self, params):
                pass

        class Both(NumpyQuadratic):
            def loss(self, params):
                pass

        class Neither:
            def init(self, key):
                pass

        class Initialised(NumpyQuadratic):
            def __init__(self):
                pass

        class Misspelt(NumpyQuadratic):
            def loss_and_grad(self, parms):
                pass

        class NoBatch(NumpyQuadratic):
            def loss_and_grad(self, params, batch):
                pass

        class NoSample:
            def init(self, key, config):
                pass

            def loss_and_grad(self, params):
                pass

        class Untyped(NumpyQuadratic):
            dim: complex = 1j

        class NoDefault:
            dim: int

            def init(self, key):
                pass

            def loss_and_grad(self, params):
                pass

        class WrongDefault(NumpyQuadratic):
            dim: int = "8"

        class OutOfRange(NumpyQuadratic):
            dim: int = lopt.option(0, min=1)

        class Batches(NumpyQuadratic):
            def batch(self, keys):
                pass

            def data(self):
                pass

        who = "task Wrong: "
        self.assert_wrong(f"{who}register_task takes a class, got int", 3)
        self.assert_wrong(f"{who}the class has no init(key)", NoInit)
        words = ("the class must have one of loss(params, batch), in torch, and "
                 "loss_and_grad(params, batch), with NumPy; it has ")
        self.assert_wrong(f"{who}{words}both", Both)
        self.assert_wrong(f"{who}{words}neither", Neither)
        self.assert_wrong(
            f"{who}the class has an __init__; options are annotated attributes ('dim: int = 8'), "
            "and what is made from them is made in __post_init__", Initialised)
        self.assert_wrong(
            f"{who}loss_and_grad takes 'parms'; parameters are known by their names, and those of "
            "loss_and_grad are: params, batch, config, split", Misspelt)
        self.assert_wrong(
            f"{who}loss_and_grad takes 'batch', but the class has neither batch nor data", NoBatch)
        self.assert_wrong(
            f"{who}init takes 'config', but the class has no sample(key)", NoSample)
        self.assert_wrong(
            f"{who}option 'dim' is annotated with complex; valid types are bool, int, float, str, "
            "int or None, float or None, list[int], list[float], list[str]", Untyped)
        self.assert_wrong(f"{who}option 'dim' has no default", NoDefault)
        self.assert_wrong(
            f"{who}option 'dim' has the default '8', wanted int", WrongDefault)
        self.assert_wrong(f"{who}dim must be at least 1, got 0", OutOfRange)
        self.assert_wrong(
            f"{who}the class has both batch and data; the batches are those of one of them",
            Batches)


class Counterparts(unittest.TestCase):
    """Tasks that C++ has as well, with the same keys."""

    def assert_like(self, task, native, rtol=1e-5):
        theta, losses, _ = train(task, steps=6)
        wanted, wanted_losses, _ = train(native, steps=6)
        np.testing.assert_allclose(losses, wanted_losses, rtol=rtol)
        np.testing.assert_allclose(theta, wanted, rtol=0, atol=2e-4)
        return theta

    def test_quadratics_train_as_the_native_one(self):
        native = {"type": "FixedDimQuadraticFamily", "dim": 7}
        for name in ("NumpyQuadratic", "NumpyQuadraticOneByOne", "TorchQuadratic",
                     "TorchQuadraticOneByOne"):
            with self.subTest(name):
                self.assert_like({"type": name, "dim": 7}, native)

    def test_image_networks_train_as_the_native_one(self):
        native = {"type": "ImageMLP", "image_size": 8, "hidden": [16], "batch_size": 32}
        for name in ("TorchImages", "NumpyImages"):
            for sampling in ("replacement", "epoch"):
                with self.subTest(name, sampling=sampling):
                    self.assert_like({"type": name, "sampling": sampling},
                                     native | {"sampling": sampling})

    def test_evaluations_are_those_of_the_native_one(self):
        def judge(task):
            config = {"data_dir": str(DIGITS), "steps": [20], "seeds": 3, "trials": 2,
                      "tuning_seeds": 1, "tasks": {"digits": {"task": task}}}
            if task["type"] != "ImageMLP":
                config["data_dir"] = ""
            return lopt.evaluate((), config, baselines=["SGD", "Adam"]).runs

        wanted = judge({"type": "ImageMLP", "image_size": 8, "hidden": [16], "batch_size": 32})
        for name in ("TorchImages", "NumpyImages"):
            with self.subTest(name):
                for result, other in zip(judge({"type": name}), wanted, strict=True):
                    for key in ("test_loss", "final_train_loss", "test_accuracy"):
                        np.testing.assert_allclose(result[key], other[key], rtol=1e-4)

    def test_noted_numbers_are_those_of_the_native_one(self):
        wanted = noted({"type": "ImageMLP", "image_size": 8, "hidden": [16], "batch_size": 32})
        self.assertEqual([list(update) for update in wanted], [["task/accuracy/0_ImageMLP"]] * 3)
        for name in ("TorchImages", "NumpyImages"):
            with self.subTest(name):
                found = noted({"type": name})
                self.assertEqual([list(update) for update in found], [[f"task/accuracy/0_{name}"]] * 3)
                np.testing.assert_allclose([list(update.values()) for update in found],
                                           [list(update.values()) for update in wanted], rtol=1e-5)

    def test_a_noted_loss_is_the_meta_loss_whatever_the_threads(self):
        @lopt.task
        class Noting(TorchQuadratic):
            aux = ("again", "negative")

            def loss(self, params, config):
                loss = super().loss(params, config)
                return loss, {"again": loss, "negative": -loss}

        metrics = {}
        training = lopt.meta_train(
            config_of({"type": "Noting"}, with_metrics=True),
            callbacks=[lambda step, values: metrics.update({step: values})])
        self.assertEqual(len(metrics), 3)
        for values in metrics.values():
            # Means of the same float32 numbers in float64, in another order.
            np.testing.assert_allclose(values["task/again/0_Noting"],
                                       values["meta_loss/0_Noting"], rtol=1e-14)
            self.assertEqual(values["task/negative/0_Noting"], -values["task/again/0_Noting"])
        self.assertEqual(noted({"type": "Noting"}, threads=2), noted({"type": "Noting"}, threads=1))
        self.assertEqual(training.theta.values.tobytes(), train({"type": "Noting"})[0].tobytes())
        with self.assertRaisesRegex(lopt.Error, "with_metrics is true, but the task has no aux"):
            noted({"type": "TorchQuadratic"})

    def test_a_normalizer_is_that_of_the_native_one(self):
        @lopt.task
        class Cut(NumpyQuadratic):
            normalizer_maximum = 3.0

        @lopt.task
        class CutByHand(NumpyQuadratic):
            def normalizer(self, loss):
                return min(loss, 3.0)

        theta, losses, _ = train({"type": "Cut"})
        by_hand, its_losses, _ = train({"type": "CutByHand"})
        np.testing.assert_array_equal(losses, its_losses)
        np.testing.assert_array_equal(theta, by_hand)
        self.assertLessEqual(losses.max(), 3)
        self.assertGreater(train({"type": "NumpyQuadratic"})[1].min(), 3)


class Determinism(unittest.TestCase):
    TASKS = ({"type": "Regression", "dim": 3}, {"type": "TorchImages"}, {"type": "NumpyImages"})

    def test_threads_do_not_change_a_bit(self):
        for task in self.TASKS:
            with self.subTest(task["type"]):
                one = train(task, threads=1)[0]
                self.assertEqual(one.tobytes(), train(task, threads=2)[0].tobytes())

    def test_two_estimators_run_at_once(self):
        config = config_of({"type": "Regression", "dim": 3})
        config["estimators"] += config_of({"type": "TorchQuadratic"})["estimators"]
        one, two = (lopt.meta_train(config, threads=n).theta.values for n in (1, 2))
        self.assertEqual(one.tobytes(), two.tobytes())

    def test_a_run_goes_on_from_its_checkpoint(self):
        class Enough(Exception):
            pass

        def stop(step, metrics):
            if step == 2:
                raise Enough

        for task in self.TASKS:
            with self.subTest(task["type"]), tempfile.TemporaryDirectory() as out:
                config = config_of(task, steps=6)
                with self.assertRaises(Enough):
                    lopt.meta_train(config, out=out, callbacks=[stop])
                resumed = lopt.meta_train(out=out, resume=True)
                self.assertGreater(resumed.updates, 0)
                self.assertLess(resumed.updates, 6)
                whole = lopt.meta_train(config)
                self.assertEqual(resumed.theta.values.tobytes(), whole.theta.values.tobytes())

    def test_a_run_goes_on_only_with_the_data_that_it_began_with(self):
        rows = [np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 3]
        make = lambda: rows  # noqa: E731

        @lopt.task
        class RowsOfOurs:
            batch_size = 4
            per_replica = True

            def data(self):
                return tuple(make())

            def init(self, key):
                return {"w": key.normal(2)}

            def loss_and_grad(self, params, batch):
                difference = params["w"] - batch[0].mean(0).astype(np.float32)
                return difference @ difference, {"w": 2 * difference}

        with tempfile.TemporaryDirectory() as out:
            config = config_of({"type": "RowsOfOurs"}, steps=2)
            lopt.meta_train(config, out=out)
            config["meta_steps"] = 4
            for change in (lambda x: x + 1, lambda x: x.astype(np.float64), lambda x: x[:, ::-1]):
                make = lambda: [change(rows[0]), rows[1]]  # noqa: E731
                with self.assertRaisesRegex(lopt.Error, "computed on the data of RowsOfOurs "):
                    lopt.meta_train(config, out=out, resume=True)
            make = lambda: [np.asfortranarray(rows[0]), rows[1]]  # noqa: E731
            self.assertEqual(lopt.meta_train(config, out=out, resume=True).updates, 2)

    def test_a_rank_with_other_data_than_the_learner_is_refused_with_an_error_that_names_both(self):
        version = subprocess.run([sys.executable, "-m", "lopt", "version"], text=True, check=True,
                                 capture_output=True).stdout
        if "gRPC:             grpc module not" in version:
            self.skipTest("the grpc module is not there")
        for shift in (1, 0):
            with tempfile.TemporaryDirectory() as scratch:
                program, config = pathlib.Path(scratch, "job.py"), pathlib.Path(scratch, "c.json")
                program.write_text(ROWS_OF_RANK)
                config.write_text(json.dumps(config_of({"type": "RowsOfRank"}, steps=2)))
                with socket.create_server(("127.0.0.1", 0)) as free:
                    address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
                words = [sys.executable, program, "meta-train", config, "--out", f"{scratch}/run",
                         "--init-method", address]
                ranks = [subprocess.Popen(
                    words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                         "SHIFT": str(rank * shift), "XDG_CONFIG_HOME": scratch})
                    for rank in range(2)]
                try:
                    refused = ranks[1].communicate(timeout=300)[1]
                    if not shift:
                        ranks[0].communicate(timeout=300)
                finally:
                    ranks[0].kill()  # a learner waits for another worker
                    ranks[0].communicate()
                if not shift:
                    self.assertEqual([rank.returncode for rank in ranks], [0, 0], refused)
                    continue
                self.assertEqual(ranks[1].returncode, 1)
                found = re.match(r"lopt: the learner refuses this process: it computes on the data "
                                 r"of RowsOfRank (\w{8}), the learner on the data of RowsOfRank "
                                 r"(\w{8}) ", refused)
                self.assertTrue(found, refused)
                self.assertNotEqual(*found.groups())

    def test_torch_has_one_thread_in_a_task_and_as_many_as_before_after_it(self):
        seen = []

        @lopt.task
        class Counting(TorchQuadratic):
            def loss(self, params, config):
                seen.append(torch.get_num_threads())
                return super().loss(params, config)

        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            # On this thread, whose number it is.
            experiment = lopt.Experiment(config_of({"type": "Counting"}))
            learner, estimators = experiment.learner, experiment.estimators(0)
            weights = learner.get_state_for_worker(learner.init(lopt.Key(0)))
            worker = lopt.init_worker_state(weights, estimators, lopt.Key(1))
            lopt.gradient_worker_compute(weights, estimators, lopt.Key(1), worker)
            self.assertEqual(set(seen), {1})
            self.assertEqual(torch.get_num_threads(), 2)
        finally:
            torch.set_num_threads(threads)


class Misuse(unittest.TestCase):
    """What goes wrong in a user's functions."""

    def raised(self, methods, **attributes):
        """What the first update of a task raises that has these methods in place of its own."""
        base = TorchQuadratic if "loss" in methods else NumpyQuadratic
        if "init" in methods and "loss" not in methods:
            attributes["loss_and_grad"] = lambda self, params: (np.zeros(8), params)
        Bad = type("Bad", (base,), {**methods, **attributes})
        lopt.register_task("Bad", Bad)
        try:
            train({"type": "Bad", "dim": 3}, steps=1)
        except Exception as exception:
            return exception
        self.fail("nothing was raised")

    def assert_error(self, text, **methods):
        """`text` is what it says, after the name of the task."""
        exception = self.raised(methods)
        self.assertIsInstance(exception, lopt.Error)
        self.assertEqual(str(exception), f"task Bad: {text}")

    def test_a_loss_that_is_no_scalar_is_an_error(self):
        self.assert_error(
            "loss has shape [3] and type torch.float32, wanted one number (shape [], a floating "
            "type) for one inner training; take a mean or a sum",
            loss=lambda self, params: params["x"].square())
        self.assert_error(
            "loss has shape [] and type torch.int64, wanted one number (shape [], a floating type) "
            "for one inner training; take a mean or a sum",
            loss=lambda self, params: params["x"].argmax())
        self.assert_error("loss is float, wanted a torch tensor with one number",
                          loss=lambda self, params: 1.5)
        self.assert_error("loss returned a tuple of 2, wanted a loss",
                          loss=lambda self, params: (params["x"].sum(), {}))
        self.assert_error(
            "loss_and_grad returned losses of shape [8, 3] and type float32, wanted shape [8] and "
            "type float32",
            loss_and_grad=lambda self, params: (params["x"], params))
        self.assert_error(
            "loss_and_grad returned losses of shape [] and type float32, wanted shape [8] and type "
            "float32",
            loss_and_grad=lambda self, params: (params["x"].sum(), params))
        self.assert_error(
            "loss_and_grad returned numpy.ndarray, wanted a loss and a dict of gradients",
            loss_and_grad=lambda self, params: params["x"].sum(1))

    def test_a_loss_without_a_gradient_is_an_error(self):
        text = ("loss has no gradient; it must be computed from params by torch, without detach(), "
                "no_grad() or a way through NumPy")

        def without_grad(self, params):
            with torch.no_grad():
                return params["x"].sum()

        other = torch.ones(3, requires_grad=True)
        for loss in (lambda self, params: params["x"].detach().sum(), without_grad,
                     lambda self, params: other.sum()):
            for per_replica in False, True:
                with self.subTest(per_replica=per_replica):
                    self.assert_error(text, loss=loss, per_replica=per_replica)

    def test_a_normalizer_that_makes_no_meta_loss_is_an_error(self):
        loss = {"loss_and_grad": lambda self, params: (np.ones(8, np.float32), params)}
        self.assert_error("normalizer made nan of the loss 1.0, wanted a finite number",
                          normalizer=lambda self, loss: float("nan"), **loss)
        self.assert_error("normalizer made -1.0 of the loss 1.0, wanted a number in [0, 3]",
                          normalizer=lambda self, loss: -loss, normalizer_maximum=3, **loss)
        self.assert_error("normalizer made 4.0 of the loss 1.0, wanted a number in [0, 3]",
                          normalizer=lambda self, loss: 4 * loss, normalizer_maximum=3, **loss)

    def test_a_task_that_runs_tasks_is_an_error(self):
        def assert_error(who, call):
            exception = self.raised({"loss_and_grad": lambda self, params: call()})
            self.assertIsInstance(exception, lopt.Error)
            self.assertEqual(str(exception),
                             f"{who}: a method of a task calls it; it would wait for itself for "
                             "ever, as methods of tasks run one at a time")

        config = config_of({"type": "NumpyQuadratic"})
        assert_error("meta_train", lambda: lopt.meta_train(config, threads=2))
        assert_error("evaluate", lambda: lopt.evaluate((), "smoke", baselines="SGD"))
        experiment = lopt.Experiment(config)
        estimators = experiment.estimators(0)
        weights = experiment.learner.get_state_for_worker(experiment.learner.init(lopt.Key(0)))
        worker = lopt.init_worker_state(weights, estimators, lopt.Key(1))
        assert_error("gradient_worker_compute", lambda: lopt.gradient_worker_compute(
            weights, estimators, lopt.Key(1), worker, threads=2))

    def test_wrong_gradients_are_errors(self):
        def gradient(make):
            return lambda self, params: (params["x"].sum(1), make(params["x"]))

        self.assert_error(
            "loss_and_grad returned the gradient of 'x' of shape [8, 4] and type float32, wanted "
            "shape [8, 3] and type float32",
            loss_and_grad=gradient(lambda x: {"x": np.zeros((8, 4), np.float32)}))
        self.assert_error(
            "loss_and_grad returned the gradient of 'x' of shape [8, 3] and type int64, wanted "
            "shape [8, 3] and type float32",
            loss_and_grad=gradient(lambda x: {"x": np.zeros((8, 3), np.int64)}))
        self.assert_error(
            "loss_and_grad returned the gradient of y; wanted x",
            loss_and_grad=gradient(lambda x: {"y": x}))
        self.assert_error(
            "loss_and_grad returned numpy.ndarray where a dict was wanted, of: x",
            loss_and_grad=gradient(lambda x: x))

    def test_wrong_params_are_errors(self):
        self.assert_error("init returned list, wanted a dict of names and arrays",
                          init=lambda self, key: [key.normal(3)])
        self.assert_error("init returned no params", init=lambda self, key: {})
        self.assert_error(
            "init returned 'x' of shape [3] and type int64, wanted shape [3] and type float32",
            init=lambda self, key: {"x": np.zeros(3, np.int64)})
        self.assert_error(
            "init returned 'x' of shape [2] and type float32, wanted shape [1] and type float32",
            init=lambda self, key: {"x": key.normal(1 if key == lopt.Key(0) else 2)})
        self.assert_error(
            "init returned arrays called y; wanted x",
            init=lambda self, key: {"x" if key == lopt.Key(0) else "y": key.normal(1)})

    def test_wrong_batches_are_errors(self):
        def loss(self, params, batch):
            return params["x"].sum()

        self.assert_error("batch has shape [16, 2], wanted [8, ...]: a row for each of the keys",
                          loss=loss, batch=lambda self, keys: keys[0].normal((16, 2)))
        self.assert_error("batch[1]['n'] is int, wanted an array",
                          loss=loss, batch=lambda self, keys: (keys.normal(), {"n": 3}))
        self.assert_error("4 rows of data are too few to be split, wanted at least 10",
                          loss=loss, data=lambda self: np.zeros(4))
        self.assert_error("a class with data needs a batch_size of at least 1, got 0",
                          loss=loss, data=lambda self: np.zeros(40))
        self.assert_error(
            "the arrays of data have 40, 41 rows; wanted as many of all",
            loss=loss, data=lambda self: (np.zeros(40), np.zeros(41)))
        self.assert_error("data[1] is int, wanted an array of rows",
                          loss=loss, data=lambda self: (np.zeros(40), 3))
        self.assert_error(
            "data and test_data have rows of different shapes",
            loss=loss, data=lambda self: np.zeros((40, 3)), test_data=lambda self: np.zeros((9, 4)))
        self.assert_error(
            "data has data['x'], test_data has not", loss=loss,
            data=lambda self: {"x": np.zeros(40)}, test_data=lambda self: {"z": np.zeros(9)})
        self.assert_error(
            "test_data has more arrays than data",
            loss=loss, data=lambda self: np.zeros(40), test_data=lambda self: [np.zeros(9)] * 2)
        self.assert_error("test_data has no rows, wanted at least 1", loss=loss,
                          data=lambda self: np.zeros((40, 3)),
                          test_data=lambda self: np.zeros((0, 3)))

    def test_a_task_in_numpy_gets_arrays_of_what_its_data_are_in_torch(self):
        @lopt.task
        class Tensors:
            batch_size = 4

            def data(self):
                rows = torch.arange(40.0).reshape(20, 2)
                return rows.bfloat16(), np.arange(20) % 3

            def test_data(self):
                return torch.ones(3, 2), torch.zeros(3, dtype=torch.int64)

            def init(self, key):
                return {"w": key.normal(2)}

            def loss_and_grad(self, params, batch):
                rows, labels = batch
                assert isinstance(rows, np.ndarray) and isinstance(labels, np.ndarray)
                difference = params["w"] - rows.mean(1)
                return np.square(difference).sum(1), {"w": 2 * difference}

        self.assertTrue(np.isfinite(train({"type": "Tensors"})[0]).all())

    def test_test_data_is_joined_to_data_by_names(self):
        from lopt._tasks.data import DataSet
        x, y = np.arange(20, dtype=np.float32), np.full(20, 100, np.float32)
        data = DataSet("t", {"data": lambda: {"x": x, "y": y},
                             "test_data": lambda: {"y": y[:3], "x": x[:3]}}, None)
        rows = data.take(np.array([[20, 21]]))
        self.assertEqual(rows["x"].tolist(), [[0, 1]])
        self.assertEqual(rows["y"].tolist(), [[100, 100]])

    @unittest.skipUnless(torch, "no torch")
    def test_a_loss_may_put_something_in_place_of_its_params(self):
        from lopt._tasks.family import Family

        class Replacing:
            per_replica = False

            def init(self, key):
                return {"w": key.normal(2)}

            def loss(self, params):
                params["w"] = 2 * params["w"]
                return (params["w"] ** 2).sum()

        class OneByOne(Replacing):
            per_replica = True

        for task in Replacing, OneByOne:
            gradients = Family("t", task(), torch).evaluate(
                [np.array([[1, 2]], np.float32)], [], None, None, "train", True)[1]
            self.assertEqual(gradients[0].tolist(), [[8, 16]])

    def test_an_exception_comes_out_as_itself_with_its_traceback(self):
        error = KeyError("mine")

        def fail(*args, **kwargs):
            raise error

        for methods in (
            {"loss": lambda self, params: fail()},
            {"loss_and_grad": lambda self, params: fail()},
            {"init": lambda self, key: fail()},
            {"sample": lambda self, key: fail()},
            {"batch": lambda self, keys: fail()},
            {"normalizer": lambda self, loss: fail()},
            {"__post_init__": lambda self: fail()},
            {"data": lambda self: fail()},
        ):
            with self.subTest(list(methods)):
                raised = self.raised(methods)
                self.assertIs(raised, error)
                frames = traceback.extract_tb(raised.__traceback__)
                self.assertEqual(frames[-1].name, "fail")
                self.assertEqual(frames[0].name, "raised")
                raised.__traceback__ = None

    def test_an_exception_comes_out_of_evaluate(self):
        error = ValueError("late")

        class Late(NumpyQuadratic):
            calls = 0

            def loss_and_grad(self, params, config):
                Late.calls += 1
                if Late.calls > 7:
                    raise error
                return super().loss_and_grad(params, config)

        lopt.register_task("Late", Late)
        config = {"steps": [10], "seeds": 2, "trials": 2, "tuning_seeds": 1,
                  "tasks": {"late": {"task": {"type": "Late"}}}}
        with self.assertRaises(ValueError) as caught:
            lopt.evaluate((), config, baselines=["SGD", "Adam"])
        self.assertIs(caught.exception, error)

    def test_randomness_of_torch_is_an_error_of_vmap(self):
        raised = self.raised(
            {"loss": lambda self, params: (params["x"] + torch.randn(3)).square().sum()})
        self.assertIsInstance(raised, RuntimeError)
        self.assertIn("random", str(raised))

    def test_losses_that_are_not_finite_are_counted(self):
        @lopt.task
        class Diverging(NumpyQuadratic):
            def loss_and_grad(self, params, config):
                losses, gradients = super().loss_and_grad(params, config)
                return np.where(losses > 15, np.nan, losses), gradients

        totals = train({"type": "Diverging"})[2].totals["0_Diverging"]
        self.assertGreater(totals["non_finite"], 0)
        self.assertLess(totals["non_finite"], totals["inner_steps"])

    def test_other_floats_and_orders_in_memory_are_taken(self):
        @lopt.task
        class Double(NumpyQuadratic):
            def init(self, key):
                return {"x": torch.from_numpy(key.normal(self.dim)).double()}

            def loss_and_grad(self, params, config):
                losses, gradients = super().loss_and_grad(params, config)
                wide = np.zeros((2 * len(losses), 2 * self.dim))
                wide[::2, ::-2] = gradients["x"]
                return list(losses.astype(np.float64)), {"x": wide[::2, ::-2]}

        wanted = train({"type": "NumpyQuadratic"})[0]
        self.assertEqual(train({"type": "Double"})[0].tobytes(), wanted.tobytes())

    def test_what_a_task_is_given_is_its_own(self):
        kept = []

        @lopt.task
        class Keeping(NumpyQuadratic):
            def loss_and_grad(self, params, config):
                result = super().loss_and_grad(params, config)
                kept.append((params["x"], params["x"].copy()))
                config["target"][:] = np.nan  # of no consequence
                return result

        theta = train({"type": "Keeping"})[0]
        self.assertEqual(theta.tobytes(), train({"type": "NumpyQuadratic"})[0].tobytes())
        self.assertGreater(len(kept), 10)
        for array, copy in kept:
            np.testing.assert_array_equal(array, copy)

    def test_without_torch_a_loss_is_an_error(self):
        code = ("import sys; sys.modules['torch'] = None\n"
                "import lopt\n"
                "class T:\n"
                "    def init(self, key): pass\n"
                "    def loss(self, params): pass\n"
                "try: lopt.task(T)\n"
                "except lopt.Error as error: print(error)\n")
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                 check=True).stdout
        self.assertEqual(
            printed, "task T: loss(params, batch) is differentiated by torch, which cannot be "
            "imported (import of torch halted; None in sys.modules); install it, or write "
            "loss_and_grad(params, batch) with NumPy\n")


class End(unittest.TestCase):
    def test_a_script_whose_task_lives_until_the_end_writes_nothing(self):
        code = ("import json, sys, lopt\n"
                "from lopt import _core\n"
                "@lopt.task\n"
                "class Bowl:\n"
                "    def init(self, key): return {'x': key.normal(2)}\n"
                "    def loss_and_grad(self, params):\n"
                "        return (params['x'] ** 2).sum(1), {'x': 2 * params['x']}\n"
                "experiment = _core.Experiment(json.loads(sys.argv[1]))\n"
                "assert len(experiment.estimators())\n")
        ended = subprocess.run([sys.executable, "-c", code, json.dumps(config_of({"type": "Bowl"}))],
                               capture_output=True, text=True)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))


class Memory(unittest.TestCase):
    @unittest.skipIf(os.environ.get("PYTHONMALLOC"), "it is this run")
    def test_all_of_this_runs_with_freed_and_new_memory_overwritten(self):
        """Under Python's debug allocator and with glibc's perturbation."""
        environment = os.environ | {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}
        done = subprocess.run(
            [sys.executable, "-m", "unittest", "-q", "test_own_tasks.Misuse",
             "test_own_tasks.Determinism.test_threads_do_not_change_a_bit"],
            env=environment, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
