"""Tests of meta-training from Python: by one call and by hand."""

import copy
import json
import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import lopt
from lopt import _core
from lopt.callbacks import Progress, TensorBoard, WandB

PROGRAM = os.environ.get("LOPT_PROGRAM")

# That of the loop by hand in C++, which has the bits of the program's.
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CONFIG = lopt.load_config(EXAMPLES / "meta_train_loop/config.json")


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def assert_error(self, text, function, *arguments, **options):
        with self.assertRaises(lopt.Error) as caught:
            function(*arguments, **options)
        self.assertEqual(str(caught.exception), text)

    def assert_same(self, first, second):
        self.assertEqual(first.tobytes(), second.tobytes())


class OneCall(InScratch):
    @unittest.skipUnless(PROGRAM, "no program")
    def test_theta_is_that_of_the_program_whatever_the_threads(self):
        path = self.scratch / "config.json"
        path.write_text(json.dumps(CONFIG))
        subprocess.run([PROGRAM, "meta-train", path, "--out", self.scratch / "run"], check=True,
                       stdout=subprocess.DEVNULL)
        theta = lopt.Theta.read(self.scratch / "run/theta.safetensors")
        for threads in 1, 3:
            self.assert_same(lopt.meta_train(CONFIG, threads=threads).theta.values, theta.values)
        training = lopt.meta_train(path, out=self.scratch / "own")
        own = lopt.Theta.read(training.theta_path)
        self.assert_same(own.values, theta.values)
        self.assertEqual((own.config, own.trained_horizon), (theta.config, theta.trained_horizon))
        for name in ["config.json", "metrics.jsonl"]:
            self.assertEqual((self.scratch / "own" / name).read_text(),
                             (self.scratch / "run" / name).read_text())

    def test_a_callback_gets_each_record_of_the_metrics(self):
        records = []
        lopt.meta_train("smoke", out=self.scratch / "run",
                        callbacks=[lambda step, metrics: records.append({"step": step} | metrics)])
        lines = (self.scratch / "run/metrics.jsonl").read_text().splitlines()
        self.assertEqual(len(records), 20)
        self.assertEqual([json.loads(line) for line in lines], records)

    def test_what_a_callback_raises_comes_out_and_the_run_can_go_on(self):
        raised = KeyError("mine")

        def callback(step, metrics):
            if step == 7:
                raise raised

        with self.assertRaises(KeyError) as caught:
            lopt.meta_train("smoke", out=self.scratch / "run", callbacks=[callback])
        self.assertIs(caught.exception, raised)
        manifest = json.loads((self.scratch / "run/manifest.json").read_text())
        self.assertEqual((manifest["status"], manifest["updates"]), ("interrupted", 8))
        training = lopt.meta_train(resume=True, out=self.scratch / "run")
        self.assertEqual(training.updates, 12)
        self.assert_same(training.theta.values, lopt.meta_train("smoke").theta.values)

    def test_a_run_of_an_earlier_version_goes_on(self):
        run = self.scratch / "run"
        lopt.meta_train(CONFIG | {"meta_steps": 2}, out=run)
        config = json.loads((run / "config.json").read_text()) | {"meta_steps": 4}
        for estimator in config["estimators"]:
            estimator["schedule"] = estimator.pop("lengths")
        (run / "config.json").write_text(json.dumps(config))
        training = lopt.meta_train(resume=True, out=run)
        self.assertEqual(training.updates, 2)
        whole = lopt.meta_train(CONFIG | {"meta_steps": 4})
        self.assert_same(training.theta.values, whole.theta.values)

    def test_an_interrupt_ends_the_run_with_a_checkpoint_that_goes_on_to_the_same_bits(self):
        script = (
            "import json, sys, lopt\n"
            "config, out = json.loads(sys.argv[1]), sys.argv[2]\n"
            "try:\n"
            "    lopt.meta_train(config, out=out)\n"
            "except KeyboardInterrupt:\n"
            "    sys.exit(9)\n")
        # Records are rare, so that no Python runs when the signal comes.
        rare = CONFIG | {"metrics_steps": 10**6, "checkpoint_steps": 5}
        endless = json.dumps(rare | {"meta_steps": 10**9})
        process = subprocess.Popen([sys.executable, "-c", script, endless, self.scratch / "run"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while len(list(self.scratch.glob("run/checkpoints/step-*"))) < 2:
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, 9)
        updates = json.loads((self.scratch / "run/manifest.json").read_text())["updates"]
        config = rare | {"meta_steps": updates + 5}
        resumed = lopt.meta_train(config, resume=True, out=self.scratch / "run")
        self.assertEqual(resumed.updates, 5)
        self.assert_same(resumed.theta.values, lopt.meta_train(config).theta.values)

    def test_a_run_of_a_daemon_thread_ends_in_order_when_python_ends(self):
        script = (
            "import json, pathlib, sys, threading, lopt\n"
            "config, out = json.loads(sys.argv[1]), sys.argv[2]\n"
            "far = threading.Event()\n"
            "callback = lambda step, metrics: step > 10 and far.set()\n"
            "def work():\n"
            "    lopt.meta_train(config, out=out, callbacks=[callback])\n"
            "    print('it came back')\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "far.wait()\n")
        endless = json.dumps(CONFIG | {"meta_steps": 10**9})
        ended = subprocess.run([sys.executable, "-c", script, endless, self.scratch / "run"],
                               capture_output=True, text=True, timeout=100)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))
        manifest = json.loads((self.scratch / "run/manifest.json").read_text())
        self.assertEqual(manifest["status"], "interrupted")
        config = CONFIG | {"meta_steps": manifest["updates"] + 2}
        resumed = lopt.meta_train(config, resume=True, out=self.scratch / "run")
        self.assertEqual(resumed.updates, 2)

    def test_a_process_that_was_forked_from_a_run_ends(self):
        script = (
            "import json, os, sys, threading, lopt\n"
            "config = json.loads(sys.argv[1])\n"
            "far = threading.Event()\n"
            "callback = lambda step, metrics: step > 10 and far.set()\n"
            "work = lambda: lopt.meta_train(config, callbacks=[callback])\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "far.wait()\n"
            "child = os.fork()\n"
            "if child == 0: sys.exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n")
        endless = json.dumps(CONFIG | {"meta_steps": 10**9})
        ended = subprocess.run([sys.executable, "-W", "ignore", "-c", script, endless],
                               capture_output=True, text=True, timeout=100)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "7\n", ""))

    def test_a_run_keeps_its_instruction_set_beside_another(self):
        best = _core.isa()
        if best == "scalar":
            self.skipTest("this machine has one instruction set")
        self.addCleanup(_core.pin_isa, best)
        calls = {
            "pin_isa": lambda isa: _core.pin_isa(isa),
            "meta_train": lambda isa: lopt.meta_train("smoke", isa=isa),
            "evaluate": lambda isa: lopt.evaluate([], "smoke", baselines="SGD", isa=isa),
            "fit": lambda isa: lopt.fit(lopt.FixedDimQuadraticFamily(dim=3), steps=24, updates=0,
                                        trials=2, isa=isa, out=self.scratch / "fit")}
        refused = []

        def callback(step, metrics):
            if step != 3:
                return
            for name, call in calls.items():
                with self.assertRaises(lopt.Error) as caught:
                    call("scalar")
                refused.append(str(caught.exception))
            _core.pin_isa(best)

        training = lopt.meta_train("smoke", callbacks=[callback])
        self.assertEqual(refused, [
            f"{name}: wanted the instruction set scalar, but another run of this process uses {best}, "
            f"and all of a process use the same; wait for its end, or take {best}" for name in calls])
        self.assertEqual(_core.isa(), best)
        self.assert_same(training.theta.values, lopt.meta_train("smoke").theta.values)
        _core.pin_isa("scalar")

    def test_what_is_logged_goes_to_pythons_logger(self):
        lopt.meta_train("smoke", out=self.scratch / "run")
        with self.assertLogs("lopt", "INFO") as logged:
            lopt.meta_train(load_longer("smoke"), out=self.scratch / "run", resume=True)
        checkpoint = self.scratch / "run/checkpoints/step-00000020"
        self.assertEqual(logged.output, [f"INFO:lopt:resuming from {checkpoint}"])
        script = ("import sys, lopt\n"
                  "lopt.meta_train('smoke', out=sys.argv[1], overwrite=True)\n"
                  "lopt.meta_train(lopt.load_config('smoke') | {'meta_steps': 22}, out=sys.argv[1],\n"
                  "                resume=True)\n")
        quiet = subprocess.run([sys.executable, "-c", script, self.scratch / "run"],
                               capture_output=True, text=True, check=True)
        self.assertEqual((quiet.stdout, quiet.stderr), ("", ""))

    def test_an_interrupt_while_something_is_logged_is_not_lost(self):
        class Interrupting(logging.Handler):
            def emit(self, record):
                raise KeyboardInterrupt

        lopt.meta_train("smoke", out=self.scratch / "run")
        logger, handler = logging.getLogger("lopt"), Interrupting()
        logger.addHandler(handler)
        logger.setLevel("INFO")
        self.addCleanup(logger.setLevel, "NOTSET")
        self.addCleanup(logger.removeHandler, handler)
        with self.assertRaises(KeyboardInterrupt):
            lopt.meta_train(load_longer("smoke", 10**9), out=self.scratch / "run", resume=True)

    def test_wrong_arguments_are_errors(self):
        def assert_error(text, *arguments, **options):
            self.assert_error(text, lopt.meta_train, *arguments, **options)

        assert_error("What to train is missing: a config, or resume=True with out, the directory of "
                     "a run")
        assert_error("threads must be int or None, got str", "smoke", threads="2")
        assert_error("ThreadPool: the number of threads must be at least 1 and at most 1024, got 0", "smoke", threads=0)
        assert_error("a callback must be a function of (step, metrics) or a lopt.Callback, got int",
                     "smoke", callbacks=[3])
        assert_error(f"cannot resume: {self.scratch}/none holds no run", "smoke", resume=True,
                     out=self.scratch / "none")
        assert_error(f"cannot resume: {self.scratch}/none holds no run", resume=True,
                     out=self.scratch / "none")
        assert_error("out must be a path without NUL, got 'a\\x00b'", "smoke", out="a\0b")
        assert_error("out must be text that UTF-8 can write, got '\\udcff'", "smoke", out="\udcff")
        assert_error("out must be a path (str or os.PathLike), got int", "smoke", out=3)
        assert_error("config: 'name' must be text that UTF-8 can write, got '\\udcff'",
                     lopt.load_config("smoke") | {"name": "\udcff"})
        with self.assertRaisesRegex(lopt.Error, "File name too long"):
            lopt.meta_train("smoke", out=self.scratch / ("x" * 300))
        with self.assertRaisesRegex(lopt.Error, "'quantum'"):
            lopt.meta_train("smoke", isa="quantum")
        with self.assertRaisesRegex(lopt.Error, "'tpu' is none; choose cpu, cuda"):
            lopt.meta_train("smoke", device="tpu")
        with self.assertRaises(TypeError):
            lopt.meta_train("smoke", callbacks=[lambda: None])


