"""Tests of lopt.torch.LearnedOptimizer: those of the one-file optimizer, and of what is its own."""

import copy
import gc
import io
import itertools
import pathlib
import re
import threading
import unittest
from unittest import mock

import numpy
import torch

import lopt
import test_lopt_optimizer as one_file
from lopt import lopt_optimizer
from lopt.lopt_optimizer import TorchExecutor
from lopt.torch import KernelExecutor, LearnedOptimizer
from test_lopt_optimizer import in_torch_order, random_gradients, trained


def theta_of(file):
    """A Theta with the weights of a ThetaFile of the one-file optimizer."""
    layout = lopt.Theta.init(file.learned_optimizer)
    for name, values in layout.tensors.items():
        values[...] = file.theta[name].numpy()
    layout.trained_horizon = file.trained_horizon or 0
    layout.trained_range = file.trained_range
    return layout


class OnKernels(LearnedOptimizer):
    """As the tests of the one-file optimizer call it."""

    def __init__(self, params, theta, *args, **options):
        if isinstance(theta, one_file.ThetaFile):
            theta = theta_of(theta)
        super().__init__(params, theta, *args, **options)


class Kernels:
    """Puts the native optimizer into the place of the one-file optimizer."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(one_file, "LearnedOptimizer", OnKernels)
        patch.start()
        self.addCleanup(patch.stop)


class GoldenTraces(Kernels, one_file.GoldenTraces):
    pass


class NumSteps(Kernels, one_file.NumSteps):
    pass


class UnknownLength(Kernels, one_file.UnknownLength):
    pass


class OfOthers(Kernels, one_file.OfOthers):
    pass


class ExtremeInputs(Kernels, one_file.ExtremeInputs):
    pass


class Optimizer(Kernels, one_file.Optimizer):
    pass


RULES = ({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1},
         {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1, **one_file.FilesOfTheProgram.ALL_OPTIONS},
         {"type": "AdafacMLPLOpt", "step_mult": 0.1}, {"type": "Celo2", "learning_rate": 0.01},
         {"type": "Celo2Base", "schedule": "linear"}, {"type": "LearnableSGD"},
         {"type": "LearnableSGDM"}, {"type": "LearnableAdam", "weight_decay": 0.1},
         *one_file.OF_OTHERS)
SHAPES = ((5, 4), (4,), (), (3, 2, 3, 2), (17,), (0, 3), (16, 16))


class Executors(unittest.TestCase):
    def test_the_package_has_the_one_file_optimizer_with_another_executor_before_its(self):
        self.assertEqual(pathlib.Path(lopt_optimizer.__file__).read_bytes(),
                         (one_file.ROOT / "python/lopt_optimizer.py").read_bytes())
        self.assertEqual(lopt_optimizer.LearnedOptimizer.EXECUTORS, (TorchExecutor,))
        self.assertEqual(LearnedOptimizer.EXECUTORS, (KernelExecutor, TorchExecutor))
        hooks = [name for name in vars(LearnedOptimizer) if name[0] == "_" and name[1] != "_"]
        self.assertEqual(hooks, [])

    def test_each_parameter_goes_to_the_first_executor_that_takes_it(self):
        params = [torch.ones(3, dtype=dtype, requires_grad=True)
                  for dtype in (torch.float64, torch.float32, torch.bfloat16)]
        optimizer = LearnedOptimizer(params, lopt.Theta.init({"type": "LearnableSGDM"}))
        trained(optimizer, params, random_gradients(params, 1))
        self.assertEqual([set(optimizer.state[p]) for p in params],
                         [{"step", "momentum"}, {"step", "kernel_state", "kernel_shape"},
                          {"step", "momentum"}])
        saved = optimizer.state_dict()["state"]
        self.assertEqual([set(saved[i]) for i in range(3)], [{"step", "momentum"}] * 3)

    def test_the_first_gradient_that_is_not_finite_is_named_whatever_steps_it(self):
        for dtypes in itertools.permutations((torch.float64, torch.float32)):
            params = [torch.ones(2, dtype=dtype, requires_grad=True) for dtype in dtypes]
            optimizer = LearnedOptimizer(params, lopt.Theta.init({"type": "LearnableSGD"}))
            gradients = [torch.full_like(p, torch.inf) for p in params]
            with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0, .* not finite"):
                trained(optimizer, params, [gradients])


class FilesOfUnknownLength(one_file.TestCase):
    INNER = one_file.scheduled(one_file.orthogonal(one_file.SGDM))

    def setUp(self):
        super().setUp()
        self.theta = lopt.Theta.init({"type": "UnknownLength", "optimizer": self.INNER})
        self.theta.values += numpy.random.RandomState(3).normal(0, 0.1, self.theta.values.shape)
        self.path = self.directory / "theta.safetensors"
        self.theta.write(self.path)

    def test_the_golden_steps_of_the_program_are_repeated(self):
        file = one_file.ThetaFile(self.path)
        self.assertTrue(file.unknown_length)
        self.assertGreater(file.golden_steps, 0)
        file.unknown_length = False  # another length is told
        self.assertGreater(max(found.share for found in file.golden_deviations()), 1)

    def test_kernels_and_one_file_have_the_same_averages_and_load_each_other_s_states(self):
        gradients = random_gradients([torch.empty(shape) for shape in SHAPES], 60)
        kinds = (lambda params: LearnedOptimizer(params, self.theta),
                 lambda params: lopt_optimizer.LearnedOptimizer(
                     params, one_file.ThetaFile(self.path)))
        found = []
        for first in kinds:
            for then in kinds:
                torch.manual_seed(0)
                params = [torch.randn(shape, requires_grad=True) for shape in SHAPES]
                optimizer = first(params)
                trained(optimizer, params, gradients[:30])
                saved, optimizer = optimizer.state_dict(), then(params)
                optimizer.load_state_dict(saved)
                stepped = trained(optimizer, params, gradients[30:])
                optimizer.eval()
                self.assertFalse(torch.equal(params[0], stepped[0]))
                found.append([p.detach().clone() for p in params])
        for others in found[1:]:
            for got, wanted in zip(others, found[0]):
                self.assertClose(got, wanted.numpy(), 1e-4)

    def test_known_lengths_are_refused(self):
        with self.assertRaisesRegex(ValueError, "leave num_steps out, got 9"):
            LearnedOptimizer([torch.ones(2, requires_grad=True)], self.theta, num_steps=9)


class StepsAndStates(one_file.TestCase):
    """The kernels beside operations of torch."""

    def theta(self, **options):
        """Weights near those that a run begins with."""
        theta = lopt.Theta.init(options)
        theta.values += numpy.random.RandomState(3).normal(0, 0.1, theta.values.shape)
        return theta

    def both(self, options):
        """A Theta and the ThetaFile of it."""
        theta = self.theta(**options)
        theta.write(self.directory / "theta.safetensors")
        return theta, one_file.ThetaFile(self.directory / "theta.safetensors")

    def test_a_schedule_is_the_same_by_its_type_and_by_its_short_name(self):
        options = {"type": "LearnableSGD", "schedule": {"type": "Cosine"}}
        theta = lopt.Theta.init(options)
        self.assertEqual(theta.learned_optimizer,
                         {"type": "LearnableSGD", "learning_rate": 0.01, "schedule": "cosine"})
        path = self.directory / "theta.safetensors"
        lopt.Theta(options, theta.values).write(path)
        self.assertEqual(one_file.ThetaFile(path).learned_optimizer, theta.learned_optimizer)
        results = []
        for given in (theta, lopt.Theta(options, theta.values), path):
            p = torch.ones(3, requires_grad=True)
            results.append(trained(LearnedOptimizer([p], given, num_steps=2), [p],
                                   [[torch.ones(3)]])[0])
        self.assertTrue(torch.equal(results[0], results[1]))
        self.assertTrue(torch.equal(results[0], results[2]))

    def test_every_schedule_with_a_short_name_is_that_of_the_one_file_optimizer(self):
        names = re.search("`schedule`: (.*); object", lopt.describe("LearnableSGD")).group(1)
        self.assertIn("`warmup-cosine`", names)
        for name in re.findall("`(.+?)`", names):
            with self.subTest(name):
                theta, file = self.both({"type": "LearnableSGD", "schedule": name})
                ours, wanted = ([torch.zeros(1, requires_grad=True)] for _ in range(2))
                gradients = 150 * [[torch.ones(1)]]
                trained(LearnedOptimizer(ours, theta, num_steps=250), ours, gradients)
                trained(one_file.LearnedOptimizer(wanted, file, num_steps=250), wanted, gradients)
                self.assertSteps(ours, wanted)

    def model(self, dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator).to(dtype).requires_grad_()
                for shape in SHAPES]

    def assertSteps(self, one, other, tolerance=2e-5):
        for a, b in zip(one, other):
            self.assertEqual(a.dtype, b.dtype)
            numpy.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance,
                                          atol=tolerance)

    def test_each_rule_steps_as_the_one_file_optimizer_with_each_option(self):
        for rule, options in itertools.product(RULES, (
                {}, {"lr": 0.3, "weight_decay": 0.2}, {"skip_zero_gradients": True},
                {"as_vectors": True})):
            with self.subTest(rule=rule, options=options):
                theta, file = self.both(rule)
                ours, wanted = self.model(), self.model()
                gradients = random_gradients(ours, 4)
                for step in gradients:
                    step[0][2] = 0
                trained(LearnedOptimizer(ours, theta, num_steps=9, **options), ours, gradients)
                trained(one_file.LearnedOptimizer(wanted, file, num_steps=9, **options), wanted,
                        gradients)
                self.assertSteps(ours, wanted)
                self.assertGreater((ours[0] - self.model()[0]).abs().max(), 1e-3)
                if "skip_zero_gradients" in options:
                    self.assertTrue(torch.equal(ours[0][2], self.model()[0][2]))

    def test_a_state_dict_goes_on_in_the_one_file_optimizer_and_one_of_it_here(self):
        for rule in RULES:
            with self.subTest(rule=rule):
                theta, file = self.both(rule)
                params, gradients = self.model(), random_gradients(self.model(), 6)
                ours = LearnedOptimizer(params, theta, num_steps=9)
                trained(ours, params, gradients[:3])
                copies = [p.detach().clone().requires_grad_() for p in params]
                theirs = one_file.LearnedOptimizer(copies, file, num_steps=9)
                theirs.load_state_dict(ours.state_dict())
                again = [p.detach().clone().requires_grad_() for p in params]
                back = LearnedOptimizer(again, theta, num_steps=9)
                back.load_state_dict(theirs.state_dict())
                for optimizer, own in ((ours, params), (theirs, copies), (back, again)):
                    trained(optimizer, own, gradients[3:])
                self.assertSteps(params, copies)
                for p, q in zip(params, again):
                    self.assertTrue(torch.equal(p, q))

    def test_the_number_of_threads_does_not_change_a_bit(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4, step_mult=0.1)
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            generator = torch.Generator().manual_seed(1)
            params = [torch.randn(n, generator=generator).requires_grad_()
                      for n in (200_003, 5, 70_000, 48)]
            optimizer = LearnedOptimizer(params, theta, lr=0.9, weight_decay=0.1)
            results.append(trained(optimizer, params, random_gradients(params, 2)))
        for other in results[1:]:
            for a, b in zip(results[0], other):
                self.assertTrue(torch.equal(a, b))

    def test_parameters_are_changed_where_they_lie(self):
        p = torch.ones(20, requires_grad=True)
        memory = p.detach().numpy()
        trained(LearnedOptimizer([p], self.theta(type="LearnableSGD")), [p], [[torch.ones(20)]])
        self.assertTrue((memory != 1).all())

    def test_autograd_notices_that_a_parameter_has_changed(self):
        for make in (torch.Tensor.clone, lambda p: torch.stack([p, p], 1)[:, 0]):
            p = make(torch.ones(20)).requires_grad_()
            optimizer = LearnedOptimizer([p], self.theta(type="LearnableSGD"))
            loss = (p * p).sum()
            trained(optimizer, [p], [[torch.ones(20)]])
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    def test_nothing_is_kept_of_parameters_that_were_replaced(self):
        (p,) = params = [torch.ones(20, requires_grad=True)]
        optimizer = LearnedOptimizer(params, self.theta(type="LearnableSGD"))
        for step in random_gradients(params, 5):
            trained(optimizer, params, [step])
            del optimizer.state[p]
            (p,) = params = [p.detach().clone().requires_grad_()]
            optimizer.param_groups[0]["params"][0] = p
        gc.collect()
        self.assertEqual(optimizer._executors[0]._counters, {})

    def test_parameters_of_other_types_go_beside_and_may_become_ours(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4, step_mult=0.1)
        for before, after in itertools.permutations((torch.float32, torch.float64), 2):
            params, wanted = self.model(before), self.model(torch.float64)
            gradients = random_gradients(wanted, 4)
            optimizers = [LearnedOptimizer(own, theta) for own in (params, wanted)]
            for own, optimizer, types in ((params, optimizers[0], (before, after)),
                                          (wanted, optimizers[1], (torch.float64,) * 2)):
                for i, dtype in enumerate(types):
                    for p in own:
                        p.grad = None
                        p.data = p.data.to(dtype)
                    trained(optimizer, own, [[g.to(dtype) for g in step]
                                             for step in gradients[2 * i : 2 * i + 2]])
            self.assertSteps([p.double() for p in params], wanted)
        mixed = [torch.ones(3, dtype=dtype, requires_grad=True)
                 for dtype in (torch.float32, torch.float16, torch.float32)]
        trained(LearnedOptimizer(mixed, theta), mixed, random_gradients(mixed, 2))
        self.assertTrue(all((p != 1).all() for p in mixed))

    def test_memory_that_was_freed_and_another_shape_are_errors_that_change_nothing(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4)
        for freed, what in (("p", "tensor"), ("p.grad", "gradient")):
            q, p = (torch.ones(4, 5, requires_grad=True) for _ in range(2))
            optimizer = LearnedOptimizer([q, p], theta)
            q.grad, p.grad = torch.ones(4, 5), torch.ones(4, 5)
            if freed == "p.grad":
                p.grad = torch.ones(5, 4).t()  # a gradient with gaps is not read before either
            tensor = eval(freed)
            tensor.data.storage().resize_(0)
            with self.assertRaisesRegex(RuntimeError, r"parameter 1 of group 0, shape \[4, 5\], has "
                                        f"no memory in its {what}: it was freed; nothing was "
                                        "changed"):
                optimizer.step()
            self.assertTrue(torch.equal(q, torch.ones(4, 5)))
            self.assertEqual(len(optimizer.state), 0)
        p = torch.ones(4, 5, requires_grad=True)
        optimizer = LearnedOptimizer([p], theta)
        trained(optimizer, [p], [[torch.ones(4, 5)]])
        p.grad = None
        p.data = torch.ones(7, 7)
        with self.assertRaisesRegex(RuntimeError, r"parameter 0 of group 0, shape \[7, 7\], had "
                                    "another shape at its last update; nothing was changed"):
            trained(optimizer, [p], [[torch.ones(7, 7)]])
        self.assertTrue(torch.equal(p, torch.ones(7, 7)))

    def test_another_shape_is_an_error_too_where_its_state_is_as_long(self):
        for optimizer, shape in (({"type": "MLPLOpt", "hidden_size": 4}, (5, 3)),
                                 ({"type": "Celo2Base"}, (3, 4))):
            p = torch.ones(4, 3, requires_grad=True)
            stepped = LearnedOptimizer([p], self.theta(**optimizer))
            trained(stepped, [p], [[torch.ones(4, 3)]])
            stepped = copy.deepcopy(stepped)
            (p,) = stepped.param_groups[0]["params"]
            p.grad, p.data = None, torch.ones(shape)
            with self.assertRaisesRegex(RuntimeError, "had another shape at its last update"):
                trained(stepped, [p], [[torch.ones(shape)]])
            self.assertTrue(torch.equal(p, torch.ones(shape)))

    def test_new_memory_of_the_same_shape_is_updated(self):
        p = torch.ones(20, requires_grad=True)
        optimizer = LearnedOptimizer([p], self.theta(type="LearnableSGD"))
        trained(optimizer, [p], [[torch.ones(20)]])
        old = p.detach()
        p.data = torch.full((20,), 5.0)
        before = old.clone()
        trained(optimizer, [p], [[torch.ones(20)]])
        self.assertTrue(torch.equal(old, before))
        self.assertTrue((p != 5).all())

    def test_parameters_that_nobody_else_holds_are_stepped(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4)
        model = torch.nn.Linear(300, 200)
        optimizer = LearnedOptimizer(model.parameters(), theta)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        before = copy.deepcopy(list(model.parameters()))
        del model, p
        gc.collect()
        optimizer.step()
        for p, q in zip(optimizer.param_groups[0]["params"], before):
            self.assertFalse(torch.equal(p, q))

    def test_threads_may_step_one_optimizer(self):
        theta = self.theta(type="LearnableSGD")
        params = [torch.zeros(5000, requires_grad=True) for _ in range(4)]
        optimizer = LearnedOptimizer(params, theta)
        for p in params:
            p.grad = torch.ones(5000)
        optimizer.step()
        workers = [threading.Thread(target=lambda: [optimizer.step() for _ in range(50)])
                   for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        lr = -params[0].detach()[0] / optimizer.state[params[0]]["step"]
        self.assertTrue(torch.isfinite(lr))

    def test_the_default_type_of_torch_does_not_matter(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4, step_mult=0.1)
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        results = []
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            params = [p.float().detach().requires_grad_() for p in self.model(torch.float32)]
            for p in params:
                p.data = torch.full(p.shape, 0.5, dtype=torch.float32)
            optimizer = LearnedOptimizer(params, theta)
            gradients = [[torch.full(p.shape, 0.3, dtype=torch.float32) for p in params]] * 3
            trained(optimizer, params, gradients)
            optimizer.load_state_dict(optimizer.state_dict())
            results.append(trained(optimizer, params, gradients))
        for a, b in zip(*results):
            self.assertEqual(a.dtype, b.dtype)
            self.assertTrue(torch.equal(a, b))

    def test_an_optimizer_is_saved_and_loaded_whole(self):
        theta = self.theta(type="MLPLOpt", hidden_size=4, step_mult=0.1)
        params = self.model()
        optimizer = LearnedOptimizer(params, theta)
        gradients = random_gradients(params, 4)
        trained(optimizer, params, gradients[:2])
        file = io.BytesIO()
        torch.save((params, optimizer), file)
        file.seek(0)
        more = {"weights_only": False} if torch.__version__ >= "2" else {}
        copies, other = torch.load(file, **more)
        for a, b in zip(trained(optimizer, params, gradients[2:]),
                        trained(other, copies, gradients[2:])):
            self.assertTrue(torch.equal(a, b))


class Thetas(unittest.TestCase):
    def test_trained_optimizers_are_loaded_by_name_and_files_by_path(self):
        p = torch.ones(3, requires_grad=True)
        path = one_file.ROOT / "trained/mlp-fast.safetensors"
        results = []
        for theta in ("mlp-fast", lopt.load("mlp-fast"), path, str(path), lopt.Theta.read(path)):
            p = torch.ones(3, requires_grad=True)
            results += trained(LearnedOptimizer([p], theta), [p], [[torch.ones(3)]])
        p = torch.ones(3, requires_grad=True)
        results += trained(LearnedOptimizer.from_file(path, [p]), [p], [[torch.ones(3)]])
        for result in results[1:]:
            self.assertTrue(torch.equal(result, results[0]))
        self.assertFalse(torch.equal(results[0], torch.ones(3)))

    def test_a_batch_size_is_compared_with_those_of_the_file(self):
        p = torch.ones(3, requires_grad=True)
        path = one_file.ROOT / "trained/mlp-fast.safetensors"
        for optimizer in (LearnedOptimizer([p], "mlp-fast", batch_size=1),
                          LearnedOptimizer.from_file(path, [p], batch_size=1)):
            with self.assertWarnsRegex(UserWarning, r"batches of 1 \(there at least 128\)"):
                trained(optimizer, [p], [[torch.ones(3)]])

    def test_an_unknown_name_is_an_error_with_the_names(self):
        with self.assertRaisesRegex(lopt.Error, "^load: 'best' is neither a file nor a trained "
                                    "optimizer: celo2, fast, mlp, mlp-fast, recommended, tutorial$"):
            LearnedOptimizer([torch.ones(3, requires_grad=True)], "best")
        with self.assertRaisesRegex(lopt.Error, "^theta must be a path .*, got int$"):
            lopt.load(3)
        with self.assertRaisesRegex(lopt.Error, "tutorial; did you mean 'recommended'\\?$"):
            lopt.load("recomended")

    def test_values_of_another_type_or_number_are_an_error(self):
        theta = lopt.Theta.init({"type": "LearnableSGDM"})
        p = torch.ones(3, requires_grad=True)
        for values, text in (
                (theta.values.astype(float), "^lopt.torch.LearnedOptimizer: theta.values must be "
                 "float32, got float64$"),
                (theta.values[:1], r"^theta.values must have shape \[2\] for a LearnableSGDM, got "
                 r"\[1\]$")):
            with self.assertRaisesRegex(lopt.Error, text):
                LearnedOptimizer([p], lopt.Theta(theta.learned_optimizer, values))

    def test_what_is_changed_in_a_theta_later_has_no_effect(self):
        theta = lopt.Theta.init({"type": "LearnableSGD"})
        results = []
        for change in (0, 1):
            p = torch.ones(3, requires_grad=True)
            optimizer = LearnedOptimizer([p], theta)
            theta.values += change
            results += trained(optimizer, [p], [[torch.ones(3)]])
        self.assertTrue(torch.equal(*results))

    def test_an_optimizer_that_sees_all_tensors_is_an_error(self):
        theta = lopt.Theta.init({"type": "RNNMLPLOpt"})
        with self.assertRaisesRegex(ValueError, "lopt.torch.LearnedOptimizer: the learned "
                                    "optimizer's type must be one of MLPLOpt, .*; a RNNMLPLOpt sees "
                                    "all tensors, this class treats each by itself"):
            LearnedOptimizer([torch.ones(3, requires_grad=True)], theta)


if __name__ == "__main__":
    unittest.main()
