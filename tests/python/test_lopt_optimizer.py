"""Tests of python/lopt_optimizer.py against traces of google/learned_optimization and against lopt.

Environment: LOPT_GOLDEN_DIR (see golden_path), LOPT_MNIST_DIR (the MNIST test files; without
it, the training on real digits is skipped), LOPT_PROGRAM (the program; without it, what needs it is
skipped), LOPT_TORCH (OFF if the program was built without LibTorch).
"""

import copy
import gc
import gzip
import io
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
import weakref
from unittest import mock

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import lopt_optimizer  # noqa: E402
from lopt_optimizer import LearnedOptimizer, ThetaFile  # noqa: E402

PROGRAM = os.environ.get("LOPT_PROGRAM")
MNIST = os.environ.get("LOPT_MNIST_DIR")
DTYPES = {"F32": numpy.float32, "I32": numpy.int32}


def golden_path(name):
    """Where a trace is: in tests/golden or, where that lacks it, in LOPT_GOLDEN_DIR."""
    own = ROOT / "tests/golden" / name
    directory = os.environ.get("LOPT_GOLDEN_DIR")
    return own if own.exists() or not directory else pathlib.Path(directory, name)


STEPS = golden_path("mlp_lopt_steps.safetensors")


def read_safetensors(path):
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(bytearray(content[begin:end]), DTYPES[entry["dtype"]])
        arrays[name] = values.reshape(entry["shape"])
    return arrays, metadata