class SecondRun(InScratch):
    """What a notebook meets when a cell is run again."""

    def assert_refused(self, text, *arguments, **options):
        self.assert_error(text, lopt.meta_train, *arguments, **options)

    def test_it_is_refused_resumed_or_begun_anew(self):
        run = self.scratch / "run"
        first = lopt.meta_train("smoke", out=run, steps=5)
        self.assert_refused(
            f"{run} holds a run already: resume it (resume=True), replace it (overwrite=True), or "
            "choose another directory", "smoke", out=run, steps=5)
        longer = lopt.meta_train(out=run, resume=True, steps=8)
        self.assertEqual((first.updates, longer.updates), (5, 3))
        self.assert_same(longer.theta.values, lopt.meta_train("smoke", steps=8).theta.values)
        again = lopt.meta_train("smoke", out=run, steps=5, overwrite=True)
        self.assertEqual(again.updates, 5)
        self.assert_same(again.theta.values, first.theta.values)

    def test_a_config_in_the_output_directory_is_not_replaced(self):
        own = self.scratch / "config.json"
        own.write_text(json.dumps(CONFIG))
        text = (f"out: {self.scratch} holds the config file itself, which would be replaced; choose "
                "another directory")
        for options in {}, {"overwrite": True}:
            self.assert_refused(text, own, out=self.scratch, **options)
            self.assert_error(text, lopt.evaluate, config=own, out=self.scratch, **options)
        self.assertEqual(json.loads(own.read_text()), CONFIG)

    def test_steps_and_seed_are_the_keys_of_the_config(self):
        wanted = lopt.meta_train(CONFIG | {"meta_steps": 3, "seed": 11}).theta
        rest = {key: value for key, value in CONFIG.items() if key not in ("meta_steps", "seed")}
        path = self.scratch / "config.json"
        path.write_text(json.dumps(CONFIG))
        for config in rest, rest | {"seed": 11}, path:
            theta = lopt.meta_train(config, steps=3, seed=11).theta
            self.assertEqual((theta.config["meta_steps"], theta.config["seed"]), (3, 11))
            self.assert_same(theta.values, wanted.values)
        self.assertEqual(lopt.meta_train("smoke", steps=0, seed=0).theta.config["seed"], 0)

    def test_a_config_that_says_otherwise_than_an_argument_is_an_error(self):
        self.assert_refused("meta_train: steps=3, but the config has 'meta_steps': 30; give one of "
                            "the two", CONFIG | {"meta_steps": 30}, steps=3)
        self.assert_refused("meta_train: seed=0, but the config has 'seed': 5; give one of the two",
                            CONFIG | {"seed": 5}, seed=0)
        with self.assertRaisesRegex(lopt.Error, "'meta_steps' must be .*, got \"3\""):
            lopt.meta_train("smoke", steps="3")

    def test_arguments_that_do_not_go_together_are_errors(self):
        run = self.scratch / "run"
        self.assert_refused("resume and overwrite exclude each other", "smoke", out=run, resume=True,
                            overwrite=True)
        for options in {"resume": True}, {"overwrite": True}:
            self.assert_refused("resume and overwrite need an output directory (out=)", "smoke",
                                **options)
        self.assert_refused("from_step=STEP says where to go on; it wants resume=True", "smoke",
                            out=run, from_step=3)
        self.assertFalse(run.exists())

    def test_what_cannot_be_resumed_says_so_in_the_words_of_python(self):
        best = _core.isa()
        if best == "scalar":
            self.skipTest("this machine has one instruction set")
        self.addCleanup(_core.pin_isa, best)
        run = self.scratch / "run"
        lopt.meta_train("smoke", out=run, steps=2, isa="scalar")
        checkpoint = run / "checkpoints/step-00000002"
        self.assert_refused(
            f"cannot resume from {checkpoint}: it was computed on instruction set scalar, this "
            f"process uses {best}, so the result would have other bits; pin it (isa), or allow the "
            "change (allow_isa_change=True)", out=run, resume=True, steps=3, isa=best)
        for file in checkpoint.iterdir():
            file.write_bytes(b"")
        with self.assertRaisesRegex(lopt.Error, r"To go on from another one: from_step=STEP; valid"):
            lopt.meta_train(out=run, resume=True, steps=3, isa="scalar")


