"""Tests of evaluations and reports from Python."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import lopt
from lopt import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
MLP_FAST = ROOT / "trained/mlp-fast.safetensors"
PROGRAM = os.environ.get("LOPT_PROGRAM")


def without_times(runs):
    left_out = ("seconds", "train_loss", "test_part_loss")  # the last two are arrays in Python
    return [{name: value for name, value in run.items() if name not in left_out} for run in runs]


class Evaluations(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def assert_error(self, text, *arguments, **options):
        with self.assertRaises(lopt.Error) as caught:
            lopt.evaluate(*arguments, **options)
        self.assertEqual(str(caught.exception), text)

    def of_the_program(self, *arguments):
        """The runs of `lopt eval --preset smoke` with these arguments."""
        subprocess.run([PROGRAM, "eval", "--preset", "smoke", *arguments, "--out",
                        self.scratch / "program"], check=True, stdout=subprocess.DEVNULL)
        lines = (self.scratch / "program/results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @unittest.skipUnless(PROGRAM, "no program")
    def test_trained_optimizers_by_name_have_the_losses_that_the_program_gives_their_files(self):
        files = sorted((ROOT / "trained").glob("*.safetensors"))
        arguments = [word for file in files for word in ("--theta", file)]
        theirs = self.of_the_program(*arguments, "--baselines", "none")
        ours = lopt.evaluate({file.stem: lopt.load(file.stem) for file in files}, "smoke",
                             baselines="none").runs
        losses = [{(run["optimizer"], run["task"], run["seed"]): run["test_loss"] for run in runs}
                  for runs in (ours, theirs)]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual({name for name, _, _ in losses[0]}, {file.stem for file in files})

    @unittest.skipUnless(PROGRAM, "no program")
    def test_results_are_those_of_the_program_with_and_without_a_directory(self):
        theirs = self.of_the_program("--theta", MLP_FAST, "--baselines", "Adam", "--tune-learned")
        for run in theirs:
            if run["task"] == "quadratic":  # has no accuracy: NaN, which JSON has no number for
                del run["final_train_accuracy"], run["test_accuracy"]
        for out in None, self.scratch / "own":
            evaluation = lopt.evaluate(
                MLP_FAST, "smoke", baselines=["Adam"], tune_learned=True, out=out)
            ours = without_times(evaluation.runs)
            for run in ours:
                if run["task"] == "quadratic":
                    self.assertTrue(numpy.isnan(run.pop("test_accuracy")).all())
                    del run["final_train_accuracy"]
            self.assertEqual(ours, without_times(theirs))
            for curve in "train_loss", "test_part_loss":
                self.assertEqual(evaluation.runs[0][curve].tolist(),
                                 numpy.float32(theirs[0][curve]).tolist())
        self.assertEqual({row["optimizer"] for row in evaluation.rows},
                         {"Adam", "mlp-fast", "mlp-fast-tuned"})
        tuned = {row["optimizer"]: row["step_multiplier"] for row in evaluation.rows}
        self.assertGreater(tuned["mlp-fast-tuned"], 0)
        self.assertIsNone(tuned["mlp-fast"])
        self.assertEqual(evaluation.out, str(self.scratch / "own"))

    @unittest.skipUnless(PROGRAM, "no program")
    def test_an_evaluation_is_shown_as_the_program_prints_it(self):
        printed = subprocess.run(
            [PROGRAM, "eval", "--preset", "smoke", "--theta", MLP_FAST, "--baselines", "Adam",
             "--out", self.scratch / "program"], check=True, stdout=subprocess.PIPE, text=True).stdout
        evaluation = lopt.evaluate(MLP_FAST, "smoke", baselines="Adam")
        self.assertIn(f"\n\n{evaluation!r}\n\nAll figures: ", printed)
        self.assertIn("\n> mlp-fast ", repr(evaluation))
        self.assertEqual(lopt.evaluate("mlp-fast", "smoke", baselines="Adam").runs[0]["test_loss"],
                         evaluation.runs[0]["test_loss"])
        self.assertTrue(" ".join(repr(evaluation).split()).endswith(evaluation.verdict))

    def test_thetas_runs_and_trainings_are_judged_under_their_names(self):
        training = lopt.meta_train("smoke", out=self.scratch / "first")
        config = lopt.load_config("smoke", "evaluate") | {"seeds": 1}
        evaluation = lopt.evaluate(
            {"a": training, "b": self.scratch / "first", "c": training.theta}, config,
            baselines="none")
        losses = {run["optimizer"]: run["test_loss"] for run in evaluation.runs}
        self.assertEqual(losses["a"], losses["b"])
        self.assertEqual(losses["a"], losses["c"])
        names = [lopt.evaluate(trained, config, baselines="none").rows[0]["optimizer"]
                 for trained in (training, training.theta, self.scratch / "first/theta.safetensors")]
        self.assertEqual(names, ["first", "smoke", "first"])

    def test_the_start_of_a_meta_training_is_judged_as_what_no_update_has_changed(self):
        untrained, trained = (
            lopt.meta_train(lopt.load_config("smoke") | {"seed": 5, "meta_steps": updates}).theta
            for updates in (0, 2))
        config = lopt.load_config("smoke", "evaluate") | {"seeds": 1}
        rows = lopt.evaluate({"mine": trained, "untrained": untrained}, config, baselines="none",
                             start=True).rows
        losses = {}
        for row in rows:
            losses.setdefault(row["optimizer"], []).append(row["test_loss"]["value"])
        self.assertEqual(list(losses), ["mine", "mine-start", "mine-start-0.3", "untrained",
                                        "untrained-start", "untrained-start-0.3"])
        self.assertEqual(losses["mine-start"], losses["untrained"])
        self.assertNotEqual(losses["mine"], losses["untrained"])
        self.assertEqual(losses["mine-start-0.3"], losses["untrained-start-0.3"])
        self.assertNotEqual(losses["mine-start-0.3"], losses["mine-start"])

    @unittest.skipUnless(PROGRAM, "no program")
    def test_starts_have_the_results_of_the_program(self):
        theta = lopt.meta_train("smoke", out=self.scratch / "trained").theta_path
        theirs = self.of_the_program("--theta", "mine=" + theta, "--baselines", "none", "--start",
                                     "--tune-learned")
        ours = lopt.evaluate({"mine": theta}, "smoke", baselines="none", start=True,
                             tune_learned=True).runs
        losses = [{(run["optimizer"], run["task"], run["seed"]): run["test_loss"] for run in runs}
                  for runs in (ours, theirs)]
        self.assertEqual(losses[0], losses[1])
        self.assertIn("mine-start-tuned", {run["optimizer"] for run in ours})

    @unittest.skipUnless(PROGRAM, "no program")
    def test_trainings_of_unknown_length_have_the_results_of_the_program(self):
        theirs = self.of_the_program("--theta", "recommended", "--baselines", "none",
                                     "--unknown-length")
        ours = lopt.evaluate("recommended", "smoke", baselines="none", unknown_length=True).runs
        losses = [{(run["optimizer"], run["task"], run["seed"]): tuple(run["test_loss"])
                   for run in runs} for runs in (ours, theirs)]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual({run["optimizer"] for run in ours}, {"recommended", "recommended-unknown"})
        for (name, task, seed), loss in losses[0].items():
            self.assertTrue(name == "recommended" or task == "quadratic"
                            or loss != losses[0]["recommended", task, seed])

    def test_a_start_that_is_not_known_is_an_error(self):
        self.assert_error(
            "start: there is no learned optimizer to judge the start of; give a theta", (), "smoke",
            baselines="Adam", start=True)
        drawn = lopt.Theta.init({"type": "MLPLOpt", "hidden_size": 4})
        self.assert_error(
            "start: 'mine' does not say how it was meta-trained, so the seed is not "
            "known", {"mine": drawn}, "smoke", baselines="none", start=True)
        self.assert_error(
            "start: 'mine', 'other' do not say how they were meta-trained, so the seed is not "
            "known", {"mine": drawn, "other": drawn}, "smoke", baselines="none", start=True)
        runs = lopt.evaluate({"mine": drawn, "mlp-fast": lopt.Theta.read(MLP_FAST)}, "smoke",
                             baselines="none", start=True).runs
        self.assertEqual({run["optimizer"] for run in runs},
                         {"mine", "mlp-fast", "mlp-fast-start", "mlp-fast-start-0.3"})

    def test_what_ends_an_evaluation_comes_out_and_the_rest_can_be_done_later(self):
        out = self.scratch / "evaluation"
        arguments = (lopt.load_config("smoke", "evaluate"),
                     [("mlp-fast", lopt.Theta.read(MLP_FAST), "")], "Adam", False, False, False, str(out), 1)
        raised = ZeroDivisionError("mine")

        def tell(task, stage, number, tasks, done):
            if number == 2:
                raise raised

        with self.assertRaises(ZeroDivisionError) as caught:
            _core.evaluate(*arguments, None, False, False, False, tell)
        self.assertIs(caught.exception, raised)
        self.assertEqual(json.loads((out / "manifest.json").read_text())["status"], "interrupted")
        resumed = lopt.evaluate(
            {"mlp-fast": MLP_FAST}, "smoke", baselines="Adam", out=out, resume=True)
        whole = lopt.evaluate({"mlp-fast": MLP_FAST}, "smoke", baselines="Adam")
        self.assertEqual(str(without_times(resumed.runs)), str(without_times(whole.runs)))

    def test_an_interrupt_ends_an_evaluation_in_the_middle_of_a_training(self):
        script = (
            "import sys, lopt\n"
            "config = {'tasks': {'bowl': {'task': {'type': 'QuadraticTask', 'dim': 10000}}},\n"
            "          'steps': [10**7], 'trials': 2, 'tuning_seeds': 1, 'seeds': 1}\n"
            "try:\n"
            "    lopt.evaluate((), config, baselines='SGD', progress=True, threads=2)\n"
            "except KeyboardInterrupt:\n"
            "    sys.exit(9)\n")
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertIn(b"tuning", process.stderr.read(40))
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        self.assertEqual(process.returncode, 9)

    def test_an_evaluation_shows_itself_and_is_reported(self):
        evaluation = lopt.evaluate(
            MLP_FAST, "smoke", baselines="none", out=self.scratch / "evaluation")
        self.assertIn("<th>test loss</th>", evaluation._repr_html_())
        self.assertIn("\n&gt; mlp-fast  ", evaluation._repr_html_())
        self.assertIn("| mlp-fast ", str(evaluation))
        self.assertEqual(evaluation.verdict, "mlp-fast is the only optimizer here, so there is "
                         "nothing to compare it with.")
        report = lopt.report(self.scratch / "evaluation")
        self.assertEqual(report.path, f"{self.scratch}/evaluation/report.html")
        self.assertTrue(report._repr_html_().startswith("<iframe srcdoc=\"&lt;!"))
        config = {"name": "bowl", "tasks": {"bowl": {"task": {"type": "QuadraticTask"}}},
                  "steps": [4], "seeds": 2}
        two_seeds = lopt.evaluate(MLP_FAST, config, baselines="none")._repr_html_()
        self.assertRegex(two_seeds, r"<td>4</td><td>[0-9.e+-]+</td>")  # no interval
        with self.assertRaisesRegex(lopt.Error, "there is no directory"):
            lopt.report(self.scratch / "nowhere")
        with self.assertRaisesRegex(lopt.Error, "a report wants at least one directory"):
            lopt.report([])

    def test_a_second_evaluation_is_refused_resumed_or_begun_anew(self):
        out = self.scratch / "evaluation"
        config = {"name": "bowl", "tasks": {"bowl": {"task": {"type": "QuadraticTask"}}},
                  "steps": [4], "seeds": 1}
        arguments = {"config": config, "baselines": "none", "out": out}
        first = lopt.evaluate(MLP_FAST, **arguments)
        self.assert_error(
            f"{out} holds an evaluation already: resume it (resume=True), replace it "
            "(overwrite=True), or choose another directory", MLP_FAST, **arguments)
        for option in "resume", "overwrite":
            again = lopt.evaluate(MLP_FAST, **arguments, **{option: True})
            self.assertEqual(again.runs[0]["test_loss"], first.runs[0]["test_loss"])
        other = lopt.Theta.read(MLP_FAST)
        other.values = other.values + numpy.float32(1)
        self.assert_error(
            f"cannot resume {out}: the weights of 'mlp-fast' are not those that it began with; "
            f"go on with its own copy of them, in {out}/thetas",
            {"mlp-fast": other}, **arguments, resume=True)
        manifest = json.loads((out / "manifest.json").read_text())
        (out / "manifest.json").write_text(json.dumps(manifest | {"isa": "abacus"}))
        self.assert_error(
            f"cannot resume {out}: it was computed on instruction set abacus, this process uses "
            f"{_core.isa()}, so the results would have other bits; pin it (isa=), or allow the change "
            "(allow_isa_change=True)", MLP_FAST, **arguments, resume=True)

    def test_weights_that_cannot_be_used_leave_the_evaluation_that_they_were_to_replace(self):
        out = self.scratch / "evaluation"
        config = {"name": "bowl", "tasks": {"bowl": {"task": {"type": "QuadraticTask"}}},
                  "steps": [4], "seeds": 1}
        lopt.evaluate(MLP_FAST, config, baselines="none", out=out)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        damaged = lopt.Theta.read(MLP_FAST)
        damaged.values[-1] = numpy.nan
        cut = lopt.Theta.read(MLP_FAST)
        cut.values = cut.values[:-1].copy()
        size = len(damaged.values)
        for theta, text in (
                (damaged, "weights must be finite numbers; theta/mlp/linear_2/b [2] has 1 number "
                 "that is not finite, the first is nan at 1"),
                (cut, f"theta has {size - 1} numbers, the optimizer needs {size}")):
            self.assert_error(f"evaluate: mine: {text}", {"mine": theta}, config, baselines="none",
                              out=out, overwrite=True)
        after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        self.assertEqual(after, before)

    def test_wrong_arguments_are_errors(self):
        self.assert_error(
            "resume and overwrite need an output directory (out=)", MLP_FAST, "smoke", resume=True)
        with self.assertRaisesRegex(lopt.Error, "'quantum'"):
            lopt.evaluate(MLP_FAST, "smoke", isa="quantum")
        self.assert_error("threads must be int or None, got float", MLP_FAST, "smoke", threads=1.5)
        self.assert_error(
            "config 'smokey' is neither a preset nor a file; the presets are generalization, "
            "image-mlp, smoke, tasks, uci-digits; did you mean 'smoke'?", MLP_FAST, "smokey")
        self.assert_error(
            "evaluate: 'recomended' is neither a file nor a trained optimizer: celo2, fast, mlp, "
            "mlp-fast, recommended, tutorial; did you mean 'recommended'?", "recomended", "smoke")
        with self.assertRaisesRegex(lopt.Error, "Adagrad"):
            lopt.evaluate(MLP_FAST, "smoke", baselines=["Adagrad"])
        self.assert_error(
            "trained must be a Theta, a MetaTraining or a path, several of them in a list, or a dict "
            "of names and such, got int", 3)
        self.assert_error("trained must be a path (str or os.PathLike), got int", [3])
        self.assert_error("a name of trained must be text that UTF-8 can write, got '\\udcff'",
                          {"\udcff": MLP_FAST}, "smoke")
        self.assert_error(
            "out must be a path without NUL, got 'a\\x00b'", MLP_FAST, "smoke", out="a\0b")
        wrong = lopt.Theta.read(MLP_FAST)
        wrong.values = wrong.values[:-1]
        with self.assertRaisesRegex(lopt.Error, "625"):
            lopt.evaluate(wrong, "smoke", baselines="none")


if __name__ == "__main__":
    unittest.main()