def write_safetensors(path, arrays, metadata=None):
    header, data = {"__metadata__": metadata} if metadata is not None else {}, b""
    for name, array in arrays.items():
        dtype = next(text for text, known in DTYPES.items() if known == array.dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def without(prefix, arrays):
    return {name[len(prefix):]: a for name, a in arrays.items() if name.startswith(prefix)}


def tensors(arrays):
    return {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}


def run(*words):
    """Runs the program; its standard output."""
    finished = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if finished.returncode != 0:
        raise AssertionError(f"{words}: {finished.stderr}")
    return finished.stdout


def orthogonal(optimizer):
    return {"type": "OrthogonalSteps", "optimizer": optimizer}


def scheduled(optimizer, **options):
    return {"type": "LearnedScheduler", "optimizer": optimizer, **options}


def both(matrices, vectors):
    return {"type": "MatricesAndVectors", "matrices": matrices, "vectors": vectors}


# Optimizers that change another's steps. Those are large: little is rounded away beside the params.
# And optimizers for matrices and vectors.
SGDM = {"type": "LearnableSGDM", "learning_rate": 10.0}
MLP = {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 1.0, "relative_step": True}
OF_OTHERS = (scheduled(orthogonal(SGDM)), orthogonal(scheduled(SGDM)), scheduled(MLP),
             orthogonal(MLP), scheduled(scheduled(SGDM, step_size=1.0), schedule="linear"),
             scheduled({"type": "AdafacMLPLOpt", "step_mult": 10.0}, hidden_size=3,
                       weight_decay=0.1, schedule="constant"),
             scheduled(both(orthogonal(SGDM), MLP)),
             both({"type": "AdafacMLPLOpt", "step_mult": 0.1},
                  {"type": "LearnableSGDM", "schedule": "cosine"}))


class TestCase(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def assertClose(self, got, wanted, tolerance):
        numpy.testing.assert_allclose(got.detach().numpy(), wanted, rtol=0, atol=tolerance)

    def theta(self, seed=0, metadata=None, **options):
        """A ThetaFile of random weights."""
        learned_optimizer = options
        if "type" not in options:
            learned_optimizer = {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1, **options}
        rule, resolved = lopt_optimizer._resolve(learned_optimizer, "test")
        random = numpy.random.RandomState(seed)
        arrays = {"theta/" + name: random.normal(size=shape).astype(numpy.float32) - 1
                  for name, shape in rule.layout(resolved).items()}
        path = self.directory / "theta.safetensors"
        write_safetensors(path, arrays, {"learned_optimizer": json.dumps(learned_optimizer),
                                         **(metadata or {})})
        return ThetaFile(path)


def trained(optimizer, params, gradients):
    """The params after one step for each of the lists of gradients."""
    for step in gradients:
        for p, gradient in zip(params, step):
            p.grad = gradient
        optimizer.step()
    return [p.detach().clone() for p in params]


def in_torch_order(tensor):
    """[spatial..., in, out] as torch has it, [out, in, spatial...], contiguous."""
    if tensor.dim() < 2:
        return tensor
    return tensor.detach().permute(-1, -2, *range(tensor.dim() - 2)).contiguous()


def random_gradients(params, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(p.shape, generator=generator).to(p.dtype) for p in params]
            for _ in range(steps)]


class OneFile(TestCase):
    def test_the_file_is_what_its_parts_make(self):
        path = ROOT / "tools/assemble_one_file"
        module = types.ModuleType("assemble_one_file")
        module.__file__ = str(path)
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
        self.assertTrue((ROOT / "python/lopt_optimizer.py").read_text() == module.assembled(),
                        "tools/assemble_one_file makes another python/lopt_optimizer.py")


class GoldenTraces(TestCase):
    def follow(self, name, tolerance=1e-6):
        arrays, metadata = read_safetensors(golden_path(name))
        params = tensors(without("param0/", arrays))
        optimizer = LearnedOptimizer.from_file(golden_path(name), params.values(),
                                               learned_optimizer=json.loads(metadata["optimizer"]))
        for step in range(int(metadata["steps"])):
            for tensor, p in params.items():
                p.grad = torch.tensor(arrays["gradient/" + tensor][step])
            optimizer.step()
            for tensor, p in params.items():
                self.assertClose(p, arrays["param/" + tensor][step], tolerance)

    def test_steps_of_mlp_lopt(self):
        self.follow("mlp_lopt_steps.safetensors")

    def test_steps_of_a_deeper_mlp_lopt_with_large_steps(self):
        self.follow("mlp_lopt_steps_large.safetensors")

    def test_steps_of_learnable_sgdm(self):
        self.follow("learnable_sgdm_steps.safetensors", 1e-5)  # params of up to 26: few roundings

    def test_steps_of_learnable_adam(self):
        self.follow("learnable_adam_steps.safetensors")

    def test_steps_of_adafac_mlp_lopt_on_parameters_in_the_order_of_torch(self):
        for name in ("adafac_mlp_steps.safetensors", "adafac_mlp_steps_large.safetensors"):
            arrays, metadata = read_safetensors(golden_path(name))
            params = {tensor: in_torch_order(p)
                      for tensor, p in tensors(without("param0/", arrays)).items()}
            optimizer = LearnedOptimizer.from_file(
                golden_path(name), params.values(),
                learned_optimizer=json.loads(metadata["optimizer"]))
            for step in range(int(metadata["steps"])):
                for tensor, p in params.items():
                    p.grad = in_torch_order(torch.tensor(arrays["gradient/" + tensor][step]))
                if step == 4:  # goes on from a saved state
                    saved = optimizer.state_dict()
                    optimizer = LearnedOptimizer(params.values(), ThetaFile(
                        golden_path(name), json.loads(metadata["optimizer"])))
                    optimizer.load_state_dict(saved)
                optimizer.step()
                for tensor, p in params.items():
                    wanted = torch.tensor(arrays["param/" + tensor][step])
                    self.assertClose(p, in_torch_order(wanted), 1e-6)

    def test_steps_of_celo2_on_parameters_in_the_order_of_torch(self):
        for name, settings, prefix, options in (
                ("celo2_steps", "optimizer", "celo2", {"type": "Celo2", "one_d": "learned"}),
                ("celo2_steps", "optimizer", "base", {"type": "Celo2Base"}),
                ("celo2_1d_steps", "config", "eval", {"type": "Celo2", "one_d": "adamw"}),
                ("celo2_1d_steps", "config", "train", {"type": "Celo2", "one_d": "adam"})):
            path = golden_path(name + ".safetensors")
            arrays, metadata = read_safetensors(path)
            known = ("learning_rate", "weight_decay", "mult_1d")
            options |= {option: value for option, value in json.loads(metadata[settings]).items()
                        if option in known}
            params = {tensor: in_torch_order(p)
                      for tensor, p in tensors(without("param0/", arrays)).items()}
            tables = [p for tensor, p in params.items() if tensor.startswith("embed")]
            groups = [{"params": [p for tensor, p in params.items()
                                  if not tensor.startswith("embed")]}]
            if tables:
                groups.append({"params": tables, "as_vectors": True})
            optimizer = LearnedOptimizer.from_file(path, groups, learned_optimizer=options)
            for step in range(int(metadata["steps"])):
                for tensor, p in params.items():
                    p.grad = in_torch_order(torch.tensor(arrays["gradient/" + tensor][step]))
                if step == 4:  # goes on from a saved state
                    saved = optimizer.state_dict()
                    optimizer = LearnedOptimizer.from_file(path, groups, learned_optimizer=options)
                    optimizer.load_state_dict(saved)
                optimizer.step()
                for tensor, p in params.items():
                    wanted = torch.tensor(arrays[f"{prefix}/param/{tensor}"][step])
                    self.assertClose(p, in_torch_order(wanted), 1e-6)

    CELO_TRACES = (("celo_steps_drawn", "celo_steps_drawn", {"type": "Celo"}),
                   ("celo_phase1_steps_drawn", "celo_steps_drawn",
                    {"type": "Celo", "scheduled": False}),
                   ("celo_adam_steps_drawn", "celo_adam_steps_drawn", {"type": "CeloAdam"}),
                   ("sinv6_steps_drawn", "sinv6_steps_drawn", {"type": "Sinv6"}))

    def test_steps_of_celo_celo_adam_and_sinv6_whose_losses_are_told_in_every_way(self):
        for trace, weights, options in self.CELO_TRACES:
            arrays, _ = read_safetensors(golden_path(trace + ".safetensors"))
            path = golden_path(weights + ".safetensors")
            params = {tensor: in_torch_order(p)
                      for tensor, p in tensors(without("param0/", arrays)).items()}

            def made():
                return LearnedOptimizer.from_file(path, params.values(), num_steps=15,
                                                  learned_optimizer=options)

            optimizer = made()
            for step, loss in enumerate(arrays["loss"]):
                for tensor, p in params.items():
                    p.grad = in_torch_order(torch.tensor(arrays["gradient/" + tensor][step]))
                if step == 4:  # goes on from a saved state
                    saved = optimizer.state_dict()
                    optimizer = made()
                    optimizer.load_state_dict(saved)
                told = torch.tensor(loss)
                if step % 3 == 0:
                    self.assertIs(optimizer.step(lambda: told), told)
                else:
                    optimizer.step(loss=float(loss) if step % 3 == 1 else told)
                for tensor, p in params.items():
                    wanted = torch.tensor(arrays["param/" + tensor][step])
                    allowed = max(5e-6, 1e-5 * wanted.abs().max().item())
                    self.assertClose(p, in_torch_order(wanted), allowed)

    def test_what_golden_steps_of_celo_do_not_show(self):
        # 24 bits of each of two numbers.
        x = torch.tensor([[1 / 3, -1e12 / 7, math.inf, -math.inf]], dtype=torch.float64)
        pairs = lopt_optimizer._as_pairs(x)
        self.assertEqual(pairs.dtype, torch.float32)
        self.assertClose(lopt_optimizer._of_pairs(pairs)[:, :2] / x[:, :2] - 1, torch.zeros(1, 2),
                         2.0 ** -47)
        self.assertTrue(torch.equal(lopt_optimizer._of_pairs(pairs)[:, 2:], x[:, 2:]))

        def steps(weights, options, first):
            p = torch.ones(3, requires_grad=True)
            optimizer = LearnedOptimizer.from_file(golden_path(weights + ".safetensors"), [p],
                                                   num_steps=15, learned_optimizer=options)
            for gradient in (first * torch.ones(3), torch.tensor([0.1, -100.0, 900.0])):
                p.grad = gradient
                optimizer.step(loss=1.0)
            return p.detach()

        for _, weights, options in self.CELO_TRACES:
            for sign in (1, -1):
                limited = steps(weights, options, sign * 1000)
                for first, same in ((1e6, True), (1010, True), (990, False)):
                    found = torch.equal(steps(weights, options, sign * first), limited)
                    self.assertEqual(found, same, (options, sign * first))

    def test_a_loss_that_is_missing_where_it_is_needed_is_an_error(self):
        p = torch.ones(3, requires_grad=True)
        for _, weights, options in self.CELO_TRACES:
            optimizer = LearnedOptimizer.from_file(golden_path(weights + ".safetensors"), [p],
                                                   num_steps=5, learned_optimizer=options)
            p.grad = torch.ones(3)
            before = p.detach().clone()
            if not options.get("scheduled", True):
                optimizer.step()
                continue
            for wrong, error in ((None, r"the loss of the batch: step\(loss=loss\), or a closure"),
                                 (torch.ones(2), "a number or a tensor of one; got "),
                                 ([], "a number or a tensor of one; got ")):
                with self.assertRaisesRegex(ValueError, f"{options['type']} needs .*{error}.*"
                                            "nothing was changed"):
                    optimizer.step(loss=wrong)
            with self.assertRaisesRegex(ValueError, "a closure, which returns the loss"):
                optimizer.step(lambda: 1.0, loss=1.0)
            self.assertTrue(torch.equal(p, before))
            with self.assertRaisesRegex(ValueError, "num_steps"):
                LearnedOptimizer.from_file(golden_path(weights + ".safetensors"), [p],
                                           learned_optimizer=options)

    NOT_FINITE = (float("nan"), float("inf"), -float("inf"), 1e39)  # the last is so in float32

    def drawn_scheduled(self):
        """(a maker of optimizers, the parameters, gradients and losses of four steps) of each kind
        that needs the loss."""
        for _, weights, options in self.CELO_TRACES:
            if options.get("scheduled", True):
                params = [torch.randn(3, 2), torch.randn(4)]
                gradients = [[torch.randn_like(p) for p in params] for _ in range(4)]

                def made(params, weights=weights, options=options, **more):
                    return LearnedOptimizer.from_file(
                        golden_path(weights + ".safetensors"), params, num_steps=5,
                        learned_optimizer=options, **more)

                yield options["type"], made, params, gradients, [2.0, 1.5, 1.25, 1.0]

    @staticmethod
    def step_with(optimizer, params, gradients, loss):
        for p, gradient in zip(params, gradients):
            p.grad = gradient.clone()
        optimizer.step(loss=loss)

    def test_a_loss_that_is_needed_and_not_finite_is_an_error_and_changes_nothing(self):
        torch.manual_seed(1)
        for kind, made, start, gradients, losses in self.drawn_scheduled():
            params, twin = ([p.clone().requires_grad_() for p in start] for _ in range(2))
            optimizer, undisturbed = made(params), made(twin)
            for step, (own, loss) in enumerate(zip(gradients, losses)):
                for bad in self.NOT_FINITE:
                    text = (f"LearnedOptimizer: {kind} is told the loss {bad} at step {step + 1}, "
                            "which is not finite in float32; nothing was changed")
                    with self.assertRaises(RuntimeError) as caught:
                        self.step_with(optimizer, params, own, bad)
                    self.assertTrue(str(caught.exception).startswith(text), caught.exception)
                self.step_with(optimizer, params, own, loss)
                self.step_with(undisturbed, twin, own, loss)
            self.assertEqual(optimizer.skipped, 0)
            for p, wanted in zip(params, twin):
                self.assertTrue(torch.equal(p, wanted) and p.isfinite().all())

    def test_a_loss_that_is_needed_and_not_finite_can_be_skipped_for_all_tensors(self):
        torch.manual_seed(2)
        for _, made, start, gradients, losses in self.drawn_scheduled():
            params, twin = ([p.clone().requires_grad_() for p in start] for _ in range(2))
            optimizer, undisturbed = made(params, non_finite="skip"), made(twin)
            for own, loss in zip(gradients, losses):
                for bad in self.NOT_FINITE:
                    self.step_with(optimizer, params, own, bad)
                self.step_with(optimizer, params, own, loss)
                self.step_with(undisturbed, twin, own, loss)
            self.assertEqual(optimizer.skipped, len(params) * len(losses) * len(self.NOT_FINITE))
            self.assertEqual([optimizer.state[p]["step"] for p in params], [len(losses)] * 2)
            for p, wanted in zip(params, twin):
                self.assertTrue(torch.equal(p, wanted) and p.isfinite().all())

    def test_a_loss_that_is_not_needed_may_be_anything(self):
        p = torch.ones(3, requires_grad=True)
        optimizer = LearnedOptimizer.from_file(
            golden_path("celo_steps_drawn.safetensors"), [p],
            learned_optimizer={"type": "Celo", "scheduled": False})
        self.step_with(optimizer, [p], [torch.ones(3)], float("nan"))
        self.assertTrue(p.isfinite().all())
        self.assertFalse(torch.equal(p, torch.ones(3)))

    def test_decays_that_do_not_fit_are_an_error(self):
        for decays in ({"initial_rms_decays": [0.9, 0.5]}, {"initial_adafactor_decays": [0.9]},
                       {"initial_momentum_decays": []}):
            with self.assertRaisesRegex(ValueError, "AdafacMLPLOpt: initial_adafactor_decays must "
                                        "have as many decays as initial_momentum_decays, "
                                        "initial_rms_decays 1 or as many; got "):
                ThetaFile(STEPS, {"type": "AdafacMLPLOpt", **decays})
        with self.assertRaisesRegex(ValueError, "option initial_rms_decays must be like"):
            ThetaFile(STEPS, {"type": "AdafacMLPLOpt", "initial_rms_decays": ["0.9"]})

    def test_weights_that_are_not_finite_are_an_error(self):
        arrays, _ = read_safetensors(STEPS)
        path = self.directory / "theta.safetensors"
        for place, value in ((0, numpy.nan), (37, -numpy.inf)):
            weights = {"theta/" + n: a.copy() for n, a in without("theta/", arrays).items()}
            weights["theta/mlp/linear_1/w"].reshape(-1)[place] = value
            write_safetensors(path, weights, {"learned_optimizer": json.dumps({"type": "MLPLOpt"})})
            for more in ({}, {"despite_failed_check": True}):
                with self.assertRaisesRegex(
                        ValueError, f"^{path}: weights must be finite numbers; "
                        r"theta/mlp/linear_1/w "
                        rf"\[32, 32\] has 1 that are not, the first is {value} at {place}$"):
                    ThetaFile(path, **more)

    def test_steps_of_learnable_sgd_on_a_square(self):
        path = self.directory / "theta.safetensors"
        write_safetensors(path, {"theta/log_lr": numpy.log(numpy.float32([0.05]))})
        x = torch.ones(1, requires_grad=True)
        optimizer = LearnedOptimizer.from_file(path, [x],
                                               learned_optimizer={"type": "LearnableSGD"})
        after = trained(optimizer, [x], [[torch.tensor([2.0])], [torch.tensor([1.8])]])
        self.assertClose(after[0], [0.81], 1e-7)

    def test_weight_decay_of_learnable_adam(self):
        arrays, _ = read_safetensors(golden_path("learnable_adam_steps.safetensors"))
        path = self.directory / "theta.safetensors"
        write_safetensors(path, {"theta/" + n: a for n, a in without("theta/", arrays).items()})
        x = torch.ones(1, requires_grad=True)
        optimizer = LearnedOptimizer.from_file(
            path, [x], learned_optimizer={"type": "LearnableAdam", "weight_decay": 0.5})
        (after,) = trained(optimizer, [x], [[torch.tensor([2.0])]])
        lr = numpy.exp(without("theta/", arrays)["log_lr"])
        self.assertClose(after, 1 - lr * 0.5 - lr, 1e-6)


class ExtremeInputs(TestCase):
    """Numbers of any size: what float32 cannot square."""

    SHAPES = ((), (17,), (300,), (1, 1), (5, 3), (16, 16), (7, 5, 2), (5, 7, 3, 3))
    RULES = ({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1},
             {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1, "relative_step": True,
              "relative_to_parameter": True},
             {"type": "AdafacMLPLOpt", "step_mult": 0.1}, {"type": "Celo2"},
             {"type": "Celo2", "one_d": "adamw"}, {"type": "Celo2Base"}, {"type": "LearnableSGD"},
             {"type": "LearnableSGDM"}, {"type": "LearnableAdam"}, *OF_OTHERS)

    def near_start(self, rule):
        """A ThetaFile of weights as a run begins with: small, and the decays of the options."""
        of_rule, resolved = lopt_optimizer._resolve(rule, "test")
        random = numpy.random.RandomState(1)
        arrays = {"theta/" + name: random.normal(0, 0 if "decays" in name else 0.1, shape).astype(
            numpy.float32) for name, shape in of_rule.layout(resolved).items()}
        path = self.directory / "near_start.safetensors"
        write_safetensors(path, arrays, {"learned_optimizer": json.dumps(rule)})
        return ThetaFile(path)

    def drawn(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        return [size * (2 * torch.rand(shape, generator=generator) - 1) for shape in self.SHAPES]

    def test_params_stay_finite_and_are_stepped_under_inputs_of_any_size(self):
        for rule in self.RULES:
            theta = self.near_start(rule)
            for size, of_params in ((1e-38, False), (1e-20, False), (1e10, False), (1e14, False),
                                    (1e20, False), (1e30, False), (1e36, False), (1e20, True),
                                    (1e30, True), (1e38, True)):
                with self.subTest(rule=rule, size=size, of_params=of_params):
                    params = [p.requires_grad_() for p in self.drawn(size if of_params else 1, 1)]
                    optimizer = LearnedOptimizer(params, theta, num_steps=100)
                    gradients = [self.drawn(1 if of_params else size, seed) for seed in (2, 3)]
                    for p in trained(optimizer, params, gradients):
                        self.assertTrue(p.isfinite().all())
                    self.assertEqual(optimizer.skipped, 0)
                    for state in optimizer.state_dict()["state"].values():
                        for name, value in state.items():
                            self.assertTrue(name == "step" or value.isfinite().all(), name)

    def test_orthogonal_steps_are_as_large_as_the_gradients(self):
        theta = self.theta(**orthogonal({"type": "LearnableSGD"}))

        def stepped(shape, size):
            generator = torch.Generator().manual_seed(1)
            p = torch.zeros(shape, requires_grad=True)
            gradient = size * torch.randn(shape, generator=generator)
            return trained(LearnedOptimizer([p], theta), [p], [[gradient]])[0].double()

        for shape in ((5, 3), (3, 19), (512, 512)):
            ordinary = stepped(shape, 1.0)
            for size in (1e-30, 1e14, 1e20, 1e36):
                with self.subTest(shape=shape, size=size):
                    apart = (stepped(shape, size) / size - ordinary).abs().max()
                    # Newton-Schulz is sensitive to rounding where singular values are near 0.
                    self.assertLess(apart / ordinary.abs().max(), 1e-3)

    def test_a_step_that_would_not_be_finite_is_left_counted_and_warned_of_once(self):
        path = self.directory / "theta.safetensors"
        write_safetensors(path, {"theta/log_lr": numpy.float32([70])},  # a rate of 2.5e30
                          {"learned_optimizer": json.dumps({"type": "LearnableSGD"})})
        params = [torch.ones(2, requires_grad=True), torch.ones(3, 2, requires_grad=True)]
        optimizer = LearnedOptimizer(params, ThetaFile(path))
        small, large = torch.zeros(2), torch.full((3, 2), 1e20)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first, second = trained(optimizer, params, [[small + 1e-30, large]] * 2)
        self.assertEqual([str(warning.message) for warning in caught], [
            "LearnedOptimizer: parameter 1 of group 0, shape [3, 2], would not be finite after its "
            "step, so it is left as it is; `skipped` counts such steps"])
        self.assertEqual(optimizer.skipped, 2)
        self.assertTrue(torch.equal(second, torch.ones(3, 2)))
        self.assertFalse(torch.equal(first, torch.ones(2)))
        self.assertEqual([optimizer.state[p]["step"] for p in params], [2, 2])

    def test_what_its_own_type_cannot_hold_is_left_too(self):
        path = self.directory / "theta.safetensors"
        write_safetensors(path, {"theta/log_lr": numpy.float32([0])},
                          {"learned_optimizer": json.dumps({"type": "LearnableSGD"})})
        p = torch.full((3,), 65000.0, dtype=torch.float16, requires_grad=True)
        optimizer = LearnedOptimizer([p], ThetaFile(path))
        with self.assertWarnsRegex(UserWarning, "would not be finite after its step"):
            trained(optimizer, [p], [[torch.full((3,), -2000.0, dtype=torch.float16)]])
        self.assertTrue((p == 65000).all())
        self.assertEqual(optimizer.skipped, 1)


class DenormalNumbers(TestCase):
    """lopt's kernels take denormal numbers for zeros (tests/lopt_denormals_test.cc)."""

    KINDS = ({"type": "LearnableSGDM", "learning_rate": 1000.0}, {"type": "LearnableAdam"}, MLP,
             {"type": "MLPLOpt", "normalizer_epsilon": 1e-37}, {"type": "AdafacMLPLOpt"},
             {"type": "Celo2"}, *OF_OTHERS)

    def train(self, theta, begin, gradients):
        """The parameters and the optimizer after steps with these gradients."""
        params = [torch.nn.Parameter(p.clone()) for p in begin]
        optimizer = LearnedOptimizer(params, theta, num_steps=len(gradients))
        for own in gradients:
            for p, gradient in zip(params, own):
                p.grad = gradient.clone()
            optimizer.step()
        return params, optimizer

    def test_denormal_gradients_do_what_zeros_do(self):
        generator = torch.Generator().manual_seed(0)
        shapes = [(40,), (6, 10)]
        begin = [torch.randn(shape, generator=generator) for shape in shapes]
        ordinary = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(4)]
        for options in self.KINDS:
            theta = self.theta(**options)
            for first in (0, 2):  # the first steps have ordinary gradients
                def trained(scale):
                    return self.train(theta, begin, [
                        [g * scale if t >= first else g for g in own]
                        for t, own in enumerate(ordinary)])[0]

                wanted = trained(0.0)
                for scale in (1e-45, 1e-42, 1e-39):
                    for got, p in zip(trained(scale), wanted):
                        self.assertTrue(torch.equal(got, p), (options, first, scale))

    def test_squares_that_are_denormal_are_zeros(self):
        g = [[torch.full((6, 10), 1e-21)]] * 3
        (p,), optimizer = self.train(self.theta(**OF_OTHERS[0]), [torch.ones(6, 10)], g)
        self.assertEqual(optimizer.state[p]["means"][3:].tolist(), [0, 0])
        (p,), _ = self.train(self.theta(**MLP), [torch.zeros(6, 10)], g)  # relative_step
        self.assertEqual(p.count_nonzero(), 0)


class OfOthers(TestCase):
    def file(self, options, **changed):
        """A ThetaFile of the learning rate 2 and a network of zeros, but for these tensors."""
        rule, resolved = lopt_optimizer._resolve(options, "test")
        arrays = {"theta/" + name: numpy.full(shape, math.log(2) if "log_lr" in name else 0,
                                              numpy.float32)
                  for name, shape in rule.layout(resolved).items()}
        for name, value in changed.items():
            arrays["theta/scheduler/out/" + name][...] = value
        path = self.directory / "theta.safetensors"
        write_safetensors(path, arrays, {"learned_optimizer": json.dumps(options)})
        return ThetaFile(path)

    def test_orthogonal_steps_keep_their_size_and_get_singular_values_alike(self):
        file = self.file(orthogonal({"type": "LearnableSGD"}))
        for shape in ((4, 7), (7, 4), (5, 2, 2, 1), (3, 3)):
            generator = torch.Generator().manual_seed(1)
            p = torch.zeros(shape, requires_grad=True)
            gradient = torch.randn(shape, generator=generator)
            (after,) = trained(LearnedOptimizer([p], file), [p], [[gradient]])
            self.assertClose(after.norm(), 2 * gradient.norm(), 1e-5)
            values = torch.linalg.svdvals(after.flatten(1)) / after.norm()
            alike = 1 / math.sqrt(min(len(values), after.flatten(1).shape[1]))
            self.assertLess(float((values / alike - 1).abs().max()), 0.35)  # of .68 to 1.13
            cosine = (after * gradient).sum() / after.norm() / gradient.norm()
            self.assertLess(float(cosine), -0.7)

    def test_other_tensors_and_steps_of_zeros_are_stepped_as_by_the_optimizer(self):
        file = self.file(orthogonal({"type": "LearnableSGD"}))
        params = [torch.ones(shape, requires_grad=True) for shape in ((3,), (), (0, 3), (2, 2))]
        gradients = [torch.full((3,), 0.25), torch.tensor(0.5), torch.ones(0, 3), torch.zeros(2, 2)]
        after = trained(LearnedOptimizer(params, file), params, [gradients])
        for got, wanted in zip(after, (0.5, 0.0, 1.0, 1.0)):
            self.assertClose(got, torch.full_like(got, wanted), 1e-6)

    def test_a_scheduler_of_zeros_makes_steps_of_step_size_whatever_the_gradient_s(self):
        options = {"weight_decay": 0.0, "schedule": "constant", "step_size": 0.25}
        file = self.file(scheduled({"type": "LearnableSGD"}, **options))
        for size in (1e-2, 1.0, 1e2):
            p = torch.zeros(4, requires_grad=True)
            gradient = size * torch.tensor([1.0, -2.0, 0.0, 2.0])
            (after,) = trained(LearnedOptimizer([p], file, num_steps=9), [p], [[gradient]])
            self.assertClose(after, -0.25 * gradient / gradient.norm(), 1e-6)

    def test_steps_that_float32_params_do_not_feel_are_none(self):
        file = self.file(scheduled(orthogonal({"type": "LearnableSGD"}), weight_decay=0.0))
        params = [torch.ones(shape, requires_grad=True) for shape in ((4,), (3, 2))]
        gradients = [torch.full_like(p, 1e-9) for p in params]
        for after in trained(LearnedOptimizer(params, file, num_steps=9), params, [gradients]):
            self.assertTrue(torch.equal(after, torch.ones_like(after)))

    def test_the_outputs_of_a_scheduler_are_factors_of_step_and_decay(self):
        options = {"weight_decay": 0.1, "step_size": 0.5}  # with the cosine
        file = self.file(scheduled({"type": "LearnableSGD"}, **options),
                         b=[math.log(3), math.log(2)])
        p = torch.ones(1, requires_grad=True)
        after = trained(LearnedOptimizer([p], file, num_steps=2), [p], [[torch.ones(1)]] * 2)
        first = 1 - 0.5 * 3 - 0.1 * 2 ** 2
        self.assertClose(after[0], [first - 0.5 * (0.5 * 3 + 0.1 * 2 ** 2 * first)], 1e-6)

    def test_an_optimizer_that_is_not_known_or_missing_is_an_error(self):
        for options, pattern in (
                ({"type": "OrthogonalSteps"}, "test: OrthogonalSteps: the learned optimizer's type "
                 "must be one of MLPLOpt, .*; got {}"),
                (scheduled(orthogonal({"type": "Muon"})), "test: LearnedScheduler: OrthogonalSteps:"
                 " the learned optimizer's type must be one of .*; got {'type': 'Muon'}"),
                (orthogonal({"type": "RNNMLPLOpt"}), "a RNNMLPLOpt sees all tensors"),
                (orthogonal("MLPLOpt"), "option optimizer must be like {}, got 'MLPLOpt'"),
                (both(SGDM, {"type": "RNNMLPLOpt"}), "MatricesAndVectors: the .* a RNNMLPLOpt sees"),
                (both({"type": "Celo"}, SGDM), "test: MatricesAndVectors: matrices must be an "
                 "optimizer that needs no loss, got a Celo"),
                ({"type": "MatricesAndVectors", "matrices": SGDM}, "must be one of .*; got {}"),
                (scheduled(SGDM, hidden_size=0), "hidden_size must be from 1 to 65536, got 0"),
                (scheduled(SGDM, step_size=0.0), "step_size must be positive and finite, got 0"),
                (scheduled(SGDM, weight_decay=1.5), "weight_decay must be from 0 to 1, got 1.5")):
            with self.assertRaisesRegex(ValueError, pattern):
                lopt_optimizer._resolve(options, "test")

    def test_they_need_num_steps_where_they_or_their_optimizer_do(self):
        sgd = {"type": "LearnableSGD", "schedule": "cosine"}
        for options, need in ((orthogonal(sgd), "LearnableSGD with schedule 'cosine'"),
                              (both(SGDM, sgd), "LearnableSGD with schedule 'cosine'"),
                              (both(scheduled(SGDM), sgd), "LearnedScheduler"),
                              (scheduled(SGDM, schedule="constant"), "LearnedScheduler")):
            with self.assertRaisesRegex(ValueError, f"LearnedOptimizer: {need} needs num_steps"):
                LearnedOptimizer([torch.ones(2, requires_grad=True)], self.file(options))
        LearnedOptimizer([torch.ones(2, requires_grad=True)], self.file(orthogonal(SGDM)))

    def test_matrices_and_vectors_have_the_bits_of_their_own_optimizers(self):
        adafac = {"type": "AdafacMLPLOpt", "step_mult": 0.1}
        shapes = ((4,), (3, 5), (), (2, 3, 2, 2), (0, 3))
        for matrices, vectors in ((orthogonal(SGDM), MLP), (adafac, {"type": "LearnableSGDM"})):
            file = self.theta(**both(matrices, vectors))
            torch.manual_seed(0)
            start = [torch.randn(shape) for shape in shapes]
            gradients = random_gradients(start, 4)

            def stepped(file, numbers, start=start, gradients=gradients, **more):
                params = [start[i].clone().requires_grad_() for i in numbers]
                return trained(LearnedOptimizer([{"params": params, **more}], file, num_steps=4),
                               params, [[step[i] for i in numbers] for step in gradients])

            def part(name, options, file=file):
                arrays = {"theta/" + key: x.numpy()
                          for key, x in without(name + "/", file.theta).items()}
                path = self.directory / f"{name}.safetensors"
                write_safetensors(path, arrays, {"learned_optimizer": json.dumps(options)})
                return ThetaFile(path)

            got = stepped(file, range(len(shapes)))
            of_matrices, of_vectors = part("matrices", matrices), part("vectors", vectors)
            for numbers, own in (([1, 3, 4], of_matrices), ([0, 2], of_vectors)):
                for i, wanted in zip(numbers, stepped(own, numbers)):
                    self.assertTrue(torch.equal(got[i], wanted))
                for i, alone in zip(numbers, stepped(file, numbers)):
                    self.assertTrue(torch.equal(got[i], alone))
            # Matrices that are to be taken for vectors are; some sums are in another order then.
            hidden = stepped(file, [1, 3], as_vectors=True)
            for a, b in zip(hidden, stepped(of_vectors, [1, 3])):
                self.assertClose(a, b, 1e-6 * float(b.abs().max()))
            self.assertGreater((hidden[0] - got[1]).abs().max(), 1e-3)

    def test_all_go_on_exactly_from_a_state_dict(self):
        for options in OF_OTHERS:
            theta = self.theta(**options)
            torch.manual_seed(0)
            params = [torch.randn(shape, requires_grad=True) for shape in ((3, 4), (4,), (0, 3))]
            gradients = random_gradients(params, 6)
            optimizer = LearnedOptimizer(params, theta, num_steps=6)
            trained(optimizer, params, gradients[:3])
            copies = [p.detach().clone().requires_grad_() for p in params]
            other = LearnedOptimizer(copies, theta, num_steps=6)
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            wanted = trained(optimizer, params, gradients[3:])
            for a, b in zip(wanted, trained(other, copies, gradients[3:])):
                self.assertTrue(torch.equal(a, b) and torch.isfinite(a).all())
            self.assertEqual(other.state_dict()["state"][0]["step"], 6)


def idx_file(name, offset):
    """The bytes of an IDX file after its header, gzipped or not."""
    path = pathlib.Path(MNIST) / name
    content = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return numpy.frombuffer(content, numpy.uint8, offset=offset)


def digits(size):
    """The images [10000, size, size] of the MNIST test file, resized, and the labels."""
    images = idx_file("t10k-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = idx_file("t10k-labels-idx1-ubyte", 8)
    resized = torch.nn.functional.interpolate(torch.tensor(images).float(), (size, size),
                                              mode="bilinear", align_corners=False)
    return resized.flatten(1) / 255, torch.tensor(labels).long()


@unittest.skipUnless(MNIST, "LOPT_MNIST_DIR does not name a directory with the MNIST test files")
class RealDigits(TestCase):
    PATH = golden_path("image_mlp_inner_training.safetensors")

    def train(self):
        """The losses of the golden batches, and the params after them."""
        arrays, _ = read_safetensors(self.PATH)
        images, labels = digits(8)
        self.assertClose(images[arrays["index"][0]], arrays["image0"], 1e-6)
        params = tensors(without("param0/", arrays))
        optimizer = LearnedOptimizer.from_file(self.PATH, params.values(),
                                               learned_optimizer={"type": "MLPLOpt"})
        losses = []
        for rows in torch.tensor(arrays["index"]).long():
            optimizer.zero_grad()
            hidden = images[rows] @ params["mlp/linear_0/w"] + params["mlp/linear_0/b"]
            logits = torch.relu(hidden) @ params["mlp/linear_1/w"] + params["mlp/linear_1/b"]
            loss = torch.nn.functional.cross_entropy(logits, labels[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses), params

    def test_inner_training_follows_the_golden_losses_and_ends_at_the_golden_params(self):
        losses, params = self.train()
        arrays, _ = read_safetensors(self.PATH)
        self.assertClose(losses, arrays["loss"], 1e-5)
        for name, p in params.items():
            self.assertClose(p, arrays["param_end/" + name], 1e-5)

    @unittest.skipUnless(PROGRAM, "LOPT_PROGRAM does not name the program")
    def test_inner_training_ends_where_that_of_the_program_does(self):
        out = self.directory / "replay"
        run("eval", "--replay", self.PATH, "--learned-optimizer", '{"type": "MLPLOpt"}',
            "--data-dir", MNIST, "--out", out)
        arrays, _ = read_safetensors(out / "replay.safetensors")
        losses, params = self.train()
        self.assertClose(losses, arrays["loss"], 1e-5)
        for name, p in params.items():
            self.assertClose(p, arrays["param_end/" + name], 1e-5)


class NumSteps(TestCase):
    def test_schedules_take_the_learning_rate_to_zero(self):
        cosine = [(1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)]
        for schedule, factors in (("cosine", cosine), ("linear", [1, 0.75, 0.5, 0.25])):
            theta = self.theta(type="LearnableSGD", schedule=schedule)
            p = torch.ones(2, requires_grad=True)
            optimizer = LearnedOptimizer([p], theta, num_steps=4)
            wanted, lr = 1.0, math.exp(theta.theta["log_lr"].item())
            for factor in factors:
                trained(optimizer, [p], [[torch.full((2,), 2.0)]])
                wanted -= factor * lr * 2
                self.assertClose(p, wanted, 3e-6)  # of up to 9

    def test_every_rule_with_a_schedule_goes_on_from_a_state_dict(self):
        for kind in ("LearnableSGD", "LearnableSGDM", "LearnableAdam", "MLPLOpt"):
            theta = self.theta(type=kind, schedule="cosine")
            gradients = random_gradients([torch.ones(3)], 4)
            p = torch.ones(3, requires_grad=True)
            optimizer = LearnedOptimizer([p], theta, num_steps=4)
            trained(optimizer, [p], gradients[:2])
            q = p.detach().clone().requires_grad_()
            resumed = LearnedOptimizer([q], theta, num_steps=4)
            resumed.load_state_dict(optimizer.state_dict())
            wanted, got = (trained(one, [x], gradients[2:])[0]
                           for one, x in ((optimizer, p), (resumed, q)))
            self.assertTrue(torch.equal(got, wanted))

    def test_a_training_that_is_resumed_to_be_longer_has_its_new_num_steps(self):
        theta = self.theta(type="LearnableSGD", schedule="linear")
        p, q = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], theta, num_steps=2)
        ones = [[torch.ones(2)]]
        trained(optimizer, [p], ones * 2)
        resumed = LearnedOptimizer([q], theta, num_steps=4)
        resumed.load_state_dict(optimizer.state_dict())
        self.assertEqual(resumed.param_groups[0]["num_steps"], 4)
        trained(resumed, [q], ones * 2)  # the steps 2 and 3 of 4
        lr = math.exp(theta.theta["log_lr"].item())
        self.assertClose(q, numpy.full(2, -lr * (0.5 + 0.25)), 1e-6)

    def test_the_saved_num_steps_is_taken_where_none_was_given(self):
        theta = self.theta()
        p = torch.ones(2, requires_grad=True)
        saved = LearnedOptimizer([p], theta, num_steps=7).state_dict()
        other = LearnedOptimizer([p], theta)
        other.load_state_dict(saved)
        self.assertEqual(other.param_groups[0]["num_steps"], 7)

    def test_decays_of_adam_stay_from_0_to_below_1_whatever_theta_is(self):
        path = self.directory / "theta.safetensors"
        for log in (-100, -20, 1e-3, 5, 100):
            logs = {"log_lr": -3, "one_minus_beta1": log, "one_minus_beta2": log,
                    "log_epsilon": -18}
            write_safetensors(
                path, {"theta/" + name: numpy.float32([x]) for name, x in logs.items()},
                {"learned_optimizer": json.dumps({"type": "LearnableAdam"})})
            p = torch.zeros(1, requires_grad=True)
            optimizer = LearnedOptimizer([p], ThetaFile(path))
            q, = trained(optimizer, [p], [[torch.ones(1)]])
            self.assertClose(q, numpy.float32([-numpy.exp(-3)]), 1e-5)

    def test_num_steps_is_any_integer(self):
        theta = self.theta(type="LearnableAdam", schedule="cosine")
        p = torch.ones(2, requires_grad=True)
        for ten in (numpy.int64(10), numpy.uint8(10), torch.tensor(10)):
            optimizer = LearnedOptimizer([p], theta, num_steps=ten)
            trained(optimizer, [p], [[torch.ones(2)]])
            self.assertIs(type(optimizer.param_groups[0]["num_steps"]), int)
        for wrong, kind in (("10", "str"), (10.0, "float"), (True, "bool"),
                            (numpy.float32(10), "float32")):
            with self.assertRaisesRegex(ValueError, r"num_steps must be an integer of at least 1 "
                                        rf'\(int, numpy.int64 ...\), "unknown" or None, got .* type {kind}$'):
                LearnedOptimizer([p], theta, num_steps=wrong)

    def test_a_missing_num_steps_or_a_step_beyond_it_is_an_error_that_changes_nothing(self):
        theta = self.theta(type="LearnableAdam", schedule="cosine")
        p, q = (torch.ones(3, requires_grad=True) for _ in range(2))
        with self.assertRaisesRegex(ValueError, "LearnedOptimizer: LearnableAdam with schedule "
                                    "'cosine' needs num_steps, the number of steps of the "
                                    "training, which is not given"):
            LearnedOptimizer([p], theta)
        for wrong in (0, -3):
            with self.assertRaisesRegex(ValueError, 'num_steps must be at least 1, "unknown" or None, got '
                                        f"{wrong}"):
                LearnedOptimizer([p], theta, num_steps=wrong)
        optimizer = LearnedOptimizer([q, p], theta, num_steps=2)
        gradient = torch.full((3,), 0.5)
        trained(optimizer, [p], [[gradient]] * 2)
        before = p.detach().clone()
        with self.assertRaisesRegex(ValueError, r"parameter 1 of group 0, shape \[3\], has made "
                                    r"all 2 steps of its training \(num_steps\), which LearnableAdam "
                                    "with schedule 'cosine' needs; nothing was changed"):
            trained(optimizer, [q, p], [[gradient, gradient]])
        self.assertTrue(torch.equal(q, torch.ones(3)) and torch.equal(p, before))
        with self.assertRaisesRegex(ValueError, "nothing was changed. A higher num_steps lets it go "
                                    "on$"):
            trained(optimizer, [p], [[gradient]])
        optimizer.param_groups[0]["num_steps"] = 3
        trained(optimizer, [q, p], [[gradient, gradient]])
        self.assertFalse(torch.equal(q, torch.ones(3)) or torch.equal(p, before))

    def test_who_averages_losses_over_parts_of_num_steps_is_not_told_to_raise_it(self):
        p = torch.ones(3, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta(type="CeloAdam"), num_steps=1)
        p.grad = torch.full((3,), 0.5)
        optimizer.step(loss=1.0)
        with self.assertRaisesRegex(ValueError, "which CeloAdam needs; nothing was changed$"):
            optimizer.step(loss=1.0)

    def test_rules_that_do_without_num_steps_go_on_beyond_it(self):
        p = torch.ones(3, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta(), num_steps=1)
        trained(optimizer, [p], [[torch.full((3,), 0.5)]] * 3)
        self.assertEqual(optimizer.state[p]["step"], 3)


class UnknownLength(TestCase):
    """num_steps="unknown"."""

    SGD = {"type": "LearnableSGD", "learning_rate": 0.5}

    def file(self, **options):
        """LearnableSGD of learning rate 0.5, or another optimizer of random weights."""
        theta = self.theta(**(options or self.SGD))
        if not options:
            theta.theta["log_lr"].fill_(math.log(0.5))
        return theta

    def params(self, dtype=torch.float32):
        torch.manual_seed(0)
        return [torch.randn(shape).to(dtype).requires_grad_() for shape in ((3, 4), (4,), ())]

    def test_the_rule_is_told_that_it_has_70_percent_behind_it(self):
        p = torch.zeros((), requires_grad=True)
        theta = self.theta(type="LearnableSGD", schedule="linear")
        theta.theta["log_lr"].fill_(math.log(0.5))
        optimizer = LearnedOptimizer([p], theta, num_steps="unknown")
        at = [0.0] + [trained(optimizer, [p], [[torch.tensor(-1.0)]])[0].item() for _ in range(100)]
        # floor(t / 0.7) + 1, at least 50
        for t, told in ((0, 50), (34, 50), (36, 52), (64, 92), (99, 142)):
            self.assertAlmostEqual(at[t + 1] - at[t], 0.5 * (1 - t / told), delta=2e-6)

    def test_the_average_of_a_line_is_where_its_weights_say(self):
        # Weights of step i in proportion to the binomial coefficient of i + 14 over 15 have the mean
        # (16 n + 1) / 17 of i = 1 ... n.
        p = torch.tensor([3.0, -1.0], requires_grad=True)
        optimizer = LearnedOptimizer([p], self.file(), num_steps="unknown")
        for n in range(1, 41):
            trained(optimizer, [p], [[torch.tensor([1.0, -2.0])]])
            optimizer.eval()
            mean = 0.5 * (16 * n + 1) / 17
            self.assertClose(p, [3 - mean, -1 + 2 * mean], 2e-5)
            optimizer.train()
            self.assertClose(p, [3 - 0.5 * n, -1 + n], 1e-5)

    def test_eval_and_train_exchange_averages_and_parameters_bit_by_bit(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            params = self.params(dtype)
            optimizer = LearnedOptimizer(params, self.file(), num_steps="unknown")
            gradients = random_gradients(params, 5)
            stepped = trained(optimizer, params, gradients[:4])
            optimizer.train()
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(params, stepped)))
            optimizer.eval()
            averages = [p.detach().clone() for p in params]
            self.assertFalse(any(torch.equal(p, wanted) for p, wanted in zip(params, stepped)))
            optimizer.eval()
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(params, averages)))
            called = []
            with self.assertRaisesRegex(RuntimeError, r"averages that eval\(\) shows; call train\(\) "
                                        "before the next step; nothing was changed"):
                optimizer.step(lambda: called.append(1))
            self.assertEqual(called, [])
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(params, averages)))
            optimizer.train()
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(params, stepped)))
            optimizer.eval()
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(params, averages)))

    def test_looking_at_the_average_changes_nothing(self):
        (p,), (q,) = ([torch.ones(5, requires_grad=True)] for _ in range(2))
        one, other = (LearnedOptimizer([x], self.file(), num_steps="unknown") for x in (p, q))
        for gradients in random_gradients([p], 6):
            trained(one, [p], [gradients])
            one.eval()
            one.train()
            trained(other, [q], [gradients])
        self.assertTrue(torch.equal(p, q))
        one.eval()
        other.eval()
        self.assertTrue(torch.equal(p, q))

    def test_only_parameters_of_groups_of_unknown_length_have_averages(self):
        known, unknown, still = (torch.ones(2, requires_grad=True) for _ in range(3))
        theta = self.theta(type="LearnableSGD", schedule="linear")
        optimizer = LearnedOptimizer(
            [{"params": [known], "num_steps": 9}, {"params": [unknown, still]}], theta,
            num_steps="unknown")
        before = trained(optimizer, [known, unknown], [[torch.ones(2)] * 2] * 4)
        optimizer.eval()
        self.assertTrue(torch.equal(known, before[0]) and torch.equal(still, torch.ones(2)))
        self.assertFalse(torch.equal(unknown, before[1]))
        plain = LearnedOptimizer([known], theta, num_steps=9)
        plain.eval()
        trained(plain, [known], [[torch.ones(2)]])  # no error: there is nothing to put back
        plain.train()

    def test_a_state_dict_of_either_mode_goes_on_exactly(self):
        theta = self.file(type="MLPLOpt", hidden_size=4, schedule="cosine")
        for dtype in (torch.float32, torch.bfloat16):
            for judged in (False, True):
                params = self.params(dtype)
                optimizer = LearnedOptimizer(params, theta, num_steps="unknown")
                gradients = random_gradients(params, 8)
                trained(optimizer, params, gradients[:5])
                if judged:
                    optimizer.eval()
                file = io.BytesIO()
                torch.save(optimizer.state_dict(), file)
                copies = [p.detach().clone().requires_grad_() for p in params]
                other = LearnedOptimizer(copies, theta, num_steps="unknown")
                other.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
                if judged:
                    with self.assertRaisesRegex(RuntimeError, r"call train\(\)"):
                        other.step()
                ends = []
                for one, ones in ((optimizer, params), (other, copies)):
                    one.train()
                    end = trained(one, ones, gradients[5:])
                    one.eval()
                    ends.append(end + [p.detach().clone() for p in ones])
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(*ends)))

    def test_a_copy_goes_on_exactly(self):
        params = self.params()
        optimizer = LearnedOptimizer(params, self.file(), num_steps="unknown")
        gradients = random_gradients(params, 5)
        trained(optimizer, params, gradients[:3])
        copies, other = copy.deepcopy((params, optimizer))
        for one, ones in ((optimizer, params), (other, copies)):
            trained(one, ones, gradients[3:])
            one.eval()
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(params, copies)))
        other.train()
        self.assertFalse(any(torch.equal(a, b) for a, b in zip(params, copies)))

    def test_a_training_may_lose_its_known_length_on_the_way(self):
        p = torch.zeros(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.file(), num_steps=3)
        trained(optimizer, [p], [[-torch.ones(2)]] * 3)
        resumed = LearnedOptimizer([p], self.file(), num_steps="unknown")
        resumed.load_state_dict(optimizer.state_dict())
        trained(resumed, [p], [[-torch.ones(2)]])
        resumed.eval()
        self.assertClose(p, [2.0, 2.0], 1e-6)  # the average begins with the first step of it
        resumed.train()
        trained(resumed, [p], [[-torch.ones(2)]])
        resumed.eval()
        self.assertClose(p, [2 + 0.5 * 16 / 20] * 2, 1e-6)

    def test_a_checkpoint_that_has_lost_the_stepped_parameters_is_an_error(self):
        p = torch.ones(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.file(), num_steps="unknown")
        trained(optimizer, [p], [[torch.ones(2)]])
        optimizer.eval()
        saved = optimizer.state_dict()
        del saved["state"][0]["stepped"]
        other = LearnedOptimizer([p], self.file(), num_steps="unknown")
        with self.assertRaisesRegex(ValueError, r"between eval\(\) and train\(\) and has lost the "
                                    "parameters that are stepped"):
            other.load_state_dict(saved)
        optimizer.train()
        other.load_state_dict(optimizer.state_dict())

    def test_averages_end_with_the_phase_of_unknown_length(self):
        p = torch.zeros(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.file(), num_steps="unknown")
        trained(optimizer, [p], [[-torch.ones(2)]] * 5)
        optimizer.param_groups[0]["num_steps"] = 100
        trained(optimizer, [p], [[-torch.ones(2)]] * 5)
        optimizer.param_groups[0]["num_steps"] = "unknown"
        optimizer.eval()
        self.assertClose(p, [5.0, 5.0], 1e-6)

    def test_an_optimizer_whose_state_is_taken_away_begins_again(self):
        p = torch.zeros(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta(type="LearnableSGDM"), num_steps="unknown")
        trained(optimizer, [p], [[-torch.ones(2)]] * 5)
        optimizer.state.clear()
        self.assertEqual(optimizer.state_dict()["state"], {})
        before = p.detach().clone()
        optimizer.eval()
        self.assertTrue(torch.equal(p, before))
        trained(optimizer, [p], [[-torch.ones(2)]])
        after = p.detach().clone()
        optimizer.eval()
        self.assertTrue(torch.equal(p, after))

    def test_another_shape_is_an_error_that_changes_nothing(self):
        p = torch.zeros(2, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.file(), num_steps="unknown")
        trained(optimizer, [p], [[-torch.ones(2)]])
        average = optimizer.averages[p].clone()
        p.data = torch.zeros(3)
        with self.assertRaisesRegex(RuntimeError, "had another shape at its last update; nothing was"):
            trained(optimizer, [p], [[-torch.ones(3)]])
        self.assertTrue(torch.equal(p, torch.zeros(3)))
        self.assertTrue(torch.equal(optimizer.averages[p], average))

    def test_a_parameter_that_was_replaced_is_freed(self):
        for num_steps in (None, "unknown"):
            (p,) = params = [torch.ones(4, requires_grad=True)]
            optimizer = LearnedOptimizer(params, self.theta(), num_steps=num_steps)
            gone = []
            gradients = random_gradients(params, 6)
            for step in gradients[:5]:
                trained(optimizer, params, [step])
                gone.append(weakref.ref(p))
                del optimizer.state[p]
                (p,) = params = [p.detach().clone().requires_grad_()]
                optimizer.param_groups[0]["params"][0] = p
            (wanted,) = copies = [p.detach().clone().requires_grad_()]
            for one, ones in ((optimizer, params), (LearnedOptimizer(
                    copies, self.theta(), num_steps=num_steps), copies)):
                trained(one, ones, gradients[5:])
                one.eval()
            gc.collect()
            self.assertEqual([ref() for ref in gone], [None] * 5)
            self.assertTrue(torch.equal(p, wanted))

    def test_what_is_wrong_is_an_error(self):
        p = torch.ones(2, requires_grad=True)
        with self.assertRaisesRegex(ValueError, "\"unknown\" or None, got 'never' of type str"):
            LearnedOptimizer([p], self.file(), num_steps="never")
        optimizer = LearnedOptimizer([p], self.file(), num_steps="unknown")
        trained(optimizer, [p], [[torch.ones(2)]])
        optimizer.eval()
        for name in ("average", "stepped"):
            for wrong in (torch.ones(3), torch.ones(2, dtype=torch.int32), "text"):
                saved = copy.deepcopy(optimizer.state_dict())
                saved["state"][0][name] = wrong
                other = LearnedOptimizer([p], self.file(), num_steps="unknown")
                with self.assertRaisesRegex(ValueError, "the state of parameter 0, shape \\[2\\], must "
                                            f"have a tensor {name} of this shape, got"):
                    other.load_state_dict(saved)
                self.assertEqual(other.state_dict()["state"], {})

    def test_a_file_that_was_trained_for_unknown_lengths_needs_no_num_steps(self):
        inner = {"type": "LearnableAdam", "schedule": "cosine"}
        weights = [lopt_optimizer.Weights(one, self.theta(**inner).theta, None, "test")
                   for one in (inner, {"type": "UnknownLength", "optimizer": inner})]
        self.assertEqual([one.unknown_length for one in weights], [False, True])
        ends = []
        for one, told in zip(weights, ({"num_steps": "unknown"}, {})):
            params = self.params()
            optimizer = lopt_optimizer.LearnedOptimizer(params, one, **told)
            trained(optimizer, params, random_gradients(params, 4))
            optimizer.eval()
            ends.append(params)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*ends)))
        with self.assertRaisesRegex(ValueError, r"unknown length \(UnknownLength\): leave num_steps "
                                    "out, got 7"):
            lopt_optimizer.LearnedOptimizer(self.params(), weights[1], num_steps=7)
        for wrong in ({"type": "UnknownLength"}, {"type": "UnknownLength", "optimizer": inner,
                                                  "average": 3}):
            with self.assertRaisesRegex(ValueError, "test: UnknownLength must have the option "
                                        "optimizer alone, got"):
                lopt_optimizer.Weights(wrong, {}, None, "test")

    def test_optimizers_that_average_losses_over_parts_of_the_length_must_know_it(self):
        why = (r"; Celo \(unless 'scheduled' is false\), CeloAdam and Sinv6 average losses over parts "
               "of the training's length and must know it$")
        for name in ("Celo", "CeloAdam", "Sinv6"):
            celo = {"type": name, "lstm_size": 4}
            for options in (celo, {"type": "OrthogonalSteps", "optimizer": celo},
                            {"type": "LearnedScheduler", "optimizer": celo}):
                theta = self.theta(**options)
                with self.assertRaisesRegex(ValueError, "^LearnedOptimizer: num_steps must be the "
                                            f'number of steps of the training, got "unknown"{why}'):
                    LearnedOptimizer(self.params(), theta, num_steps="unknown")
                with self.assertRaisesRegex(ValueError, "needs num_steps, the number of steps of the "
                                            "training, which is not given$"):
                    LearnedOptimizer(self.params(), theta)
                with self.assertRaisesRegex(ValueError, "^test: UnknownLength: wanted an optimizer "
                                            f"that needs no loss{why}"):
                    lopt_optimizer.Weights({"type": "UnknownLength", "optimizer": options},
                                           theta.theta, None, "test")
        first_phase = {"type": "Celo", "lstm_size": 4, "scheduled": False}
        params = self.params()
        trained(LearnedOptimizer(params, self.theta(**first_phase), num_steps="unknown"), params,
                random_gradients(params, 2))


