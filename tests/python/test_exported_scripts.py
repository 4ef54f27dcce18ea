"""Tests of the scripts that `lopt export --format torchscript` writes, against the one-file optimizer
and traces of google/learned_optimization. The environment is that of test_lopt_optimizer.
"""

import os
import unittest
import warnings

import test_lopt_optimizer as one_file
import torch
from test_lopt_optimizer import (OF_OTHERS, LearnedOptimizer, ThetaFile, golden_path,
                                 in_torch_order, lopt_optimizer, random_gradients,
                                 read_safetensors, run, trained, without)


@unittest.skipUnless(one_file.PROGRAM, "LOPT_PROGRAM does not name the program")
@unittest.skipIf(os.environ.get("LOPT_TORCH") == "OFF", "lopt was built without LibTorch")
class ExtremeInputs(one_file.TestCase):
    RULES, SHAPES = one_file.ExtremeInputs.RULES, one_file.ExtremeInputs.SHAPES
    near_start, drawn = one_file.ExtremeInputs.near_start, one_file.ExtremeInputs.drawn

    def test_exported_torch_scripts_step_as_the_one_file_under_inputs_of_any_size(self):
        exported = self.directory / "theta.pt"
        for rule in self.RULES[::int(os.environ.get("LOPT_RULES_EVERY", "1"))]:
            theta = self.near_start(rule)
            run("export", self.directory / "near_start.safetensors", "--format", "torchscript",
                "--out", exported)
            module = torch.jit.load(str(exported))
            for size, of_params in ((1e-42, False), (1e-20, False), (1e20, False), (1e36, False),
                                    (1e38, True)):
                params = self.drawn(size if of_params else 1, 1)
                trained_params = [p.clone().requires_grad_() for p in params]
                gradients = [self.drawn(1 if of_params else size, seed) for seed in (2, 3)]
                wanted = trained(LearnedOptimizer(trained_params, theta, num_steps=100),
                                 trained_params, gradients)
                for i, p in enumerate(params):
                    with self.subTest(rule=rule, size=size, of_params=of_params, shape=p.shape):
                        state = module.init_state(p)
                        for step, own in enumerate(gradients):
                            p, state = module.update(p, own[i], state, step, 100)
                        self.assertTrue(p.isfinite().all() and state.isfinite().all())
                        limit = 1e-5 * max(1, wanted[i].abs().max().item())
                        self.assertClose(p, wanted[i], limit)