def load_longer(preset, steps=24):
    return lopt.load_config(preset) | {"meta_steps": steps}


class FakeWriter:
    def __init__(self):
        self.scalars, self.hparams = [], []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def add_hparams(self, hparams, metrics):
        self.hparams.append((hparams, metrics))


class FakeRun:
    def __init__(self):
        self.config, self.summary, self.logged = {}, {}, []

    def log(self, metrics, step):
        self.logged.append((step, metrics))


class Adapters(unittest.TestCase):
    def test_tensorboard_gets_scalars_and_hparams(self):
        writer = FakeWriter()
        lopt.meta_train("smoke", callbacks=[TensorBoard(writer)])
        losses = [(value, step) for name, value, step in writer.scalars if name == "meta_loss"]
        self.assertEqual([step for _, step in losses], list(range(20)))
        [(hparams, metrics)] = writer.hparams
        self.assertEqual(hparams["estimators.0.std"], 0.01)
        self.assertEqual(hparams["estimators.1.task.hidden.0"], 32)
        self.assertEqual(metrics["final/meta_loss"], losses[-1][0])
        for value in hparams.values():
            self.assertIsInstance(value, (bool, int, float, str))

    def test_weights_and_biases_gets_config_log_and_summary(self):
        run = FakeRun()
        lopt.meta_train("smoke", callbacks=[WandB(run)])
        self.assertEqual(run.config["meta_steps"], 20)
        self.assertEqual([step for step, _ in run.logged], list(range(20)))
        self.assertEqual(run.summary, {"updates": 20, "theta": ""})

    def test_progress_is_told_to_the_last_update(self):
        class Stream:
            text = ""

            def write(self, text):
                self.text += text

            def flush(self):
                pass

        stream = Stream()
        lopt.meta_train("smoke", callbacks=[Progress(stream)])
        self.assertRegex(stream.text.split("\r")[-1], r"^20/20  .* updates/s  loss [0-9.]+ *\n$")