class Optimizer(TestCase):
    def model(self, dtype=torch.float32):
        torch.manual_seed(0)
        shapes = [(3, 4), (4,), (), (2, 1, 3, 2), (1,), (0, 3)]
        return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]

    def test_state_dict_goes_on_exactly(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype):
                theta, params = self.theta(), self.model(dtype)
                gradients = random_gradients(params, 6)
                optimizer = LearnedOptimizer(params, theta)
                trained(optimizer, params, gradients[:3])
                file = io.BytesIO()
                torch.save(optimizer.state_dict(), file)
                copies = [p.detach().clone().requires_grad_() for p in params]
                other = LearnedOptimizer(copies, theta)
                other.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
                wanted = trained(optimizer, params, gradients[3:])
                got = trained(other, copies, gradients[3:])
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(wanted, got)))
                self.assertEqual(other.state[copies[0]]["step"], 6)
                state = other.state_dict()["state"][0]
                self.assertEqual(state["momenta"].dtype, torch.float32)

    def test_state_and_groups_alone_go_on_exactly_as_distributed_checkpoints_keep_them(self):
        theta = self.theta()
        params, others = self.model(), self.model()
        optimizer, other = LearnedOptimizer(params, theta), LearnedOptimizer(others, theta)
        gradients = random_gradients(params, 4)
        trained(optimizer, params, gradients[:2])
        trained(other, others, gradients[:2])
        saved = copy.deepcopy(optimizer.state_dict())
        kept = {name: saved[name] for name in ("state", "param_groups")}
        other.load_state_dict(kept)
        for one, wanted in zip(trained(other, others, gradients[2:]),
                               trained(optimizer, params, gradients[2:])):
            self.assertTrue(torch.equal(one, wanted))
        self.assertNotIn("theta", other.param_groups[0])
        with self.assertRaisesRegex(ValueError, "saved with another theta"):
            LearnedOptimizer(self.model(), self.theta(seed=1)).load_state_dict(kept)

    def test_distributed_checkpoints_keep_all_of_the_optimizer(self):
        try:
            from torch.distributed.checkpoint import state_dict as distributed
        except ImportError:
            self.skipTest(f"PyTorch {torch.__version__} has no distributed.checkpoint.state_dict")
        theta = self.theta()
        models, optimizers = [], []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(torch.nn.Linear(3, 2))
            optimizers.append(LearnedOptimizer(models[-1].parameters(), theta))

        def train(i, seed):
            params = list(models[i].parameters())
            return trained(optimizers[i], params, random_gradients(params, 2, seed))

        for i in range(2):
            train(i, 1)
        models[1].zero_grad(set_to_none=True)
        optimizers[1] = LearnedOptimizer(models[1].parameters(), theta)  # that of a new process
        kept = copy.deepcopy(distributed.get_optimizer_state_dict(models[0], optimizers[0]))
        of_model = copy.deepcopy(models[1].state_dict())
        distributed.set_optimizer_state_dict(models[1], optimizers[1], optim_state_dict=kept)
        # Before PyTorch 2.4 it makes a fresh optimizer's state by a step that moves parameters.
        models[1].load_state_dict(of_model)
        for one, wanted in zip(train(1, 2), train(0, 2)):
            self.assertTrue(torch.equal(one, wanted))
        models[1].zero_grad(set_to_none=True)
        other = LearnedOptimizer(models[1].parameters(), self.theta(seed=1))
        with self.assertRaisesRegex(ValueError, "saved with another theta"):
            distributed.set_optimizer_state_dict(models[1], other, optim_state_dict=kept)

    def test_a_state_dict_from_before_there_was_an_option_has_its_default(self):
        theta, params = self.theta(), self.model()
        optimizer = LearnedOptimizer(params, theta)
        trained(optimizer, params, random_gradients(params, 2))
        saved = optimizer.state_dict()
        del saved["param_groups"][0]["num_steps"]
        saved["learned_optimizer"] = {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1}
        other = LearnedOptimizer(self.model(), theta)
        other.load_state_dict(saved)
        self.assertIsNone(other.param_groups[0]["num_steps"])
        trained(other, other.param_groups[0]["params"], random_gradients(params, 1))
        self.assertEqual(other.state[other.param_groups[0]["params"][0]]["step"], 3)

    def test_loading_copies_the_state(self):
        theta, params = self.theta(), self.model()
        optimizer = LearnedOptimizer(params, theta)
        trained(optimizer, params, random_gradients(params, 1))
        saved = optimizer.state_dict()
        before = copy.deepcopy(saved)
        other = LearnedOptimizer(self.model(), theta)
        other.load_state_dict(saved)
        trained(other, other.param_groups[0]["params"], random_gradients(params, 1))
        for name, value in before["state"][0].items():
            self.assertTrue(numpy.array_equal(saved["state"][0][name], value))

    def test_a_copy_of_the_optimizer_goes_on_exactly(self):
        params = self.model()
        optimizer = LearnedOptimizer(params, self.theta())
        gradients = random_gradients(params, 4)
        trained(optimizer, params, gradients[:2])
        copies, other = copy.deepcopy((params, optimizer))
        wanted = trained(optimizer, params, gradients[2:])
        got = trained(other, copies, gradients[2:])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(wanted, got)))

    def test_lr_is_a_factor_of_the_step_and_schedulers_set_it(self):
        theta = self.theta()
        start = torch.tensor([1.0, 2.0, -3.0])
        gradient = torch.tensor([0.5, -1.0, 0.1])

        def step_with(**options):
            p = start.clone().requires_grad_()
            (after,) = trained(LearnedOptimizer([p], theta, **options), [p], [[gradient]])
            return after - start

        whole = step_with()
        self.assertGreater(whole.abs().min(), 1e-3)
        self.assertClose(step_with(lr=0.5), whole / 2, 1e-6)
        part = 0.1 * whole.square().mean().sqrt() / 0.2
        self.assertClose(step_with(lr=0.5, weight_decay=0.1), (whole - part * start) / 2, 1e-6)

        p = start.clone().requires_grad_()
        optimizer = LearnedOptimizer([p], theta)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for wanted in (1.0, 0.5, 0.0):
                self.assertEqual(optimizer.param_groups[0]["lr"], wanted)
                before = p.detach().clone()
                trained(optimizer, [p], [[gradient]])
                self.assertEqual(torch.equal(p, before), wanted == 0)
                scheduler.step()
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(1.0)

    def trained_classifier(self, make):
        """The norms of the weights of a classifier of two layers after 200 steps."""
        generator = torch.Generator().manual_seed(1)
        centres = torch.randn(4, 16, generator=generator)
        labels = torch.randint(0, 4, (512,), generator=generator)
        inputs = centres[labels] + torch.randn(512, 16, generator=generator)
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(),
                                    torch.nn.Linear(32, 4))
        weights = [model[0].weight, model[2].weight]
        optimizer = make(weights)
        for _ in range(200):
            rows = torch.randint(0, 512, (32,), generator=generator)
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.stack([weight.detach().norm() for weight in weights])

    def test_weight_decay_means_about_what_it_means_in_adamw(self):
        path = self.directory / "theta.safetensors"
        for lr in (1e-3, 3e-3):
            logs = numpy.log([lr, 0.1, 1e-3, 1e-8]).astype(numpy.float32)
            names = ("log_lr", "one_minus_beta1", "one_minus_beta2", "log_epsilon")
            write_safetensors(
                path, {"theta/" + name: log.reshape(1) for name, log in zip(names, logs)},
                {"learned_optimizer": json.dumps({"type": "LearnableAdam", "epsilon_root": 0.0})})
            theta = ThetaFile(path)

            def lost(make):
                """The logarithms of the parts of the norms that weight decay took."""
                return (self.trained_classifier(lambda params: make(params, 0.0)) /
                        self.trained_classifier(lambda params: make(params, 0.1))).log()

            theirs = lost(lambda params, decay: torch.optim.AdamW(params, lr, weight_decay=decay))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it takes much
                ours = lost(lambda params, decay: LearnedOptimizer(params, theta,
                                                                   weight_decay=decay))
            # As much, up to the factor by which the sizes of Adam's steps vary in a training.
            ratios = ours / theirs
            self.assertTrue((ratios > 1 / 3).all() and (ratios < 3).all(), ratios)

    def test_a_weight_decay_that_takes_much_in_a_step_is_warned_of_once(self):
        theta = self.theta(type="LearnableSGD")
        lr = math.exp(theta.theta["log_lr"].item())
        for weight_decay, warned in ((1e-3, True), (1e-5, False)):
            params = [torch.ones(2, requires_grad=True), torch.ones(3, 2, requires_grad=True)]
            optimizer = LearnedOptimizer(params, theta, weight_decay=weight_decay)
            gradients = [torch.full((2,), 0.1 / lr), torch.full((3, 2), 1 / lr)]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                trained(optimizer, params, [gradients] * 2)
            self.assertEqual([str(warning.message) for warning in caught], [
                "LearnedOptimizer: weight_decay 0.001 takes 0.5 % of parameter 1 of group 0, shape "
                "[3, 2], in a step; that is more than 0.1 %, which few trainings bear"
            ] if warned else [])

    def test_one_cycle_schedulers_work_and_their_momentum_is_said_to_have_no_effect(self):
        gradients = [[torch.tensor([0.5, -1.0, 0.1])]] * 3

        def train(**options):
            p = torch.ones(3, requires_grad=True)
            optimizer = LearnedOptimizer([p], self.theta())
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5,
                                                            **options)
            rates = []
            for gradient in gradients:
                trained(optimizer, [p], [gradient])
                rates.append(optimizer.param_groups[0]["lr"])
                scheduler.step()
            return p, rates

        with self.assertWarnsRegex(UserWarning, "momentum of a group has no effect") as caught:
            p, rates = train()
        self.assertEqual(len(caught.warnings), 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            without_momentum, wanted = train(cycle_momentum=False)
        self.assertEqual(rates, wanted)
        self.assertEqual(len(set(rates)), 3)
        self.assertTrue(torch.equal(p, without_momentum))

    def test_an_option_that_is_set_to_something_wrong_later_is_an_error(self):
        p = torch.ones(3, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta())
        for name, value, pattern in (("lr", -0.5, "lr must be a number from 0 .* got -0.5"),
                                     ("lr", "1", "lr must be a number from 0 .* got '1'"),
                                     ("lr", 1e39, r"the largest of float32, got 1e\+39"),
                                     ("lr", torch.tensor(1e39).double(), "lr must be a number"),
                                     ("weight_decay", 1e39, r"weight_decay must be .* got 1e\+39"),
                                     ("lr", torch.ones(2), r"lr must be a .* got tensor\(\[1"),
                                     ("weight_decay", math.nan, "weight_decay must be .* got nan"),
                                     ("non_finite", "ignore", "one of 'error', 'skip', got 'ignore'"),
                                     ("skip_zero_gradients", 2, "one of False, True, got 2"),
                                     ("num_steps", 0, "num_steps must be .* or None, got 0")):
            before = optimizer.param_groups[0][name]
            optimizer.param_groups[0][name] = value
            with self.assertRaisesRegex(ValueError, pattern):
                trained(optimizer, [p], [[torch.ones(3)]])
            optimizer.param_groups[0][name] = before
            with self.assertRaisesRegex(ValueError, pattern):
                LearnedOptimizer([p], self.theta(), **{name: value})
        self.assertTrue(torch.equal(p, torch.ones(3)))
        self.assertEqual(len(optimizer.state), 0)

    def test_a_training_beyond_the_trained_horizon_is_warned_of_once(self):
        p = torch.ones(3, requires_grad=True)
        theta = self.theta(metadata={"trained_horizon": "3"})
        self.assertEqual(theta.trained_horizon, 3)
        optimizer = LearnedOptimizer([p], theta)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained(optimizer, [p], [[torch.ones(3)]] * 3)
        with self.assertWarnsRegex(UserWarning, "step 4 is beyond the 3 steps that") as caught:
            trained(optimizer, [p], [[torch.ones(3)]] * 3)
        self.assertEqual(len(caught.warnings), 1)
        self.assertEqual(caught.filename, __file__)
        self.assertIsNone(self.theta().trained_horizon)
        with self.assertRaisesRegex(ValueError, "metadata trained_horizon must be a whole number"):
            self.theta(metadata={"trained_horizon": "long"})

    def ranged(self, **changed):
        """A ThetaFile of trainings of 10 to 80 steps of models of 5 to 6 numbers."""
        numbers = {"shortest_training": 10, "longest_training": 80, "smallest_batch": 0,
                   "largest_batch": 0, "fewest_params": 5, "most_params": 6, "largest_tensor": 3,
                   **changed}
        return self.theta(metadata={"trained_horizon": str(numbers["longest_training"]),
                                    "trained_range": json.dumps(numbers)})

    def test_a_training_unlike_all_before_is_warned_of_once(self):
        def steps(sizes, theta, **options):
            """The warnings of three steps, by file."""
            params = [torch.ones(size, requires_grad=True) for size in sizes]
            frozen = torch.ones(1000, requires_grad=True)  # which no step changes
            optimizer = LearnedOptimizer([*params, frozen], theta, **options)
            optimizer.step()  # without gradients
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    trained(optimizer, params, [[torch.ones_like(p) for p in params]])
                    optimizer = copy.deepcopy(optimizer)  # in which it has warned, too
                    params = [p for p in optimizer.param_groups[0]["params"] if len(p) < 1000]
            self.assertTrue(all(one.filename == __file__ for one in caught))
            return [str(one.message) for one in caught]

        theta = self.ranged()
        self.assertEqual(theta.trained_range["most_params"], 6)
        for sizes, options in (([30, 30], {}), ([30], {"num_steps": 5}), ([1], {"num_steps": 80})):
            self.assertEqual(steps(sizes, theta, **options), [])
        begin = "LearnedOptimizer: this training is unlike all that the optimizer was trained on: "
        end = ". Try a smaller and a larger lr, and compare with Adam"
        for sizes, options, wanted in (
                ([3], {"num_steps": 4}, "num_steps 4 (there at least 10)"),
                ([1], {"num_steps": 900}, "num_steps 900 (there at most 80)"),
                ([30, 30, 1], {}, "61 parameters (there at most 6)"),
                ([31], {"num_steps": 10}, "a tensor of 31 numbers (there at most 3)"),
                ([900, 900], {"num_steps": 4},
                 "num_steps 4 (there at least 10), 1,800 parameters (there at most 6), a tensor of "
                 "900 numbers (there at most 3)")):
            self.assertEqual(steps(sizes, theta, **options), [begin + wanted + end])
        batches = self.ranged(smallest_batch=8, largest_batch=16)
        for batch_size, wanted in ((None, []), (numpy.int64(4), []), (160, []),
                                   (3, ["batches of 3 (there at least 8)"]),
                                   (1610, ["batches of 1,610 (there at most 16)"])):
            self.assertEqual(steps([3], batches, batch_size=batch_size),
                             [begin + one + end for one in wanted])
        self.assertEqual(steps([3], theta, batch_size=1), [])
        for wrong in (0, -1, 2.0, True, "8", torch.tensor(1.5)):
            with self.assertRaisesRegex(ValueError, "batch_size must be an integer of at least 1"):
                LearnedOptimizer([torch.ones(3)], theta, batch_size=wrong)
        with self.assertRaisesRegex(ValueError, "batch_size is of the whole optimizer"):
            LearnedOptimizer([{"params": [torch.ones(3)], "batch_size": 1}], theta)
        # A training that is too long is warned of at once, or where that was not told.
        short = self.ranged(shortest_training=1, longest_training=2)
        for theta in (short, self.theta(metadata={"trained_horizon": "2"})):
            self.assertEqual(steps([3], theta, num_steps=3),
                             [begin + "num_steps 3 (there at most 2)" + end])
            for options in ({}, {"num_steps": "unknown"}, {"num_steps": 2}):
                self.assertEqual(steps([3], theta, **options), [
                    "LearnedOptimizer: step 3 is beyond the 2 steps that this optimizer was "
                    "trained for; it may lose what it has gained"])
        unknown = self.ranged(shortest_training=0, fewest_params=0, most_params=0, largest_tensor=0)
        for older in (unknown, self.theta()):
            self.assertEqual(steps([900], older, num_steps=4), [])
        self.assertIsNone(self.theta().trained_range)

    def test_parameters_that_fsdp_has_flattened_are_warned_of_once_where_shapes_matter(self):
        def params(*shape):
            p = torch.ones(shape, requires_grad=True)
            p._fsdp_flattened = True
            return [p]

        sees_shapes, sees_none = self.theta(type="AdafacMLPLOpt"), self.theta()
        with self.assertWarns(UserWarning) as caught:
            optimizer = LearnedOptimizer(params(6), sees_shapes)
        self.assertEqual(str(caught.warning),
                         "LearnedOptimizer: FSDP has flattened parameters, whose shapes this "
                         "optimizer needs; use DistributedDataParallel")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.add_param_group({"params": params(5)})
            LearnedOptimizer(params(6), sees_shapes, as_vectors=True)
            LearnedOptimizer(params(2, 3) + params(2), sees_shapes)
            LearnedOptimizer([torch.ones(6, requires_grad=True)], sees_shapes)
            LearnedOptimizer(params(6), sees_none)

    def test_zero_gradients_move_parameters_unless_they_are_skipped(self):
        rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(6))
        used = torch.ones(5, 3)
        used[1:4] = 0
        gradients = [[torch.full((5, 3), 0.3)]] + [[0.3 * used]] * 20

        def train(**options):
            p = rows.clone().requires_grad_()
            optimizer = LearnedOptimizer([p], self.theta(), **options)
            first = trained(optimizer, [p], gradients[:1])[0]
            return (first, trained(optimizer, [p], gradients[1:])[0],
                    optimizer.state_dict()["state"][0])

        first, last, state = train()
        self.assertGreater((last - first)[1:4].abs().min(), 1e-3)
        for options in ({}, {"weight_decay": 0.1, "lr": 0.5}):
            first, last, skipped = train(skip_zero_gradients=True, **options)
            self.assertTrue(torch.equal(last[1:4], first[1:4]))
            self.assertGreater((last - first)[[0, 4]].abs().min(), 1e-3)
        self.assertTrue(torch.equal(skipped["momenta"], state["momenta"]))

    def test_groups_have_their_own_options(self):
        params = self.model()[:2]
        optimizer = LearnedOptimizer([{"params": [params[0]], "lr": 0.0}], self.theta())
        optimizer.add_param_group({"params": [params[1]]})
        before = [p.detach().clone() for p in params]
        after = trained(optimizer, params, random_gradients(params, 2))
        self.assertTrue(torch.equal(after[0], before[0]))
        self.assertFalse(torch.equal(after[1], before[1]))
        self.assertEqual(optimizer.state[params[0]]["step"], 2)

    def test_shapes_and_strides_do_not_matter(self):
        theta = self.theta()
        values = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
        flat = values.reshape(12).clone().requires_grad_()
        (wanted,) = trained(LearnedOptimizer([flat], theta), [flat], [[gradient.reshape(12)]] * 3)
        for make in (lambda x: x.clone(), lambda x: x.t().contiguous().t(),
                     lambda x: torch.stack([x, x])[0]):
            p = make(values).requires_grad_()
            (got,) = trained(LearnedOptimizer([p], theta), [p], [[make(gradient)]] * 3)
            self.assertTrue(torch.equal(got.reshape(12), wanted))
        scalar = torch.tensor(0.5, requires_grad=True)
        one = torch.tensor([0.5], requires_grad=True)
        after = [trained(LearnedOptimizer([p], theta), [p], [[torch.full_like(p, 0.3)]] * 3)[0]
                 for p in (scalar, one)]
        self.assertTrue(torch.equal(after[0].reshape(1), after[1]))
        self.assertNotEqual(float(after[0]), 0.5)

    def test_a_large_tensor_is_treated_as_one(self):
        theta = self.theta()
        generator = torch.Generator().manual_seed(4)
        n = (1 << 14) + 5
        start, gradient = torch.randn(2, n, generator=generator)
        p = start.clone().requires_grad_()
        (wanted,) = trained(LearnedOptimizer([p], theta), [p], [[gradient]])
        rule = theta.bind(torch.device("cpu"))
        state = lopt_optimizer._fresh_state(theta, start)
        with mock.patch.object(lopt_optimizer, "_chunks", lambda x: [(0, n)]):
            (step,) = rule.steps([start], [gradient], [state], 0, None, None)
        self.assertClose(start - step, wanted, 3e-6)

    def test_autocast_around_steps_does_not_change_them(self):
        for options in ({}, {"type": "AdafacMLPLOpt"}, orthogonal(SGDM)):
            with self.subTest(options=options):
                theta, params = self.theta(**options), self.model()
                copies = [p.detach().clone().requires_grad_() for p in params]
                gradients = random_gradients(params, 3)
                wanted = trained(LearnedOptimizer(params, theta, num_steps=3), params, gradients)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    got = trained(LearnedOptimizer(copies, theta, num_steps=3), copies, gradients)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(wanted, got)))

    def test_products_are_not_rounded_to_tf32_in_a_step_and_the_setting_is_as_before_after_it(self):
        matmuls = lopt_optimizer._MATMULS

        def precisions():
            return [matmul.fp32_precision for matmul in matmuls]

        def addmm(*args, original=torch.addmm):
            found.append(precisions())
            if fails:
                raise KeyError("in a step")
            return original(*args)

        self.addCleanup(torch.set_float32_matmul_precision, "highest")
        ends = []
        for told in ("highest", "high", "medium", *matmuls):  # all, or one
            torch.set_float32_matmul_precision(told if isinstance(told, str) else "highest")
            if not isinstance(told, str):
                told.fp32_precision = "tf32"
            before, found, fails = precisions(), [], False
            self.assertEqual(told == "highest", before == ["ieee"] * len(matmuls))
            params = self.model(torch.float64)
            optimizer = LearnedOptimizer(params, self.theta())
            with mock.patch.object(torch, "addmm", addmm):
                ends.append(trained(optimizer, params, random_gradients(params, 2)))
                self.assertEqual(precisions(), before)
                fails = True
                with self.assertRaisesRegex(KeyError, "in a step"):
                    optimizer.step()
            self.assertEqual(precisions(), before)
            self.assertGreater(len(found), 2)
            self.assertEqual({word for words in found for word in words}, {"ieee"})
            self.assertTrue(all(torch.equal(p, wanted) for p, wanted in zip(ends[-1], ends[0])))

    @unittest.skipUnless(len(lopt_optimizer._MATMULS) > 1, "PyTorch before 2.9 has one setting")
    def test_products_whose_precision_is_that_of_all_backends_have_theirs_again_after_a_step(self):
        self.addCleanup(torch.set_float32_matmul_precision, "highest")
        for matmul in lopt_optimizer._MATMULS:
            matmul.fp32_precision = "none"
        self.addCleanup(setattr, torch.backends, "fp32_precision", torch.backends.fp32_precision)
        torch.backends.fp32_precision = "tf32"
        params = self.model(torch.float64)
        trained(LearnedOptimizer(params, self.theta()), params, random_gradients(params, 1))
        for precision in ("tf32", "ieee"):
            torch.backends.fp32_precision = precision
            self.assertEqual([matmul.fp32_precision for matmul in lopt_optimizer._MATMULS],
                             [precision] * len(lopt_optimizer._MATMULS))

    def test_float64_steps_are_those_of_float32_added_in_float64(self):
        theta = self.theta()
        start = torch.tensor([1.0, 1e-3, -2.0])
        gradients = [[torch.tensor([0.25, 0.5, -1.0])]] * 3
        single, double = (start.clone().to(t).requires_grad_()
                          for t in (torch.float32, torch.float64))
        (a,) = trained(LearnedOptimizer([single], theta), [single], gradients)
        (b,) = trained(LearnedOptimizer([double], theta), [double],
                       [[g.double() for g in step] for step in gradients])
        self.assertEqual(b.dtype, torch.float64)
        self.assertClose(a, b, 1e-6)
        tiny = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        optimizer = LearnedOptimizer([tiny], theta, lr=1e-12)
        trained(optimizer, [tiny], [[torch.ones(1, dtype=torch.float64)]])
        self.assertGreater(abs(tiny.item() - 1), 0)
        self.assertLess(abs(tiny.item() - 1), 1e-9)

    def test_none_gradients_leave_a_parameter_and_its_count(self):
        theta = self.theta()
        first, second = (torch.ones(3, requires_grad=True) for _ in range(2))
        optimizer = LearnedOptimizer([first, second], theta)
        gradient = torch.tensor([0.1, 0.2, -0.3])
        trained(optimizer, [first, second], [[gradient, None]] * 2)
        self.assertTrue(torch.equal(second, torch.ones(3)))
        self.assertNotIn(second, optimizer.state)
        trained(optimizer, [first, second], [[None, gradient]] * 2)
        self.assertTrue(torch.equal(first, second))
        self.assertEqual([optimizer.state[p]["step"] for p in (first, second)], [2, 2])

    def test_a_closure_computes_gradients_and_its_loss_is_returned(self):
        p = torch.ones(3, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta())

        def closure():
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        self.assertEqual(optimizer.step(closure).item(), 3)
        self.assertFalse(torch.equal(p, torch.ones(3)))
        self.assertFalse(p.grad.requires_grad)
        self.assertIsNone(optimizer.step())

    def test_a_gradient_that_is_not_finite_is_an_error_and_changes_nothing(self):
        params = [torch.ones(3, requires_grad=True), torch.ones(2, dtype=torch.float64,
                                                               requires_grad=True)]
        optimizer = LearnedOptimizer(params, self.theta())
        for bad in (float("nan"), float("inf"), -1e300):  # the last is infinite in float32
            with self.assertRaisesRegex(RuntimeError, r"parameter 1 of group 0, shape \[2\], has a "
                                        "gradient that is not finite; nothing was changed"):
                trained(optimizer, params, [[torch.ones(3), torch.tensor([1, bad]).double()]])
        self.assertTrue(all(torch.equal(p, torch.ones_like(p)) for p in params))
        self.assertEqual(len(optimizer.state), 0)

    def test_a_gradient_that_is_not_finite_can_be_skipped_and_is_counted(self):
        params = [torch.ones(3, requires_grad=True) for _ in range(2)]
        optimizer = LearnedOptimizer(params, self.theta(), non_finite="skip")
        good, bad = torch.tensor([0.5, 1.0, 1.0]), torch.tensor([1.0, float("nan"), 1.0])
        trained(optimizer, params, [[good, good], [good, bad], [good, good]])
        self.assertEqual(optimizer.skipped, 1)
        self.assertEqual([optimizer.state[p]["step"] for p in params], [3, 2])
        twice = torch.ones(3, requires_grad=True)
        trained(LearnedOptimizer([twice], self.theta()), [twice], [[good]] * 2)
        self.assertTrue(torch.equal(params[1], twice))

    def test_wrong_parameters_gradients_and_options_are_errors(self):
        theta = self.theta()
        with self.assertRaisesRegex(TypeError, "real floating-point type, got torch.complex64 of "
                                    r"shape \[2\]"):
            LearnedOptimizer([torch.zeros(2, dtype=torch.complex64, requires_grad=True)], theta)
        with self.assertRaisesRegex(TypeError, "got torch.int64"):
            LearnedOptimizer([torch.zeros(2, dtype=torch.int64)], theta)
        with self.assertRaisesRegex(ValueError, "lr must be a number from 0 to .*, got -1"):
            LearnedOptimizer([torch.zeros(2, requires_grad=True)], theta, lr=-1)
        with self.assertRaisesRegex(ValueError, "weight_decay must be a number from 0 .* got nan"):
            LearnedOptimizer([torch.zeros(2, requires_grad=True)], theta,
                             weight_decay=float("nan"))
        dense, sparse = (torch.ones(3, requires_grad=True) for _ in range(2))
        optimizer = LearnedOptimizer([dense, sparse], theta)
        with self.assertRaises(TypeError):
            optimizer.add_param_group({"params": [torch.zeros(2, dtype=torch.int64)]})
        self.assertEqual(len(optimizer.param_groups), 1)
        dense.grad, sparse.grad = torch.ones(3), torch.ones(3).to_sparse()
        with self.assertRaisesRegex(RuntimeError, r"parameter 1 of group 0, shape \[3\], has a "
                                    "gradient of layout torch.sparse_coo; it must be dense"):
            optimizer.step()
        self.assertTrue(torch.equal(dense, torch.ones(3)))
        with warnings.catch_warnings(), self.assertRaisesRegex(ValueError, "is there twice in a"):
            warnings.simplefilter("ignore")  # torch's own
            LearnedOptimizer([dense, sparse, dense], theta)
        for steps in (2**63, 10**400):
            with self.assertRaisesRegex(ValueError, r'num_steps must be below 2\*\*63, "unknown" or None'):
                LearnedOptimizer([dense], theta, num_steps=steps)
        optimizer = LearnedOptimizer([dense], theta, skip_zero_gradients=numpy.bool_(True),
                                     as_vectors=0)
        group = optimizer.param_groups[0]
        self.assertIs(group["skip_zero_gradients"], True)
        self.assertIs(group["as_vectors"], False)

    def test_a_parameter_of_another_shape_than_at_its_last_update_is_an_error(self):
        for optimizer in ({"type": "MLPLOpt", "hidden_size": 4}, {"type": "Celo2Base"}):
            theta = self.theta(**optimizer)
            q, p = torch.ones(2, 2, requires_grad=True), torch.ones(4, 3, requires_grad=True)
            stepped = LearnedOptimizer([q, p], theta)
            trained(stepped, [q, p], [[torch.ones(2, 2), torch.ones(4, 3)]])
            before = copy.deepcopy(stepped.state[q]), q.detach().clone()
            p.grad, p.data = None, torch.ones(5, 3)
            with self.assertRaisesRegex(RuntimeError, r"parameter 1 of group 0, shape \[5, 3\], had "
                                        "another shape at its last update; nothing was changed"):
                trained(stepped, [q, p], [[torch.ones(2, 2), torch.ones(5, 3)]])
            self.assertTrue(torch.equal(q, before[1]))
            for name, value in before[0].items():
                self.assertTrue(numpy.array_equal(stepped.state[q][name], value))

    def test_a_state_dict_that_is_damaged_is_an_error_that_changes_nothing(self):
        theta, params = self.theta(), self.model()[:1]
        optimizer = LearnedOptimizer(params, theta)
        trained(optimizer, params, random_gradients(params, 2))

        def of_state(**values):
            return lambda saved: saved["state"][0].update(values)

        def of_group(**values):
            return lambda saved: saved["param_groups"][0].update(values)

        step = "must have a step, the number of its updates, got "
        momenta = "must have a tensor momenta of real floating-point numbers, got "
        for change, pattern in (
                *((of_state(step=value), step) for value in (
                    None, "3", -1, 2.5, math.nan, 10**30, True, torch.ones(2))),
                *((of_state(momenta=value), momenta) for value in (
                    None, [1], torch.ones(6, 12, dtype=torch.int64),
                    torch.ones(6, 12, dtype=torch.complex64))),
                (lambda saved: saved["state"][0].pop("step"), step),
                (lambda saved: saved["state"].update({"0": saved["state"].pop(0)}),
                 "states of parameters that no group of it has: .'0'"),
                (lambda saved: saved.pop("state"), "has no state"),
                (lambda saved: saved.pop("param_groups"), "has no param_groups"),
                (lambda saved: saved.update(state=[]), "state must be a dictionary"),
                (lambda saved: saved["theta"].popitem(), "the theta of the state_dict must be"),
                (of_group(theta=None), "the theta of the state_dict must be"),
                (of_group(params=None), "group 0 of the state_dict has no list of params"),
                (lambda saved: saved["param_groups"][0].pop("lr"),
                 "group 0 of the state_dict has no lr"),
                (of_group(lr=math.nan), "lr must be a number from 0")):
            saved = copy.deepcopy(optimizer.state_dict())
            change(saved)
            other = LearnedOptimizer(params, theta)
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, pattern):
                other.load_state_dict(saved)
            self.assertEqual(len(other.state), 0)
            self.assertEqual(other.param_groups[0]["lr"], 1.0)
        saved = optimizer.state_dict()
        saved["state"][0]["step"] = torch.tensor(2.0)  # as optimizers of torch have it
        other.load_state_dict(saved)
        self.assertEqual(other.state[params[0]]["step"], 2)

    def test_the_state_of_another_optimizer_is_an_error(self):
        params = self.model()[:1]
        adam = torch.optim.Adam(params)
        trained(adam, params, random_gradients(params, 1))
        optimizer = LearnedOptimizer(params, self.theta())
        with self.assertRaisesRegex(ValueError, "is not one of a LearnedOptimizer: 'theta' and "
                                    "'learned_optimizer' wanted, got "):
            optimizer.load_state_dict(adam.state_dict())
        saved = {**optimizer.state_dict(), **{name: adam.state_dict()[name]
                                              for name in ("state", "param_groups")}}
        with self.assertRaisesRegex(ValueError, r"parameter 0, shape \[3, 4\], must have "
                                    r"\{'momenta': \(6, 12\)\}, got .*exp_avg"):
            optimizer.load_state_dict(saved)
        self.assertEqual(len(optimizer.state), 0)

    def test_the_state_of_another_theta_is_an_error(self):
        params = self.model()[:1]
        optimizer = LearnedOptimizer(params, self.theta())
        trained(optimizer, params, random_gradients(params, 1))
        saved = optimizer.state_dict()
        other = LearnedOptimizer(params, self.theta(seed=1))
        with self.assertRaisesRegex(ValueError, "was saved with another theta"):
            other.load_state_dict(saved)
        other = LearnedOptimizer(params, self.theta(exp_mult=0.5))
        with self.assertRaisesRegex(ValueError, "is of another learned optimizer: "
                                    ".*'exp_mult': 0.5.* wanted, got .*'exp_mult': 0.001"):
            other.load_state_dict(saved)
        self.assertEqual(len(other.state), 0)
        LearnedOptimizer(params, self.theta()).load_state_dict(saved)