@unittest.skipUnless(one_file.PROGRAM, "LOPT_PROGRAM does not name the program")
@unittest.skipIf(os.environ.get("LOPT_TORCH") == "OFF", "lopt was built without LibTorch")
class FilesOfTheProgram(one_file.TestCase):
    ALL_OPTIONS = one_file.FilesOfTheProgram.ALL_OPTIONS
    imported = one_file.FilesOfTheProgram.imported
    drawn = one_file.FilesOfTheProgram.drawn
    drawn_of_others = one_file.FilesOfTheProgram.drawn_of_others

    def test_exported_torch_scripts_of_optimizers_of_others_follow(self):
        for options in OF_OTHERS:
            path = self.drawn_of_others(options)
            run("export", path, "--format", "torchscript", "--out", self.directory / "theta.pt")
            module = torch.jit.load(str(self.directory / "theta.pt"))
            generator = torch.Generator().manual_seed(1)
            params = [torch.randn(shape, generator=generator, requires_grad=True)
                      for shape in ((5, 4), (6, 2, 3, 3), (5,), ())]
            scripted = [p.detach().clone() for p in params]
            states = [module.init_state(p) for p in scripted]
            optimizer = LearnedOptimizer.from_file(path, params, num_steps=12)
            for step, gradients in enumerate(random_gradients(params, 8)):
                trained(optimizer, params, [gradients])
                for i, gradient in enumerate(gradients):
                    scripted[i], states[i] = module.update(scripted[i], gradient, states[i], step,
                                                           12)
                    size = max(1, scripted[i].abs().max().item())
                    self.assertClose(params[i], scripted[i], 1e-5 * size)

    def test_lr_and_weight_decay_are_those_of_the_one_file(self):
        path = self.drawn_of_others(OF_OTHERS[0])
        run("export", path, "--format", "torchscript", "--out", self.directory / "theta.pt")
        module = torch.jit.load(str(self.directory / "theta.pt"))
        for options in ({"lr": 0.3}, {"weight_decay": 0.05}, {"lr": 0.3, "weight_decay": 0.05}):
            p = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
            scripted = p.detach().clone()
            state = module.init_state(scripted)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*weight_decay .* takes")
                optimizer = LearnedOptimizer.from_file(path, [p], num_steps=12, **options)
                for step, gradients in enumerate(random_gradients([p], 8)):
                    trained(optimizer, [p], [gradients])
                    scripted, state = module.update(scripted, gradients[0], state, step, 12,
                                                    **options)
            self.assertClose(p, scripted, 1e-5 * max(1, scripted.abs().max().item()))

    def test_an_exported_torch_script_refuses_a_loss_that_is_needed_and_not_finite(self):
        for options in ({"type": "Celo"}, {"type": "CeloAdam"}, {"type": "Sinv6"}):
            run("export", self.drawn_of_others(options), "--format", "torchscript", "--out",
                self.directory / "theta.pt")
            module = torch.jit.load(str(self.directory / "theta.pt"))
            p, gradient = torch.ones(4, 3), torch.ones(4, 3)
            state = module.init_state(p)
            for bad in (float("nan"), float("inf"), -float("inf"), 1e39):
                with self.assertRaisesRegex(
                        torch.jit.Error, f"{options['type']} is told the loss .* at step 3, which "
                        "is not finite in float32"):
                    module.update(p, gradient, state, 2, 5, bad)
            for good in (3e38, -3e38, 0.0):
                after, _ = module.update(p, gradient, state, 0, 5, good)
                self.assertTrue(after.isfinite().all())

    def test_an_exported_torch_script_with_all_options_follows_as_gradients_vanish(self):
        path = self.drawn(step_mult=1.0, **self.ALL_OPTIONS)
        run("export", path, "--format", "torchscript", "--out", self.directory / "theta.pt")
        module = torch.jit.load(str(self.directory / "theta.pt"))
        generator = torch.Generator().manual_seed(1)
        for scale in (1.0, 0.0):
            scripted = scale * torch.randn(4, 3, generator=generator)
            state = module.init_state(scripted)
            p = scripted.clone().requires_grad_()
            optimizer = LearnedOptimizer.from_file(path, [p], num_steps=30)
            for step in range(30):
                before = p.detach().clone()
                size = 5.0 if step == 10 else 0.0 if step in (0, 20) else 0.3 ** step
                gradient = size * torch.randn(4, 3, generator=generator)
                trained(optimizer, [p], [[gradient]])
                scripted, state = module.update(scripted, gradient, state, step, 30)
                self.assertClose(p, scripted, 1e-5)
                moved = (p.detach() - before).abs().max().item()
                if step in (0, 20):
                    self.assertEqual(moved, 0)
                if step == 1:
                    self.assertGreater(moved, 1e-4)
            self.assertLess(moved, 1e-10)
        with self.assertRaisesRegex(ValueError, "has made all 30 steps of its training"):
            trained(optimizer, [p], [[gradient]])

    def test_an_exported_torch_script_follows_the_golden_steps(self):
        for name in ("mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors",
                     "learnable_adam_steps.safetensors", "adafac_mlp_steps.safetensors"):
            path, _, _ = self.imported(name=name)
            run("export", path, "--format", "torchscript", "--out", self.directory / "theta.pt")
            module = torch.jit.load(str(self.directory / "theta.pt"))
            arrays, metadata = read_safetensors(golden_path(name))
            order = in_torch_order if "adafac" in name else torch.Tensor.clone
            for tensor, start in without("param0/", arrays).items():
                p = order(torch.tensor(start))
                state = module.init_state(p)
                for step in range(int(metadata["steps"])):
                    gradient = order(torch.tensor(arrays["gradient/" + tensor][step]))
                    p, state = module.update(p, gradient, state, step)
                    self.assertClose(p, order(torch.tensor(arrays["param/" + tensor][step])), 1e-6)
                # Late steps, which the traces do not reach.
                file = ThetaFile(path)
                rule = file.bind(torch.device("cpu"))
                seen, gradient = (file.in_rule_order(x) for x in (p, gradient))
                for step in (300, 7_000, 150_000):
                    fresh = lopt_optimizer._fresh_state(file, seen)
                    wanted, _ = module.update(p, file.in_torch_order(gradient, p.shape),
                                              module.init_state(p), step)
                    (change,) = rule.steps([seen], [gradient], [fresh], step, None, None)
                    self.assertClose(seen - change, file.in_rule_order(wanted), 2e-6)


if __name__ == "__main__":
    unittest.main()