class ByHand(InScratch):
    def run_by_hand(self, config):
        experiment = lopt.Experiment(config)
        learner, run_key = experiment.learner, experiment.run_key
        state = learner.init(lopt.theta_key(run_key))
        weights = learner.get_state_for_worker(state)
        workers = [
            lopt.init_worker_state(weights, experiment.estimators(w), lopt.worker_key(run_key, w))
            for w in range(experiment.workers)
        ]
        for _ in range(experiment.config["meta_steps"]):
            weights = learner.get_state_for_worker(state)
            gradients = [
                lopt.gradient_worker_compute(weights, experiment.estimators(w),
                                             lopt.worker_key(run_key, w), worker)
                for w, worker in enumerate(workers)
            ]
            state, summary = learner.update(state, gradients)
        return experiment, state, summary, workers, gradients

    def test_the_loop_by_hand_gives_the_bits_of_the_run(self):
        for config in CONFIG, CONFIG | {"weighting": "equal_norm"}:
            experiment, state, summary, workers, _ = self.run_by_hand(config)
            training = lopt.meta_train(config)
            self.assert_same(state.theta, training.theta.values)
            self.assertEqual(summary["outer_step"], 29)
            self.assertEqual((state.outer_step, state.skipped_updates), (30, 0))
            self.assertEqual(workers[1].windows, 30)
            theta = lopt.Theta(**experiment.theta(state))
            theta.write(self.scratch / "hand.safetensors")
            training.theta.write(self.scratch / "run.safetensors")
            self.assertEqual((self.scratch / "hand.safetensors").read_bytes(),
                             (self.scratch / "run.safetensors").read_bytes())

    def test_what_a_worker_puts_is_numpy_arrays(self):
        experiment, state, _, workers, gradients = self.run_by_hand(CONFIG | {"meta_steps": 1})
        to_put = gradients[0]
        self.assertEqual(to_put.gradient.dtype, numpy.float32)
        self.assertEqual(to_put.gradient.shape, state.theta.shape)
        self.assertEqual(to_put.counts["inner_steps"], 640)
        self.assertGreater(to_put.estimators[0]["gradient_norm"], 0)
        self.assertIn("count", state.theta_opt)
        self.assertTrue(workers[0].estimators[0])
        # It can be changed, or made anew from an array.
        learner = experiment.learner
        first = learner.init(lopt.theta_key(experiment.run_key))
        copy = lopt.AggregatedGradient(to_put.gradient.copy(), 0, to_put.mean_loss)
        self.assert_same(learner.update(first, [to_put])[0].theta,
                         learner.update(first, [copy])[0].theta)
        to_put.gradient[:] = numpy.nan
        self.assertEqual(learner.update(first, [to_put])[0].skipped_updates, 1)

    def test_states_go_through_pickles_and_copies(self):
        config = CONFIG | {"weighting": "equal_norm"}
        experiment, state, _, workers, gradients = self.run_by_hand(config | {"meta_steps": 3})
        key = lopt.worker_key(experiment.run_key, 0)

        def step(state, weights, worker, gradient):
            """What comes of a further update."""
            output = lopt.gradient_worker_compute(weights, experiment.estimators(0), key, worker)
            following, _ = experiment.learner.update(state, [output])
            return (following.theta.tobytes(), following.outer_step, following.skipped_updates,
                    worker.windows, gradient.gradient.tobytes(), gradient.mean_loss,
                    gradient.counts, gradient.estimators, output)

        weights = experiment.learner.get_state_for_worker(state)
        objects = state, weights, workers[0], gradients[0]
        again = [pickle.loads(pickle.dumps(objects)), copy.deepcopy(objects)]
        *wanted, output = step(*objects)
        for copied in again:
            self.assertEqual(step(*copied)[:-1], tuple(wanted))
        self.assert_same(pickle.loads(pickle.dumps(output)).gradient, output.gradient)

    def test_views_keep_what_they_look_at(self):
        state = self.run_by_hand(CONFIG | {"meta_steps": 1})[1]
        theta, copy = state.theta, state.theta.copy()
        del state
        numpy.ones(10**6)
        self.assert_same(theta, copy)

    def test_wrong_arrays_and_states_are_errors(self):
        experiment = lopt.Experiment(CONFIG)
        learner = experiment.learner
        state = learner.init(lopt.Key(0))
        size = state.theta.size

        assert_error = self.assert_error
        wanted = "theta must be a contiguous NumPy array of float32 numbers with one dimension, got "
        assert_error(wanted + "float64 of 1 dimensions", learner.init_with, numpy.ones(size))
        assert_error(wanted + "float32 of 1 dimensions, 2 elements apart", lopt.WorkerWeights,
                     numpy.ones(2 * size, "float32")[::2], 0)
        gradient = lopt.AggregatedGradient(numpy.ones(3, "float32"), 0, 0.0)
        with self.assertRaisesRegex(lopt.Error, "3 numbers"):
            learner.update(state, [gradient])
        late = lopt.AggregatedGradient(numpy.ones(size, "float32"), 5, 0.0)
        with self.assertRaisesRegex(lopt.Error, "outer step 5"):
            learner.update(state, [late])
        with self.assertRaises(lopt.Error):
            learner.update(state, [])
        assert_error("there is no worker 2; there are 2", experiment.estimators, 2)
        weights = learner.get_state_for_worker(state)
        worker = lopt.init_worker_state(weights, experiment.estimators(0), lopt.Key(1))
        with self.assertRaises(lopt.Error):
            lopt.gradient_worker_compute(weights, experiment.estimators(0), lopt.Key(1), worker, 0)
        with self.assertRaises(TypeError):
            lopt.gradient_worker_compute(weights, None, lopt.Key(1), worker)
        short = lopt.WorkerWeights(numpy.ones(3, "float32"), 0)
        with self.assertRaisesRegex(lopt.Error, "3 numbers"):
            lopt.gradient_worker_compute(short, experiment.estimators(0), lopt.Key(1), worker)