class JoinedMomenta(TestCase):
    def test_a_state_that_was_put_in_place_of_another_is_gone_on_from(self):
        file, start = self.theta(), [torch.ones(3), torch.ones(2, 2)]
        gradients = random_gradients(start, 5)

        def run(put):
            params = [p.clone().requires_grad_() for p in start]
            optimizer = LearnedOptimizer(params, file)
            trained(optimizer, params, gradients[:3])
            put([optimizer.state[p] for p in params])
            return trained(optimizer, params, gradients[3:])

        def put_doubled(states):
            states[1]["momenta"] = 2 * states[1]["momenta"]

        def double(states):
            states[1]["momenta"] *= 2

        changed = run(double)
        for got, wanted in zip(run(put_doubled), changed):
            self.assertTrue(torch.equal(got, wanted))
        self.assertFalse(torch.equal(run(lambda states: None)[1], changed[1]))

    def test_momenta_stay_where_they_are_also_over_many_loaded_states(self):
        params = [torch.ones(3).requires_grad_(), torch.ones(2, 2).requires_grad_()]
        optimizer = LearnedOptimizer(params, self.theta())
        for _ in range(3):
            for gradients in random_gradients(params, 2):
                trained(optimizer, params, [gradients])
            before = [optimizer.state[p]["momenta"] for p in params]
            trained(optimizer, params, random_gradients(params, 1))
            for p, momenta in zip(params, before):
                self.assertIs(optimizer.state[p]["momenta"], momenta)
            kept = weakref.ref(before[0])
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            del before, momenta
            self.assertIsNone(kept())


    def test_tensors_that_were_joined_are_freed_with_their_states(self):
        params = [torch.ones(3).requires_grad_(), torch.ones(2, 2).requires_grad_()]
        optimizer = LearnedOptimizer(params, self.theta())
        for i, gradients in enumerate(random_gradients(params, 12)):
            trained(optimizer, params, [[g if i % 3 != k else None for k, g in enumerate(gradients)]])
            if i % 4 == 3:
                del optimizer.state[params[0]]
                params[0] = params[0].detach().clone().requires_grad_()
                optimizer.param_groups[0]["params"][0] = params[0]
            (rule,) = optimizer._executors[-1]._rules.values()
            self.assertLessEqual(len(rule._rule._joined), 2)
        optimizer.state.clear()
        self.assertEqual(rule._rule._joined, {})


