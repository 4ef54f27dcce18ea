"""Tests of meta-training one update at a time, without an experiment."""

import copy
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

import lopt

PROGRAM = os.environ.get("LOPT_PROGRAM")
UPDATES = 20
LENGTHS = lopt.ConstantTruncationSchedule(total_length=3)
OPTIMIZER = lopt.MLPLOpt(hidden_size=4)
THETA_OPT = lopt.Adam(learning_rate=0.01, schedule="cosine")
ESTIMATORS = [
    lopt.TruncatedPES(
        task=lopt.QuadraticTask(dim=5), num_tasks=3, trunc_length=4,
        lengths=lopt.LogUniformLengthSchedule(min_length=5, max_length=20)),
    lopt.FullES(task=lopt.ImageMLP(hidden=[4], batch_size=8), num_tasks=2, weight=2.0,
                lengths=LENGTHS),
]
OPTIONS = {"workers": 2, "windows_per_update": 2}


def make(**options):
    return lopt.SingleMachineGradientLearner(
        OPTIMIZER, ESTIMATORS, THETA_OPT, **OPTIONS | {"meta_steps": UPDATES} | options)


def run(learner, state, key, updates=UPDATES):
    """The state after all updates, and what came with each."""
    found = []
    for _ in range(updates):
        state, loss, metrics = learner.update(state, key, with_metrics=True)
        found.append((loss, metrics))
    return state, found