def descent(lengths, weights=(1,)):
    """Gradient descent on bowls, for episodes of these lengths; theta is the rate's logarithm."""
    return lopt.Experiment({
        "learned_optimizer": {"type": "LearnableSGD"},
        "estimators": [{
            "type": "FullES",
            "task": {"type": "QuadraticTask"},
            "num_tasks": 3,
            "weight": weight,
            "lengths": {"type": "ConstantTruncationSchedule", "total_length": length},
        } for length, weight in zip(lengths, weights)],
    })


class AskAndTell(InScratch):
    KEY = lopt.Key(5)
    THETAS = numpy.log(numpy.array([[0.1], [0.3], [0.01], [0.6], [0.2]], "float32"))

    def losses(self, experiment, thetas=THETAS, **options):
        return lopt.meta_losses(thetas, experiment.estimators(), self.KEY, **options)

    def test_losses_are_those_of_gradient_descent(self):
        # The bowls are sum x^2, so each step has (1 - 2 rate)^2 of the loss of the one before.
        start = self.losses(descent([1]))
        losses = self.losses(descent([20]))
        self.assertEqual((losses.dtype, losses.shape), (numpy.float64, (5,)))
        for k, theta in enumerate(self.THETAS):
            rest = (1 - 2 * numpy.exp(numpy.float64(theta[0]))) ** 2
            wanted = start[k] * numpy.mean(rest ** numpy.arange(20))
            self.assertAlmostEqual(losses[k] / wanted, 1, 5)

    def test_a_loss_depends_on_its_theta_the_key_and_the_step_alone(self):
        experiment = descent([20, 40], [1, 2])
        losses = self.losses(experiment)
        self.assertEqual(len(set(losses)), 5)
        for threads in 1, 2:
            self.assert_same(self.losses(experiment, threads=threads), losses)
        order = [3, 0, 4, 2, 1]
        self.assert_same(self.losses(experiment, self.THETAS[order]), losses[order])
        self.assert_same(self.losses(experiment, self.THETAS[2:3]), losses[2:3])
        self.assertFalse(set(self.losses(experiment, step=1)) & set(losses))
        self.assert_same(self.losses(experiment, step=0), losses)

    def test_a_training_that_diverges_has_an_infinite_loss(self):
        thetas = numpy.array([[-3], [60]], "float32")
        losses = self.losses(descent([20]), thetas)
        self.assertTrue(numpy.isfinite(losses[0]))
        self.assertEqual(losses[1], numpy.inf)

    def test_the_best_theta_is_written_as_any_other(self):
        experiment = descent([20])
        best = self.THETAS[self.losses(experiment).argmin()]
        self.assertAlmostEqual(float(numpy.exp(best[0])), 0.6, 6)  # .5 is the best of all
        path = self.scratch / "best.safetensors"
        lopt.Theta(experiment.config["learned_optimizer"], best, trained_horizon=20).write(path)
        self.assert_same(lopt.Theta.read(path).values, best)
        self.assertTrue(all(one.within for one in lopt.golden_deviations(path)))

    def test_wrong_thetas_and_estimators_are_errors(self):
        experiment = descent([20])

        def assert_error(text, thetas, experiment=experiment, **options):
            self.assert_error(text, self.losses, experiment, thetas, **options)

        wanted = ("thetas must be a contiguous NumPy array of float32 numbers with two dimensions, "
                  "got ")
        assert_error(wanted + "float64 of 2 dimensions", self.THETAS.astype("float64"))
        assert_error(wanted + "float32 of 1 dimensions", self.THETAS[0])
        assert_error(wanted + "float32 of 2 dimensions, 2 elements apart", self.THETAS[::2])
        window = numpy.lib.stride_tricks.sliding_window_view(self.THETAS[:, 0], 2)
        assert_error(wanted + "float32 of 2 dimensions, 1 elements apart", window)
        assert_error("thetas must be a NumPy array of float32 numbers, got list", [[0.0]])
        assert_error("meta-losses: no thetas, wanted at least one", self.THETAS[:0])
        assert_error("meta-losses: step is -1, wanted at least 0", self.THETAS, step=-1)
        assert_error("estimator 0_QuadraticTask is for a theta of 1 numbers, got 3",
                     numpy.zeros((2, 3), "float32"))
        assert_error("FullES: theta 1 has a number that is not finite",
                     numpy.array([[0], [numpy.nan]], "float32"))
        assert_error("meta-losses: estimator 0_FixedDimQuadraticFamily is not of type FullES, which "
                     "runs whole episodes",
                     lopt.Theta.init(CONFIG["learned_optimizer"]).values[None],
                     lopt.Experiment(CONFIG))
        with self.assertRaises(TypeError):
            lopt.meta_losses(self.THETAS, None, self.KEY)


if __name__ == "__main__":
    unittest.main()
