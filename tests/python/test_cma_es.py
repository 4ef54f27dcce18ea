"""Tests of meta-training by CMA-ES: with the package cma where it is installed, else with a stand-in
of the same interface."""

import contextlib
import importlib.util
import io
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import lopt
import numpy
from lopt import cma_es


CMA = importlib.util.find_spec("cma") is not None


class StandIn:
    """Draws around a mean, which moves to that of the best quarter."""

    def __init__(self, mean, std, options):
        self.mean, self.sigma, self._options = mean, std, options

    def ask(self):
        size = self._options["popsize"], self.mean.size
        return list(self.mean + self.sigma * self._options["randn"](*size))

    def tell(self, thetas, losses):
        best = numpy.argsort(losses)[: len(losses) // 4]
        self.mean = numpy.mean(numpy.array(thetas)[best], 0)
        self.sigma *= 0.8


def config(**options):
    """Gradient descent on a bowl: without momentum the rate .5 ends it in one step."""
    return {
        "meta_steps": 12,
        "seed": 3,
        "learned_optimizer": {"type": "LearnableSGDM", "learning_rate": 0.1, "momentum": 0.5},
        "estimators": [{"type": "FullES", "task": {"type": "QuadraticTask"}, "num_tasks": 2,
                        "meta_loss_log": 1e-8,
                        "lengths": {"type": "ConstantTruncationSchedule", "total_length": 3}}],
    } | options


@lopt.task
class SearchedRows:
    """The mean of rows, all moved by `shift`."""

    batch_size = 4
    shift = numpy.float32(0)

    def data(self):
        return numpy.sin(numpy.arange(40, dtype=numpy.float32)).reshape(20, 2) + self.shift

    def init(self, key):
        return {"w": key.normal(2)}

    def loss_and_grad(self, params, batch):
        difference = params["w"] - batch.mean(1)
        return numpy.square(difference).sum(1), {"w": 2 * difference}


class CmaEs(unittest.TestCase):
    def setUp(self):
        if not CMA:
            stand_in = types.SimpleNamespace(CMAEvolutionStrategy=StandIn)
            patch = mock.patch.dict(sys.modules, cma=stand_in)
            patch.start()
            self.addCleanup(patch.stop)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)

    def meta_train(self, *given, std=0.5, **options):
        return cma_es.meta_train(*given or (config(),), std=std, **options)

    def assert_error(self, text, *given, **options):
        with self.assertRaises(lopt.Error) as raised:
            cma_es.meta_train(*given, **options)
        self.assertIn(text, str(raised.exception))

    def test_the_best_gradient_descent_is_found(self):
        # The last loss, after two steps at the rate r from x by momentum m, is that of
        # x (1 - 2 r) (1 - 2 r) - 2 r m x, 0 where 4 r = 2 + m - sqrt(m^2 + 4 m), as 1/2 for m = 0.
        last = config(meta_steps=60)
        last["estimators"][0]["loss_type"] = "last"
        tensors = self.meta_train(last).tensors
        rate = float(numpy.exp(tensors["log_lr"][0]))
        momentum = 1 - float(numpy.exp(tensors["one_minus_momentum"][0]))
        self.assertLess(abs((1 - 2 * rate) ** 2 - 2 * rate * momentum), 0.02)

    def test_a_generation_compares_thetas_of_the_same_draws(self):
        seen = []
        self.meta_train(generations=2, population=8, callback=seen.append)
        self.assertEqual([g.number for g in seen], [0, 1])
        self.assertEqual({g.losses.shape for g in seen}, {(8,)})
        self.assertEqual(len({*seen[0].losses, *seen[1].losses}), 16)

    def test_another_generation_has_other_draws(self):
        # Thetas that hardly differ: their losses differ by the tasks, which a generation shares.
        seen = []
        self.meta_train(generations=2, std=1e-5, callback=seen.append)
        for generation in seen:
            self.assertLess(numpy.ptp(generation.losses), 1e-2)
        self.assertGreater(abs(seen[0].losses.mean() - seen[1].losses.mean()), 1e-1)
        normal, again = cma_es._Normal(lopt.Key(1)), cma_es._Normal(lopt.Key(1))
        first, second = normal(4, 3), normal(4, 3)
        self.assertEqual((first.shape, first.dtype), ((4, 3), numpy.float64))
        self.assertFalse((first == second).any())
        numpy.testing.assert_array_equal(again(4, 3), first)
        numpy.testing.assert_array_equal(again(4, 3), second)

    def test_threads_and_a_stop_change_no_bit(self):
        wanted = self.meta_train(threads=1).values
        numpy.testing.assert_array_equal(self.meta_train(threads=2).values, wanted)
        stopped = self.meta_train(generations=5, out=self.scratch)
        self.assertEqual(stopped.meta_steps, 5)
        self.assertNotEqual(stopped.values.tobytes(), wanted.tobytes())
        resumed = cma_es.meta_train(out=self.scratch, generations=12, resume=True)
        numpy.testing.assert_array_equal(resumed.values, wanted)
        written = lopt.load(self.scratch / "theta.safetensors")
        numpy.testing.assert_array_equal(written.values, wanted)

        def stop(generation):
            if generation.number == 4:
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.meta_train(out=self.scratch / "interrupted", callback=stop)
        resumed = cma_es.meta_train(out=self.scratch / "interrupted", resume=True)
        numpy.testing.assert_array_equal(resumed.values, wanted)

        # A longer search that is stopped, too, has its new length.
        longer = {"out": self.scratch / "longer", "resume": True}
        self.meta_train(generations=2, out=longer["out"])
        with self.assertRaises(KeyboardInterrupt):
            cma_es.meta_train(generations=12, callback=stop, **longer)
        resumed = cma_es.meta_train(**longer)
        numpy.testing.assert_array_equal(resumed.values, wanted)

    def test_another_seed_is_another_search(self):
        self.assertNotEqual(self.meta_train(seed=4).values[0], self.meta_train().values[0])

    def test_the_file_says_what_it_was_trained_on(self):
        theta = self.meta_train()
        self.assertEqual((theta.meta_steps, theta.seed, theta.trained_horizon), (12, 3, 3))
        self.assertEqual(theta.trained_range["longest_training"], 3)
        self.assertEqual(theta.config["estimators"][0]["task"]["type"], "QuadraticTask")
        self.assertTrue(theta.version)

    def test_frozen_weights_stay_and_init_theta_is_the_start(self):
        optimizer = {"type": "LearnableAdam", "learning_rate": 0.1}
        start = lopt.Theta.init(optimizer)
        start.values[:] -= 0.25
        start.write(self.scratch / "start.safetensors")
        given = config(learned_optimizer=optimizer, frozen=["one_minus_.*"],
                       init_theta=str(self.scratch / "start.safetensors"))
        tensors = self.meta_train(given).tensors
        for name, before in start.tensors.items():
            self.assertEqual(before[0] == tensors[name][0], name.startswith("one_minus_"), name)
        self.assert_error("match all tensors of theta", given | {"frozen": [".*"]})
        self.assert_error("1 is not frozen", config(frozen=[".*momentum"]))

    def test_wrong_input_is_an_error(self):
        self.assert_error("config is missing")
        self.assert_error("population must be an integer of at least 4, got 3", config(), population=3)
        self.assert_error("got 16.5", config(), population=16.5)
        self.assert_error("workers must be 1, got 2", config(workers=2))
        self.assert_error("weighting must be fixed, got equal_norm", config(weighting="equal_norm"))
        self.assert_error("wanted at least half", config(
            learned_optimizer={"type": "LearnableSGDM", "learning_rate": 1e30}))
        for std in 0, -1, float("nan"), float("inf"):
            self.assert_error("std must be a positive number", config(), std=std)
        self.assert_error("resume wants `out`", config(), resume=True)
        (self.scratch / "file").write_text("no directory")
        self.assert_error("file/run/search.lock: Not a directory", config(), out=self.scratch / "file/run")
        self.assert_error("holds no search", out=self.scratch, resume=True)
        with mock.patch.dict(sys.modules, cma=None):
            self.assert_error("pip install 'cma>=3'", config())
        pes = config()["estimators"][0] | {"type": "TruncatedPES"}
        pes.pop("loss_type", None)
        self.assert_error("is not of type FullES", config(estimators=[pes]))

    def test_a_search_is_resumed_as_it_was_alone(self):
        self.meta_train(generations=1, out=self.scratch, population=8)
        self.assert_error("holds search.pickle; resume", config(), out=self.scratch)
        again = {"out": self.scratch, "resume": True}
        self.assert_error("another population: 9; the search has 8", population=9, **again)
        self.assert_error("another std: 0.4; the search has 0.5", std=0.4, **again)
        self.assert_error("another seed: 4; the search has 3", seed=4, **again)
        self.assert_error("another learned_optimizer",
                          config(learned_optimizer={"type": "LearnableAdam"}), **again)
        self.assert_error("generations is 0, but the search has made 1", generations=0, **again)
        with mock.patch.object(cma_es, "_made_by", lambda: {"cma": "another"}):
            self.assert_error("another cma: 'another'", **again)
        # A schedule of theta_opt, which plays no part, may have another length.
        longer = config(theta_opt={"type": "Adam", "learning_rate": 0.1}, meta_steps=2)
        self.assertEqual(cma_es.meta_train(longer, **again).meta_steps, 2)
        (self.scratch / "search.pickle").write_bytes(b"damaged")
        self.assert_error("search.pickle is damaged", **again)

    def test_a_search_goes_on_only_with_the_data_that_it_began_with(self):
        self.addCleanup(setattr, SearchedRows, "shift", SearchedRows.shift)
        given = config()
        given["estimators"][0] |= {"task": {"type": "SearchedRows"}}
        again = {"out": self.scratch, "resume": True}
        self.meta_train(given, generations=1, out=self.scratch)
        SearchedRows.shift = numpy.float32(1)
        self.assert_error("another data (files, with their CRC-32): 'the data of SearchedRows ",
                          generations=2, **again)
        # Of a search of an earlier version that is not known.
        state = self.scratch / "search.pickle"
        search = pickle.loads(state.read_bytes())
        del search.data
        state.write_bytes(pickle.dumps(search))
        self.assertEqual(cma_es.meta_train(generations=2, **again).meta_steps, 2)

    def test_a_search_without_a_generation_is_replaced_or_resumed(self):
        wanted = self.meta_train(generations=1).values
        for options in {"config": config(), "std": 0.5}, {"resume": True}:
            out = self.scratch / str(len(options))
            with mock.patch.object(cma_es._Search, "step", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    self.meta_train(generations=1, out=out)
            values = cma_es.meta_train(generations=1, out=out, **options).values
            numpy.testing.assert_array_equal(values, wanted)
            self.assert_error("holds search.pickle; resume", config(), out=out)

    def test_the_population_may_be_an_integer_of_numpy(self):
        found = [self.meta_train(generations=1, population=population).values
                 for population in (8, numpy.int64(8))]
        numpy.testing.assert_array_equal(found[0], found[1])

    def test_two_searches_do_not_share_a_directory(self):
        def begin_others(generation):
            if generation.number == 0:
                for resume in False, True:
                    self.assert_error(f"{self.scratch} is in use: another search runs in it",
                                      config(), out=self.scratch, resume=resume)

        self.meta_train(generations=2, out=self.scratch, callback=begin_others)
        cma_es.meta_train(out=self.scratch, resume=True, generations=3)

        (self.scratch / "run").mkdir()
        (self.scratch / "run/theta.safetensors").touch()
        self.assert_error("holds theta.safetensors; resume", config(), out=self.scratch / "run")

    def test_the_command_to_go_on_can_be_pasted(self):
        path = self.scratch / "config.json"
        path.write_text(str(config()).replace("'", '"'))
        out = str(self.scratch / "my run")
        output = io.StringIO()
        with mock.patch.object(cma_es._Search, "step", side_effect=KeyboardInterrupt):
            with contextlib.redirect_stderr(output):
                self.assertEqual(cma_es.main([str(path), "--out", out]), 130)
        self.assertIn(f"python -m lopt.cma_es --out '{out}' --resume\n", output.getvalue())

    def test_a_search_of_a_version_without_a_key_is_resumed(self):
        self.meta_train(generations=1, out=self.scratch)
        state = self.scratch / "search.pickle"
        search = pickle.loads(state.read_bytes())
        del search.config["estimators"][0]["directions"]
        state.write_bytes(pickle.dumps(search))
        resumed = cma_es.meta_train(out=self.scratch, generations=2, resume=True)
        numpy.testing.assert_array_equal(resumed.values, self.meta_train(generations=2).values)

    def test_the_command_line(self):
        path = self.scratch / "config.json"
        path.write_text(str(config()).replace("'", '"'))
        run = ["--out", str(self.scratch / "run")]
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            self.assertEqual(cma_es.main([str(path), *run, "--generations", "2", "--std", "0.5"]), 0)
            self.assertEqual(cma_es.main([*run, "--generations", "12", "--resume"]), 0)
            self.assertEqual(cma_es.main([*run, "--resume", "--std", "1"]), 1)
        # A search that a program began goes on in another.
        source = str(pathlib.Path(lopt.__file__).parents[1])
        if CMA:
            program = [sys.executable, "-m", "lopt.cma_es", "--out", str(self.scratch / "other")]
            subprocess.run([*program, str(path), "--generations", "1"], check=True,
                           env=os.environ | {"PYTHONPATH": source}, stdout=subprocess.DEVNULL)
            self.assertEqual(
                cma_es.meta_train(out=self.scratch / "other", resume=True, generations=2).meta_steps,
                2)
        self.assertIn("generation 12: mean loss ", output.getvalue())
        self.assertIn("lopt.cma_es: cannot resume with another std", output.getvalue())
        numpy.testing.assert_array_equal(
            lopt.load(self.scratch / "run/theta.safetensors").values, self.meta_train().values)


if __name__ == "__main__":
    unittest.main()
