"""Tests of lopt.Theta."""

import pathlib
import shutil
import tempfile
import unittest

import numpy

import lopt

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINED = ROOT / "trained/mlp-fast.safetensors"


class Thetas(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def assert_error(self, text, function, *arguments):
        with self.assertRaises(lopt.Error) as caught:
            function(*arguments)
        self.assertEqual(str(caught.exception), text)

    def test_a_file_that_is_read_and_written_is_the_same_bytes(self):
        # The file in the repository was written on another machine, whose instruction sets its golden steps are of.
        first, second = self.scratch / "first.safetensors", self.scratch / "second.safetensors"
        trained = lopt.Theta.read(TRAINED)
        trained.write(first)
        theta = lopt.Theta.read(first)
        theta.write(second)
        self.assertEqual(second.read_bytes(), first.read_bytes())
        self.assertEqual(theta.values.tobytes(), trained.values.tobytes())
        self.assertEqual(theta.trained_horizon, 400)
        self.assertEqual(theta.config, trained.config)
        self.assertEqual(theta.config["name"], "mlp-fast")

    def test_the_config_in_a_file_of_an_earlier_version_has_the_keys_of_now(self):
        for name in ("tutorial", "recommended"):
            config = lopt.load(name).config
            resolved = lopt.resolve(config)
            self.assertEqual(resolved["estimators"][0]["lengths"],
                             config["estimators"][0]["lengths"])

    def test_the_range_of_a_training_is_kept_and_checked(self):
        theta = lopt.Theta.read(TRAINED)
        self.assertEqual(theta.trained_range["smallest_batch"], 128)  # tools/add_trained_range
        theta.trained_range = {
            "shortest_training": 100, "longest_training": 400, "smallest_batch": 16,
            "largest_batch": 128, "fewest_params": 2410, "most_params": 2410,
            "largest_tensor": 2048}
        theta.write(self.scratch / "theta.safetensors")
        self.assertEqual(lopt.Theta.read(self.scratch / "theta.safetensors").trained_range,
                         theta.trained_range)
        self.assertIn("shortest training: 100 steps, batches: 16 to 128, trained parameters: "
                      "2,410, largest trained tensor: 2,048, ", repr(theta))
        path = self.scratch / "not.safetensors"
        del theta.trained_range["most_params"]
        self.assert_error("theta.trained_range: 'most_params' is missing", theta.write, path)
        theta.trained_range["most_params"], theta.trained_horizon = 2410, 50
        self.assert_error(f"{path}: metadata trained_range: longest_training must be "
                          "trained_horizon, which is 50, got 400", theta.write, path)
        theta.trained_range = None
        theta.write(path)
        self.assertIsNone(lopt.Theta.read(path).trained_range)

    def test_tensors_are_views_of_the_values(self):
        theta = lopt.Theta.read(TRAINED)
        weights = theta.tensors["mlp/linear_1/w"]
        self.assertEqual(weights.shape, (16, 16))
        weights[:] = 7
        self.assertEqual((theta.values == 7).sum(), 256)
        self.assertIs(weights.base.base, theta.values.base)

    def test_values_outlive_what_they_came_from(self):
        values = lopt.Theta.read(TRAINED).values
        views = [lopt.Theta.read(TRAINED).tensors["mlp/linear_0/b"] for _ in range(3)]
        self.assertTrue(numpy.isfinite(values).all())
        self.assertTrue((views[0] == views[2]).all())

    def test_a_run_and_its_checkpoints_are_read(self):
        training = lopt.meta_train("smoke", out=self.scratch / "run")
        for path in ["run", "run/checkpoints/step-00000020"]:
            theta = lopt.Theta.read(self.scratch / path)
            self.assertTrue((theta.values == training.theta.values).all())
            self.assertEqual(theta.meta_steps, 20)
            self.assertEqual(theta.trained_horizon, training.theta.trained_horizon)
            self.assertEqual(theta.trained_range, training.theta.trained_range)
            self.assertEqual(theta.trained_range["longest_training"], theta.trained_horizon)
        first = lopt.Theta.read(self.scratch / "run/checkpoints/step-00000000")
        self.assertTrue(
            (first.values == lopt.Theta.init({"type": "MLPLOpt"}).values).all())
        # A checkpoint is the newest where there is no theta file.
        (self.scratch / "run/theta.safetensors").unlink()
        self.assertEqual(lopt.Theta.read(self.scratch / "run").meta_steps, 20)
        shutil.rmtree(self.scratch / "run/checkpoints")
        self.assert_error(
            f"{self.scratch}/run has neither theta.safetensors nor checkpoints",
            lopt.Theta.read, self.scratch / "run")

    def test_wrong_members_are_refused(self):
        theta = lopt.Theta.read(TRAINED)
        out = self.scratch / "theta.safetensors"
        wanted = "theta.values must be a contiguous NumPy array of float32 numbers with one dimension, "
        good = theta.values
        for values, text in [
            (good.astype("float64"), wanted + "got float64 of 1 dimensions"),
            (good[::2], wanted + "got float32 of 1 dimensions, 2 elements apart"),
            (good.reshape(2, -1), wanted + "got float32 of 2 dimensions"),
            ([1.0], "theta.values must be a NumPy array of float32 numbers, got list"),
            (good[:5], f"{out}: theta has 5 numbers, the optimizer needs 626"),
        ]:
            theta.values = values
            self.assert_error(text, theta.write, out)
        self.assertFalse(out.exists())
        theta.values = good[:5]
        with self.assertRaisesRegex(lopt.Error, r"must have shape \[626\] for a MLPLOpt, got \[5\]"):
            theta.tensors
        theta.values, theta.seed = good, "x"
        self.assert_error("theta.seed must be int, got str", theta.write, out)
        theta.learned_optimizer = None
        self.assert_error("theta.learned_optimizer must be a dict, got NoneType", theta.write, out)
        self.assert_error("path must be a path (str or os.PathLike), got int", lopt.Theta.read, 3)
        with self.assertRaisesRegex(lopt.Error, "nowhere"):
            lopt.Theta.read(self.scratch / "nowhere")

    def test_values_that_are_not_finite_are_refused(self):
        theta = lopt.Theta.read(TRAINED)
        out = self.scratch / "theta.safetensors"
        theta.values[-1] = numpy.nan
        error = ("weights must be finite numbers; theta/mlp/linear_2/b [2] has 1 number that "
                 "is not finite, the first is nan at 1")
        self.assert_error(f"{out}: {error}", theta.write, out)
        self.assertFalse(out.exists())

    def test_read_only_values_are_written(self):
        theta = lopt.Theta.read(TRAINED)
        theta.values.flags.writeable = False
        theta.write(self.scratch / "theta.safetensors")
        self.assertTrue((self.scratch / "theta.safetensors").exists())

    def test_it_shows_itself(self):
        theta = lopt.Theta.read(TRAINED)
        self.assertIn("trained horizon: 400 steps", repr(theta))
        self.assertIn("<td style='text-align:left'>mlp/linear_0/w</td><td>[19, 16]</td>",
                      theta._repr_html_())


if __name__ == "__main__":
    unittest.main()
