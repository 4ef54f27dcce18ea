"""Tests of lopt.offline: metrics of a run for other tools."""

import contextlib
import importlib.util
import io
import json
import math
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import lopt
import lopt.callbacks
import lopt.kubeflow
from lopt import offline

CONFIG = {"meta_steps": 3, "estimators": [{"std": 0.5}]}
LINES = [
    '{"step": 0, "loss": 0.1, "steps_from_target": "nan"}',
    '{"step": 1, "loss": "inf"}',
    '{"step": 1, "eval/0": 0.30000000000000004}',
]
RECORDS = [(0, {"loss": 0.1, "steps_from_target": math.nan}), (1, {"loss": math.inf}), (1, {"eval/0": 0.1 + 0.2})]


class Offline(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.run_directory = self.scratch / "run"
        self.run_directory.mkdir()
        (self.run_directory / "config.json").write_text(json.dumps(CONFIG))
        # The last line is being written.
        (self.run_directory / "metrics.jsonl").write_text("\n".join(LINES) + '\n{"step": 2, "lo')

    def main(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = offline.main([str(self.run_directory), *map(str, arguments)])
        return code, errors.getvalue()

    def test_a_table_has_a_row_for_each_whole_record_and_all_metrics(self):
        path = self.scratch / "metrics.csv"
        self.assertEqual(self.main("--csv", path), (0, ""))
        self.assertEqual(path.read_text(), "step,loss,steps_from_target,eval/0\n"
                         "0,0.1,nan,\n1,inf,,\n1,,,0.30000000000000004\n")

    def test_lines_that_are_no_records_are_left_out_with_a_warning(self):
        damaged = ['{"step": 4, "loss": 0.', "[1]", '{"loss": 1}', '{"step": 5, "loss": null}', "\ufffd"]
        path = self.run_directory / "metrics.jsonl"
        text = "\n".join([*LINES[:1], *damaged, *LINES[1:], ""])
        path.write_bytes(text.encode().replace("\ufffd".encode(), b"\xff"))
        with self.assertLogs("lopt.offline", "WARNING") as logged:
            self.assertEqual(self.main("--csv", self.scratch / "metrics.csv"), (0, ""))
        self.assertEqual((self.scratch / "metrics.csv").read_text(), "step,loss,steps_from_target,eval/0\n"
                         "0,0.1,nan,\n1,inf,,\n1,,,0.30000000000000004\n")
        self.assertEqual([record.getMessage() for record in logged.records], [
            f"{path}, line {number}: wanted a record of a step and numbers, got {line!r}; it is left out"
            for number, line in enumerate(damaged, start=2)])

    def test_a_damaged_config_is_an_error(self):
        (self.run_directory / "config.json").write_text("{")
        with self.assertRaisesRegex(lopt.Error, r"config\.json is damaged: "):
            offline.tell(self.run_directory, lopt.Callback())

    def test_a_callback_is_told_what_it_would_have_been_told(self):
        told, found = [], lopt.Callback()
        found.on_metrics = lambda step, metrics: told.append({"step": step} | metrics)
        seen = []
        lopt.meta_train("smoke", out=self.scratch / "smoke", callbacks=[
            lambda step, metrics: seen.append({"step": step} | metrics)])
        offline.tell(self.scratch / "smoke", found)
        self.assertGreater(len(seen), 10)
        self.assertEqual(repr(told), repr(seen))  # NaNs are alike

    def test_every_callback_is_told_of_runs_of_both_kinds(self):
        def nothing(*arguments, **named):
            pass

        (self.run_directory / "metrics.jsonl").write_text(
            '{"step": 0, "meta_loss": 0.5}\n{"step": 1, "loss/train": 0.25}\n')
        for config in {"meta_steps": 3}, {"steps": 3}:
            (self.run_directory / "config.json").write_text(json.dumps(config))
            stream = io.StringIO()
            writer = types.SimpleNamespace(add_scalar=nothing, add_hparams=nothing)
            run = types.SimpleNamespace(config={}, summary={}, log=nothing)
            curve = lopt.callbacks.Curve()
            for callback in (lopt.callbacks.Progress(stream), curve, lopt.callbacks.WandB(run),
                             lopt.callbacks.TensorBoard(writer), lopt.kubeflow.Progress(environ={})):
                offline.tell(self.run_directory, callback)
            self.assertIn("\r1/3 ", stream.getvalue())
            self.assertIn(">3</text>", curve.svg())  # the picture is as wide as the run is long
            self.assertEqual(run.config, config)

    def test_weights_and_biases_writes_offline(self):
        logged, ended = [], []
        run = types.SimpleNamespace(config={}, summary={}, finish=lambda: ended.append(True),
                                    log=lambda metrics, step: logged.append((step, metrics)))
        wandb = types.ModuleType("wandb")
        wandb.init = mock.Mock(return_value=run)
        with mock.patch.dict(sys.modules, wandb=wandb):
            self.assertEqual(self.main("--wandb", self.scratch / "out", "--project", "digits"), (0, ""))
        wandb.init.assert_called_once_with(mode="offline", dir=str(self.scratch / "out"),
                                           project="digits", name="run")
        self.assertEqual(run.config, {"meta_steps": 3, "estimators.0.std": 0.5})
        self.assertEqual(repr(logged), repr(RECORDS))
        self.assertEqual(ended, [True])

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed")
    def test_the_package_wandb_leaves_a_directory_to_sync(self):
        offline.to_wandb(self.run_directory, self.scratch / "out")
        [run] = (self.scratch / "out/wandb").glob("offline-run-*")
        self.assertEqual(len(list(run.glob("*.wandb"))), 1)

    def test_errors_say_what_is_missing(self):
        self.run_directory = self.scratch / "none"
        self.assertEqual(self.main("--csv", self.scratch / "a.csv"), (
            1, f"lopt.offline: cannot read {self.scratch}/none/metrics.jsonl: No such file or directory; "
            "wanted the directory of a run\n"))
        self.assertFalse((self.scratch / "a.csv").exists())
        with mock.patch.dict(sys.modules, wandb=None):
            self.assertEqual(self.main("--wandb", self.scratch / "out"), (
                1, "lopt.offline: an offline run needs wandb, which is not installed here: pip install wandb\n"))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as errors:
            offline.main(["run"])
        self.assertIn("nothing to write: give --csv FILE or --wandb DIR", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