class Files(TestCase):
    def write(self, arrays=None, metadata=None, name="theta.safetensors"):
        path = self.directory / name
        if arrays is None:
            arrays = read_safetensors(STEPS)[0]
        write_safetensors(path, arrays, metadata)
        return path

    def assertError(self, path, pattern, **more):
        with self.assertRaisesRegex(ValueError, pattern) as caught:
            ThetaFile(path, **more)
        self.assertTrue(str(caught.exception).startswith(f"{path}: "), caught.exception)

    def test_a_file_without_metadata_is_a_default_mlp_lopt_with_a_warning(self):
        with self.assertWarnsRegex(UserWarning, "taken as a default MLPLOpt"):
            file = ThetaFile(self.write())
        self.assertEqual(file.learned_optimizer,
                         {"type": "MLPLOpt", "hidden_size": 32, "hidden_layers": 2,
                          "exp_mult": 0.001, "step_mult": 0.001, "progress_features": False,
                          "schedule": "constant", "relative_step": False,
                          "relative_to_parameter": False, "normalizer_epsilon": 1e-5,
                          "precision": "fp32"})
        self.assertEqual(file.golden_steps, 0)

    def test_a_file_opens_where_autocast_is_on(self):
        path = ROOT / "trained/recommended.safetensors"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertGreater(ThetaFile(path).golden_steps, 0)

    @unittest.skipUnless(hasattr(torch, "set_default_device"), "PyTorch 1 has no default device")
    def test_a_file_opens_on_the_cpu_whatever_the_default_device(self):
        for path in (ROOT / "trained/recommended.safetensors", STEPS):
            with torch.device("meta"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the second names no optimizer
                file = ThetaFile(path)
            self.assertEqual({t.device.type for t in file.theta.values()}, {"cpu"})

    def test_a_format_of_another_program_is_none(self):
        arrays, _ = read_safetensors(STEPS)
        path = self.directory / "theta.safetensors"
        write_safetensors(path, {"theta/" + n: a for n, a in without("theta/", arrays).items()},
                          {"format": "pt", "learned_optimizer": json.dumps({"type": "MLPLOpt"})})
        self.assertEqual(ThetaFile(path).golden_steps, 0)

    def test_a_newer_format_is_an_error(self):
        self.assertError(self.write(metadata={"format": "lopt theta 3"}),
                         "format is 'lopt theta 3'; this version .* reads 'lopt theta 1' and "
                         "'lopt theta 2'")

    def test_a_layout_that_does_not_fit_is_an_error(self):
        arrays = read_safetensors(STEPS)[0]
        wanted = r"wanted: mlp/linear_0/b \[32\], .*; got: "
        mlp = {"learned_optimizer": {"type": "MLPLOpt"}}
        missing = {n: a for n, a in arrays.items() if n != "theta/mlp/linear_1/b"}
        self.assertError(self.write(missing), wanted, **mlp)
        self.assertError(self.write({}), wanted + "none", **mlp)
        self.assertError(self.write({**arrays, "theta/more": numpy.float32([1])}), wanted, **mlp)
        self.assertError(self.write(), r"wanted: mlp/linear_0/b \[16\]",
                         learned_optimizer={"type": "MLPLOpt", "hidden_size": 16})

    def test_an_optimizer_that_is_not_known_is_an_error(self):
        self.assertError(self.write(metadata={"learned_optimizer": '{"type": "VeLO"}'}),
                         "type must be one of MLPLOpt, .*; got {'type': 'VeLO'}")
        self.assertError(self.write(metadata={"learned_optimizer": '{"type": "RNNMLPLOpt"}'}),
                         "got {'type': 'RNNMLPLOpt'}; a RNNMLPLOpt sees all tensors, this class "
                         "treats each by itself")
        self.assertError(self.write(metadata={"learned_optimizer": "[]"}), "type must be one of")
        self.assertError(self.write(metadata={"learned_optimizer": "{"}),
                         "metadata learned_optimizer: Expecting")
        for options, pattern in (
                ({"hidden": 3}, "MLPLOpt has no option 'hidden'; it has hidden_size, "),
                ({"hidden_size": 3.5}, "option hidden_size must be like 32, got 3.5"),
                ({"hidden_size": 0}, "hidden_size must be from 1 to 65536, got 0"),
                ({"hidden_layers": 300000000}, "hidden_layers must be from 1 to 64, got 300000000"),
                ({"exp_mult": 10**400}, "option exp_mult must be like 0.001, got 1000"),
                ({"step_mult": "1"}, "option step_mult must be like 0.001, got '1'"),
                ({"hidden_layers": True}, "option hidden_layers must be like 2, got True"),
                ({"relative_step": 1}, "option relative_step must be like False, got 1"),
                ({"normalizer_epsilon": 0.0}, "normalizer_epsilon must be at least 1e-37, got 0")):
            self.assertError(self.write(), pattern,
                             learned_optimizer={"type": "MLPLOpt", **options})
        for kind in ("MLPLOpt", "LearnableSGD"):
            self.assertError(self.write(), "schedule must be one of 'constant', 'linear', "
                             "'cosine', 'warmup-cosine'; got 'square'",
                             learned_optimizer={"type": kind, "schedule": "square"})
            self.assertError(self.write(), "schedule must be one of 'constant', 'linear', "
                             "'cosine', 'warmup-cosine'; got {'type': 'Warmup'}",
                             learned_optimizer={"type": kind, "schedule": {"type": "Warmup"}})

    def test_another_optimizer_than_the_file_names_is_an_error(self):
        path = self.write(metadata={"learned_optimizer": '{"type": "MLPLOpt"}'})
        ThetaFile(path, {"type": "MLPLOpt", "hidden_layers": 2})
        self.assertError(path, "the file is of another learned optimizer: .*'exp_mult': 0.1",
                         learned_optimizer={"type": "MLPLOpt", "exp_mult": 0.1})

    def test_a_named_pipe_is_an_error_at_once(self):
        with tempfile.TemporaryDirectory() as scratch:
            pipe = os.path.join(scratch, "pipe")
            os.mkfifo(pipe)
            self.assertError(pipe, "it is a named pipe, wanted a file")

    def test_a_damaged_file_is_an_error(self):
        path = self.write()
        content = path.read_bytes()
        for size in (0, 7):
            path.write_bytes(content[:size])
            self.assertError(path, f"{size} bytes are too few")
        path.write_bytes(content[:100])
        self.assertError(path, "but only 92 follow: damaged")
        path.write_bytes(content[:-1])
        self.assertError(path, "bytes of data wanted, got .*: damaged")
        path.write_bytes(content + b"\0")
        self.assertError(path, "bytes of data wanted, got .*: damaged")
        path.write_bytes(content[:8] + b"x" + content[9:])
        self.assertError(path, "the safetensors header cannot be read: ")
        path.write_bytes(content.replace(b"[19, 32]", b"[19, 31]"))
        self.assertError(path, r"tensor theta/mlp/linear_0/w of shape \[19, 31\] needs 2356 bytes")
        for header in (b"[]", b"{\"a\": 1}", b"{\"a\": {}}", b"\xff"):
            path.write_bytes(struct.pack("<Q", len(header)) + header)
            self.assertError(path, "the safetensors header cannot be read: ")


    def test_what_the_program_refuses_is_refused(self):
        arrays, metadata = read_safetensors(STEPS)
        weights = {n: a for n, a in arrays.items() if n.startswith("theta/")}
        mlp = {"format": "lopt theta 2", "learned_optimizer": '{"type": "MLPLOpt"}'}
        self.write(weights, mlp)
        path = self.directory / "theta.safetensors"
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + length]), content[8 + length :]

        def assert_refused(pattern, change=None, text=None):
            changed = copy.deepcopy(header)
            if change:
                change(changed)
            written = text or json.dumps(changed).encode()
            path.write_bytes(struct.pack("<Q", len(written)) + written + data)
            self.assertError(path, pattern)

        ThetaFile(path)
        name = "theta/mlp/linear_0/b"
        unreadable = "the safetensors header cannot be read: "
        entry = f"{unreadable}tensor {name} must have a dtype, a shape and data_offsets"
        for change in ({"shape": [32.0]}, {"shape": ["32"]}, {"shape": [1 << 70]}, {"more": 1},
                       {"data_offsets": [0, 128, 256]}, {"data_offsets": [128, 0]}):
            assert_refused(entry, lambda h: h[name].update(change))
        assert_refused("has dtype I32, wanted F32", lambda h: h[name].update(dtype="I32"))
        other = header["theta/mlp/linear_1/b"]["data_offsets"]
        assert_refused("the data of tensor .* begins at byte .*, wanted ",
                       lambda h: h[name].update(data_offsets=other))
        for metadata in ([1], {"seed": 5}, {"format": None}):
            assert_refused(unreadable + "__metadata__ must be an object of texts",
                           lambda h: h.update(__metadata__=metadata))
        for optimizer, pattern in (
                ('{"type": "MLPLOpt", "exp_mult": NaN}', "NaN is no finite number"),
                ('{"type": "MLPLOpt", "exp_mult": 1e400}', "1e400 is no finite number"),
                ('{"type": "MLPLOpt", "exp_mult": 1, "exp_mult": 2}', "'exp_mult' is there twice"),
                ("[" * 100000, "the nesting is too deep"),
                ('{"type": "OrthogonalSteps", "optimizer": ' * 100 + "{}" + "}" * 100,
                 "optimizers of optimizers, more than 64 deep"),
                ('{"type": []}', "type must be one of ")):
            assert_refused(pattern,
                           lambda h: h["__metadata__"].update(learned_optimizer=optimizer))
        for horizon in ("-5", "1_000", " 5", "", "9" * 30):
            assert_refused("trained_horizon must be a whole number of at least 0, got ",
                           lambda h: h["__metadata__"].update(trained_horizon=horizon))
        whole = {"shortest_training": 1, "longest_training": 0, "smallest_batch": 0,
                 "largest_batch": 0, "fewest_params": 1, "most_params": 2, "largest_tensor": 2}
        for text, pattern in (("[", "trained_range: Expecting value"),
                              ("[]", "trained_range must be an object of shortest_training, "),
                              ('{"shortest_training": 1}', "trained_range must be an object of "),
                              *((json.dumps({**whole, **change}), "trained_range" + pattern)
                                for change, pattern in (
                                    ({"more": 1}, " must be an object of "),
                                    ({"most_params": -1}, ": most_params must be a whole number from "
                                     r"0 to 2\*\*63 - 1, got -1"),
                                    ({"most_params": 2.0}, ": most_params must be a whole number"),
                                    ({"most_params": True}, ": most_params must be a whole number"),
                                    ({"fewest_params": 3}, ": fewest_params must be at most "
                                     "most_params, got 3 and 2"),
                                    ({"largest_tensor": 3}, ": largest_tensor must be at most "),
                                    ({"longest_training": 9}, ": longest_training must be "
                                     "trained_horizon, which is 0, got 9")))):
            assert_refused(pattern, lambda h: h["__metadata__"].update(trained_range=text))
        twice = json.dumps(header)[:-1] + f', "{name}": ' + json.dumps(header[name]) + "}"
        assert_refused(f"{unreadable}the key '{name}' is there twice", text=twice.encode())
        assert_refused(unreadable + "the nesting is too deep", text=b"[" * 100000)
        empty = {"dtype": "F32", "shape": [0, 10**18, 10**18], "data_offsets": [0, 0]}
        assert_refused("cannot have shape", lambda h: h.update({"theta/more": empty}))

    def test_golden_steps_that_compare_nothing_are_damaged(self):
        weights = {n: a for n, a in read_safetensors(STEPS)[0].items() if n.startswith("theta/")}
        mlp = {"learned_optimizer": '{"type": "MLPLOpt"}'}
        damaged = "the golden steps are damaged: "
        golden = {"golden/steps": numpy.float32([0, 1]), "golden/num_steps": numpy.float32([5])}
        self.assertError(self.write({**weights, **golden}, mlp),
                         damaged + "golden/params is missing")
        golden.update({f"golden/{what}/b": numpy.zeros(shape, numpy.float32) for what, shape in (
            ("params", 1), ("result", 1), ("limit", 1), ("gradients", (2, 1)))})
        for length in (math.inf, 2.0**25):
            golden["golden/num_steps"] = numpy.float32([length])
            self.assertError(self.write({**weights, **golden}, mlp),
                             damaged + "golden/steps and golden/num_steps must be whole numbers")