class SingleMachine(unittest.TestCase):
    KEY = lopt.Key(3)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def assert_same(self, first, second):
        self.assertEqual(first.tobytes(), second.tobytes())

    def test_theta_and_metrics_are_those_of_meta_train(self):
        for options in ({}, {"weighting": "equal_norm"}, {"gradient_sum": "tree"},
                        {"workers": 1, "windows_per_update": 1, "frozen": ["mlp/linear_0/.*"]},
                        {"threads": 1}, {"threads": 3}):
            with self.subTest(options):
                learner = make(**options)
                state, found = run(learner, learner.init(self.KEY), self.KEY)
                records = []
                training = lopt.meta_train(
                    learner.config | {"seed": 3}, callbacks=[lambda _, m: records.append(m)])
                self.assert_same(learner.theta(state).values, training.theta.values)
                self.assert_same(state.learner.theta, training.theta.values)
                self.assertEqual([metrics for _, metrics in found], records)
                self.assertEqual([loss for loss, _ in found],
                                 [metrics["meta_loss"] for metrics in records])
                self.assertEqual(dict(zip(training.totals, state.totals)), training.totals)
                self.assertEqual(learner.theta(state).trained_horizon,
                                 training.theta.trained_horizon)
                self.assertEqual(learner.theta(state).meta_steps, UPDATES)

    @unittest.skipUnless(PROGRAM, "no program")
    def test_theta_and_metrics_are_those_of_the_program(self):
        learner = make()
        (self.scratch / "config.json").write_text(json.dumps(learner.config | {"seed": 3}))
        subprocess.run([PROGRAM, "meta-train", self.scratch / "config.json", "--out",
                        self.scratch / "run"], check=True, stdout=subprocess.DEVNULL)
        state, found = run(learner, learner.init(self.KEY), self.KEY)
        self.assert_same(lopt.Theta.read(self.scratch / "run").values, learner.theta(state).values)
        lines = (self.scratch / "run/metrics.jsonl").read_text().splitlines()
        self.assertEqual([{"step": step} | metrics for step, (_, metrics) in enumerate(found)],
                         [json.loads(line) for line in lines])

    def test_without_metrics_there_are_none(self):
        learner = make()
        state = learner.init(self.KEY)
        with_metrics, without = learner.update(state, self.KEY, True), learner.update(state, self.KEY)
        self.assertEqual(without[2], {})
        self.assertEqual(without[1], with_metrics[1])
        self.assert_same(without[0].learner.theta, with_metrics[0].learner.theta)

    def test_states_do_not_change_and_go_through_pickles_and_copies(self):
        learner = make(weighting="equal_norm")
        state, _ = run(learner, learner.init(self.KEY), self.KEY, 3)
        saved = pickle.dumps(state)
        wanted, found = run(learner, state, self.KEY, 2)
        self.assertEqual(pickle.dumps(state), saved)
        for again in pickle.loads(saved), copy.deepcopy(state), copy.copy(state):
            following, metrics = run(learner, again, self.KEY, 2)
            self.assert_same(following.learner.theta, wanted.learner.theta)
            self.assertEqual(metrics, found)
            self.assertEqual(following.totals, wanted.totals)
        other = subprocess.run(
            [sys.executable, "-c", "import pickle, sys, test_single_machine as t\n"
             "state = pickle.loads(sys.stdin.buffer.read())\n"
             "state, _ = t.run(t.make(weighting='equal_norm'), state, t.SingleMachine.KEY, 2)\n"
             "sys.stdout.buffer.write(pickle.dumps(state))\n"],
            input=saved, stdout=subprocess.PIPE, check=True, cwd=pathlib.Path(__file__).parent)
        self.assertEqual(other.stdout, pickle.dumps(wanted))

    def test_a_theta_may_be_given_and_is_drawn_as_theta_init_draws_it(self):
        learner = make()
        drawn = lopt.Theta.init(OPTIMIZER, seed=3).values
        self.assert_same(learner.init(self.KEY).learner.theta, drawn)
        self.assert_same(learner.init(self.KEY, drawn + 1).learner.theta, drawn + 1)
        with self.assertRaisesRegex(lopt.Error, "theta has 3 numbers, the optimizer needs"):
            learner.init(self.KEY, numpy.ones(3, "float32"))
        with self.assertRaisesRegex(lopt.Error, "theta must be a contiguous NumPy array of float32"):
            learner.init(self.KEY, drawn.astype("float64"))

    def test_another_key_draws_other_windows(self):
        learner = make()
        state = learner.init(self.KEY)
        self.assertNotEqual(learner.update(state, self.KEY)[1],
                            learner.update(state, lopt.Key(4))[1])

    def test_threads_may_share_a_learner_and_a_state(self):
        learner = make()
        state = learner.init(self.KEY)
        wanted = learner.update(state, self.KEY)[0].learner.theta.tobytes()
        found = []
        threads = [threading.Thread(
            target=lambda: found.append(learner.update(state, self.KEY)[0].learner.theta.tobytes()))
            for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [wanted] * 8)

    def test_an_interrupt_comes_out_and_the_old_state_goes_on(self):
        script = (
            "import sys, lopt\n"
            "from test_single_machine import *\n"
            "learner, key = make(), lopt.Key(3)\n"
            "state, updates = learner.init(key), 0\n"
            "try:\n"
            "    while True:\n"
            "        state = learner.update(state, key)[0]\n"
            "        updates += 1\n"
            "        if updates == 3: print('far', flush=True)\n"
            "except KeyboardInterrupt:\n"
            "    steps = state.learner.outer_step\n"
            "    after = learner.update(state, key)[0].learner.outer_step\n"
            "    sys.exit(9 if (steps, after) == (updates, updates + 1) else 1)\n")
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                                   cwd=pathlib.Path(__file__).parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "far\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 9)

    def test_a_gradient_that_is_not_finite_is_skipped_or_ends_the_update(self):
        @lopt.task
        class Cliff:
            """Its losses are finite, and far apart: their difference by 2 std has no float32."""

            per_replica = True

            def init(self, key):
                return {"x": key.normal(1)}

            def loss_and_grad(self, params):
                return 3e38 * numpy.sign(params["x"][0]), params

        def learner(policy):
            return lopt.SingleMachineGradientLearner(
                lopt.LearnableSGD(learning_rate=1.0),
                [lopt.FullES(task=Cliff(), num_tasks=8, std=1e-3, lengths=LENGTHS)],
                lopt.SGD(learning_rate=1.0), non_finite_gradient=policy)

        skipping, ending = learner("skip"), learner("abort")
        start = skipping.init(self.KEY)
        with self.assertLogs("lopt", "WARNING"):
            state, _, metrics = skipping.update(start, self.KEY, with_metrics=True)
        self.assertEqual((metrics["gradient_norm"], metrics["skipped_updates"]), (numpy.inf, 1))
        self.assertEqual((state.learner.outer_step, state.learner.skipped_updates), (1, 1))
        self.assert_same(state.learner.theta, start.learner.theta)
        before = pickle.dumps(start)
        with self.assertRaisesRegex(lopt.Error, 'non_finite_gradient is "abort"'):
            ending.update(start, self.KEY)
        self.assertEqual(pickle.dumps(start), before)

    def test_wrong_arguments_are_errors(self):
        def assert_error(text, function, *arguments, **options):
            with self.assertRaisesRegex(lopt.Error, text):
                function(*arguments, **options)

        learner = lopt.SingleMachineGradientLearner
        assert_error("'learned_optimizer.type' is 'QuadraticTask'", learner, lopt.QuadraticTask(),
                     ESTIMATORS, lopt.Adam())
        assert_error("'theta_opt.type' is 'TruncatedPES'", learner, OPTIMIZER, ESTIMATORS,
                     ESTIMATORS[0])
        assert_error(r"'estimators\[0\].type' is 'Adam'", learner, OPTIMIZER, [lopt.Adam()],
                     lopt.Adam())
        assert_error("'estimators' must be a list of objects", learner, OPTIMIZER, ESTIMATORS[0],
                     lopt.Adam())
        assert_error("estimators: must name at least one", learner, OPTIMIZER, [], lopt.Adam())
        assert_error("begins with drawn weights", learner, OPTIMIZER, ESTIMATORS, OPTIMIZER)
        assert_error("needs the length of the run", learner, OPTIMIZER, ESTIMATORS, THETA_OPT)
        assert_error("'weighting' must be one of fixed, equal_norm", make, weighting="even")
        assert_error("'workers' must be an integer in", make, workers=0)
        assert_error("threads must be int or None", make(threads="2").init, self.KEY)
        assert_error("data_dir is /tmp, but no task", learner, OPTIMIZER, ESTIMATORS[:1],
                     lopt.Adam(), data_dir="/tmp")
        with self.assertRaisesRegex(TypeError, "worker"):
            make(worker=3)
        one, state = make(), make().init(self.KEY)
        assert_error("worker", make(workers=3).update, state, self.KEY)
        fewer = lopt.SingleMachineGradientLearner(OPTIMIZER, ESTIMATORS[:1], lopt.Adam(), workers=2)
        assert_error("estimators", fewer.update, state, self.KEY)
        larger = lopt.SingleMachineGradientLearner(
            OPTIMIZER.replace(hidden_size=5), ESTIMATORS, lopt.Adam(), **OPTIONS)
        assert_error("numbers", larger.update, state, self.KEY)
        momentum = lopt.SingleMachineGradientLearner(
            OPTIMIZER, ESTIMATORS, lopt.SGDM(learning_rate=0.1), **OPTIONS)
        assert_error("one of another optimizer", momentum.update, state, self.KEY)
        for wrong in None, state.learner, {}:
            with self.assertRaises(TypeError):
                one.update(wrong, self.KEY)
        with self.assertRaises(TypeError):
            one.update(state, 3)

    def test_an_update_inside_a_task_is_refused(self):
        learner = make()
        state = learner.init(self.KEY)

        @lopt.task
        class Nested:
            per_replica = True

            def init(self, key):
                learner.update(state, key)

            def loss_and_grad(self, params):
                return 0.0, params

        with self.assertRaisesRegex(lopt.Error, "a method of a task calls it"):
            lopt.SingleMachineGradientLearner(
                OPTIMIZER, [ESTIMATORS[1].replace(task=Nested())], lopt.Adam())


class LearnerAndWorkersApart(unittest.TestCase):
    def test_they_have_the_bits_of_the_single_machine(self):
        key = lopt.Key(3)
        single = make()
        wanted, _ = run(single, single.init(key), key)
        learner = lopt.GradientLearner(OPTIMIZER, THETA_OPT, meta_steps=UPDATES)
        estimators = lopt.Estimators(OPTIMIZER, ESTIMATORS)
        self.assertEqual(len(estimators), 2)
        state = learner.init(lopt.theta_key(key))
        keys = [lopt.worker_key(key, worker) for worker in range(2)]
        weights = learner.get_state_for_worker(state)
        workers = [lopt.init_worker_state(weights, estimators, key) for key in keys]
        for _ in range(UPDATES):
            weights = learner.get_state_for_worker(state)
            to_puts = [lopt.gradient_worker_compute(weights, estimators, key, worker, windows=2)
                       for key, worker in zip(keys, workers)]
            state, metrics = learner.update(state, to_puts)
        self.assertEqual(metrics["outer_step"], UPDATES - 1)
        self.assertEqual(state.theta.tobytes(), wanted.learner.theta.tobytes())
        self.assertEqual(learner.get_meta_params(state).tobytes(),
                         single.get_meta_params(wanted).tobytes())

    def test_meta_params_are_the_average_that_theta_opt_makes(self):
        learner = lopt.SingleMachineGradientLearner(
            OPTIMIZER, ESTIMATORS[:1], lopt.ScheduleFreeAdamW(learning_rate=0.1))
        key = lopt.Key(0)
        state, _ = run(learner, learner.init(key), key, 5)
        average = learner.get_meta_params(state)
        self.assertFalse(numpy.array_equal(average, state.learner.theta))
        training = lopt.meta_train(learner.config | {"meta_steps": 5})
        self.assertEqual(average.tobytes(), training.theta.values.tobytes())
        self.assertEqual(learner.theta(state).values.tobytes(), average.tobytes())

    def test_wrong_arguments_are_errors(self):
        def assert_error(text, function, *arguments, **options):
            with self.assertRaisesRegex(lopt.Error, text):
                function(*arguments, **options)

        learner = lopt.GradientLearner
        assert_error("^GradientLearner: 'weighting' must be one of", learner, OPTIMIZER, lopt.Adam(),
                     weighting="even")
        assert_error("'frozen' must be a list of texts", learner, OPTIMIZER, lopt.Adam(), frozen="w0")
        assert_error("'meta_steps' must be an integer", learner, OPTIMIZER, THETA_OPT, meta_steps=-1)
        assert_error("needs the length of the run", learner, OPTIMIZER, THETA_OPT)
        assert_error("'theta_opt' must be a dict, .*got the class Adam", learner, OPTIMIZER,
                     lopt.Adam)
        assert_error("'theta_opt.type' is 'QuadraticTask'", learner, OPTIMIZER, lopt.QuadraticTask())
        with self.assertRaises(TypeError):
            learner(OPTIMIZER, lopt.Adam(), weightng="fixed")
        with self.assertRaises(TypeError):
            learner(OPTIMIZER)
        assert_error(r"^Estimators: 'estimators\[0\].type' is 'Adam'", lopt.Estimators, OPTIMIZER,
                     [lopt.Adam()])
        assert_error("must name at least one", lopt.Estimators, OPTIMIZER, [])
        assert_error("data_dir is /tmp, but no task", lopt.Estimators, OPTIMIZER, ESTIMATORS[:1],
                     data_dir="/tmp")


if __name__ == "__main__":
    unittest.main()