@unittest.skipUnless(PROGRAM, "LOPT_PROGRAM does not name the program")
class FilesOfTheProgram(TestCase):
    def imported(self, *options, name="mlp_lopt_steps.safetensors"):
        """A theta file with the weights of a golden trace, which come as NumPy's npz."""
        arrays, metadata = read_safetensors(golden_path(name))
        haiku = {name.replace("theta/mlp/", "mlp/~/"): a for name, a in arrays.items()
                 if name.startswith("theta/")}
        numpy.savez(self.directory / "haiku.npz", step=numpy.int64(3), **haiku)
        path = self.directory / "theta.safetensors"
        run("import", self.directory / "haiku.npz", "--out", path, "--learned-optimizer",
            metadata["optimizer"], *options)
        return path, without("theta/", arrays), json.loads(metadata["optimizer"])

    def test_options_their_defaults_and_choices_are_those_of_the_program(self):
        for kind, rule in lopt_optimizer._TYPES.items():
            options, choices = {}, {}
            own, _, _ = run("describe", kind).partition("As `theta_opt`")
            keys = re.findall(r"^- `(\w+)`: (.*?); (?:default `(.*?)`|required)\. ", own,
                              re.MULTILINE)
            for name, value, default in keys:
                options[name] = json.loads(default) if default else {}
                if value.startswith("`"):
                    names = value.split("; ")[0]
                    choices[name] = tuple(names.replace("`", "").split(", "))
            self.assertEqual(rule.OPTIONS, options, kind)
            self.assertEqual(rule.CHOICES, choices, kind)

    def test_imported_weights_are_the_same_and_do_what_the_program_does(self):
        for name in ("mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors",
                     "learnable_sgdm_steps.safetensors", "learnable_adam_steps.safetensors"):
            with self.subTest(name):
                path, wanted, learned_optimizer = self.imported(name=name)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    file = ThetaFile(path, learned_optimizer)
                self.assertEqual(file.golden_steps, 10)
                self.assertEqual(file.theta.keys(), wanted.keys())
                for tensor, values in wanted.items():
                    self.assertTrue(numpy.array_equal(file.theta[tensor], values))

    def test_golden_steps_that_differ_are_an_error(self):
        path, _, _ = self.imported()
        arrays, metadata = read_safetensors(path)

        def changed(name, change, **more):
            copies = {n: a.copy() for n, a in arrays.items()}
            copies[name].reshape(-1)[5] += change
            write_safetensors(path, copies, {**metadata, **more})
            return ThetaFile(path)

        pattern = f"^{path}: the optimizer does not do what it did when the file was written: "
        limit = arrays["golden/limit/plain/w"].item()
        with self.assertRaisesRegex(ValueError, pattern + "golden/result/plain/w at 5: .* wanted, "
                                    "got .*, which is .* off; accepted are "):
            changed("golden/result/plain/w", 2 * limit)
        with self.assertWarnsRegex(UserWarning, pattern[1:] + ".*; it is used all the same"):
            again = ThetaFile(path, despite_failed_check=True)
        (worst,) = (found for found in again.golden_deviations() if found.share > 1)
        self.assertEqual((worst.tensor, worst.element), ("plain/w", 5))
        self.assertEqual(changed("golden/result/plain/w", limit / 2).golden_steps, 10)
        with self.assertRaisesRegex(ValueError, pattern + "golden/result/.* at "):
            changed("theta/mlp/linear_0/w", 1.0)
        with self.assertRaisesRegex(ValueError, pattern):
            changed("golden/result/plain/w", 0, learned_optimizer=json.dumps(
                {"type": "MLPLOpt", "step_mult": 0.00101}))
        damaged = f"^{path}: the golden steps are damaged: "
        numbers = "golden/steps and golden/num_steps must be whole numbers"
        for name, value, message in (
                ("steps", [0, 1], "golden/gradients must have the shapes"),
                ("steps", [0.5] * 10, numbers), ("steps", [-1] * 10, numbers),
                ("num_steps", [9000], numbers), ("num_steps", [], numbers)):
            changes = {"golden/" + name: numpy.float32(value)}
            write_safetensors(path, {**arrays, **changes}, metadata)
            with self.assertRaisesRegex(ValueError, damaged + message):
                ThetaFile(path)
        write_safetensors(path, {**arrays, "golden/limit/plain/b": numpy.float32([-1])}, metadata)
        with self.assertRaisesRegex(ValueError, damaged + "limits must be numbers of at least 0"):
            ThetaFile(path)
        write_safetensors(path, {**arrays, "golden/limit/plain/b": numpy.float32([numpy.inf])},
                          metadata)
        with self.assertWarnsRegex(UserWarning, f"^{path}: the golden steps do not check plain/b: "):
            ThetaFile(path)
        del arrays["golden/result/plain/b"]
        write_safetensors(path, arrays, metadata)
        with self.assertRaisesRegex(ValueError, damaged + "golden/result must have the shapes"):
            ThetaFile(path)

    def test_files_of_before_there_were_limits_open_and_stay_sharp(self):
        for name in ("theta_1_fast.safetensors", "theta_1_mlp.safetensors"):
            self.assertEqual(ThetaFile(golden_path(name)).golden_steps, 5)
            arrays, metadata = read_safetensors(golden_path(name))
            path = self.directory / "changed.safetensors"
            for tensor in arrays:
                # LearnedScheduler keeps directions alone.
                if tensor.startswith("theta/") and tensor != "theta/optimizer/log_lr":
                    write_safetensors(path, {**arrays, tensor: arrays[tensor] * 1.01}, metadata)
                    with self.assertRaisesRegex(ValueError, "does not do what it did"):
                        ThetaFile(path)

    def test_the_file_says_what_it_holds(self):
        path, _, _ = self.imported()
        words = [sys.executable, "-B", ROOT / "python/lopt_optimizer.py"]
        shown = subprocess.run([*words, path], capture_output=True, text=True, check=True).stdout
        self.assertIn('learned_optimizer = {"type": "MLPLOpt", "hidden_size": 32', shown)
        self.assertIn("theta/mlp/linear_0/w [19, 32]", shown)
        self.assertTrue(shown.endswith("golden steps that were repeated: 10\n"))
        missing = subprocess.run([*words, "none"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("lopt_optimizer.py: [Errno 2] No such file", missing.stderr)

    def test_numpy_reads_an_exported_npz_and_it_can_be_imported_again(self):
        path, wanted, learned_optimizer = self.imported()
        run("export", path, "--format", "npz", "--out", self.directory / "theta.npz")
        with numpy.load(self.directory / "theta.npz", allow_pickle=False) as exported:
            self.assertEqual(set(exported), {*wanted, "learned_optimizer"})
            for tensor, values in wanted.items():
                self.assertEqual(exported[tensor].dtype, numpy.float32)
                self.assertTrue(numpy.array_equal(exported[tensor], values))
            options = json.loads(exported["learned_optimizer"].tobytes())
            self.assertEqual(options, {**options, **learned_optimizer})
        run("import", self.directory / "theta.npz", "--out", self.directory / "again.safetensors")
        self.assertEqual((self.directory / "again.safetensors").read_bytes(), path.read_bytes())

    def test_arrays_that_nobody_asked_for_do_not_keep_weights_from_being_imported(self):
        arrays, _ = read_safetensors(STEPS)
        weights = without("theta/", arrays)
        numpy.savez(self.directory / "weights.npz", names=numpy.array(["a", "bcde"]),
                    half=numpy.float16([1]), flag=numpy.array([True]), **weights)
        path = self.directory / "theta.safetensors"
        run("import", self.directory / "weights.npz", "--out", path)
        for name, tensor in ThetaFile(path).theta.items():
            self.assertTrue(numpy.array_equal(tensor, weights[name]))
        weights["mlp/linear_0/b"] = weights["mlp/linear_0/b"].astype(numpy.float16)
        numpy.savez(self.directory / "half.npz", **weights)
        with self.assertRaisesRegex(AssertionError, "mlp/linear_0/b is float16; weights are "):
            run("import", self.directory / "half.npz", "--out", path)

    def drawn(self, **options):
        """A theta file of the program with random weights."""
        theta = self.theta(type="MLPLOpt", hidden_size=8, **options)
        numpy.savez(self.directory / "drawn.npz",
                    **{name: (values.numpy() + 1) / 3 for name, values in theta.theta.items()})
        path = self.directory / "drawn.safetensors"
        run("import", self.directory / "drawn.npz", "--out", path, "--learned-optimizer",
            json.dumps(theta.learned_optimizer))
        return path

    ALL_OPTIONS = {"progress_features": True, "schedule": "cosine", "relative_step": True,
                   "relative_to_parameter": True, "normalizer_epsilon": 1e-24, "precision": "bf16"}

    def test_each_option_of_mlp_lopt_does_what_the_program_does(self):
        for options in (*({name: value} for name, value in self.ALL_OPTIONS.items()),
                        {"schedule": "linear"}, self.ALL_OPTIONS):
            with self.subTest(options):
                path = self.drawn(step_mult=1.0, **options)
                self.assertEqual(ThetaFile(path).golden_steps, 10)
                arrays, metadata = read_safetensors(path)
                without_options = {"type": "MLPLOpt", "hidden_size": 8, "step_mult": 1.0}
                with self.assertRaisesRegex(ValueError, "the optimizer does not do what it did|"
                                            "the tensors theta/... are not those"):
                    write_safetensors(path, arrays, {
                        **metadata, "learned_optimizer": json.dumps(without_options)})
                    ThetaFile(path)

    def drawn_of_others(self, options, mean=0):
        """A theta file of the program, such as of an optimizer that changes another's steps."""
        rule, resolved = lopt_optimizer._resolve(options, "test")
        random = numpy.random.RandomState(0)
        drawn, path = self.directory / "drawn.npz", self.directory / "drawn.safetensors"
        numpy.savez(drawn, **{name: random.normal(mean, 0.2, shape).astype(numpy.float32)
                              for name, shape in rule.layout(resolved).items()})
        run("import", drawn, "--out", path, "--learned-optimizer", json.dumps(options))
        return path

    def test_optimizers_of_others_do_what_the_program_does(self):
        for options in OF_OTHERS:
            with self.subTest(options):
                self.assertEqual(ThetaFile(self.drawn_of_others(options)).golden_steps, 10)


if __name__ == "__main__":
    unittest.main()
