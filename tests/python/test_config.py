"""Tests of configs as dictionaries."""

import pathlib
import tempfile
import unittest

import numpy

import lopt


class Configs(unittest.TestCase):
    def assert_error(self, text, config):
        with self.assertRaises(lopt.Error) as caught:
            lopt.resolve(config)
        self.assertEqual(str(caught.exception), text)

    def test_a_dict_a_preset_and_a_file_are_the_same_config(self):
        config = lopt.load_config("smoke")
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "config.json"
            path.write_text(str(config).replace("'", '"'))
            from_path, from_text = lopt.resolve(path), lopt.resolve(str(path))
        self.assertEqual(lopt.resolve(config), lopt.resolve("smoke"))
        self.assertEqual(from_path, lopt.resolve("smoke"))
        self.assertEqual(from_text, lopt.resolve("smoke"))

    def test_what_a_run_resolves_is_its_own_resolution(self):
        resolved = lopt.resolve("smoke")
        self.assertEqual(resolved["workers"], 1)
        self.assertEqual(lopt.resolve(resolved), resolved)

    def test_numbers_of_numpy_and_tuples_are_values(self):
        config = lopt.load_config("smoke")
        config["meta_steps"] = numpy.int32(7)
        config["estimators"] = tuple(config["estimators"])
        config["estimators"][1]["std"] = numpy.float64(0.5)
        resolved = lopt.resolve(config)
        self.assertEqual(resolved["meta_steps"], 7)
        self.assertEqual(resolved["estimators"][1]["std"], 0.5)

    def test_a_wrong_value_is_named_by_its_path(self):
        config = lopt.load_config("smoke")
        config["estimators"][0]["std"] = "x"
        self.assert_error("config: 'estimators[0].std' must be a number above 0, got \"x\"", config)
        config["estimators"][0]["std"] = float("nan")
        self.assert_error("config: 'estimators[0].std' must be finite, got nan", config)
        config["estimators"][0]["std"] = numpy.ones(2)
        self.assert_error(
            "config: 'estimators[0].std' must be a dict, list, tuple, str, bool, int, float or None, "
            "got ndarray", config)
        config["estimators"][0]["std"] = 2**80
        self.assert_error(
            f"config: 'estimators[0].std' must be an integer of 64 bits, got {2**80}", config)
        config["estimators"][0] = {1: 2}
        self.assert_error("config: a key must be str, got int in 'estimators[0]'", config)

    def test_a_config_that_is_a_part_of_itself_is_refused(self):
        config = {"name": "ring"}
        config["estimators"] = [config]
        text = "config: it is more than 100 dicts and lists deep; is one part of itself?"
        with self.assertRaises(lopt.Error) as raised:
            lopt.resolve(config)
        self.assertEqual(str(raised.exception), text)

    def test_what_is_no_config_is_refused(self):
        self.assert_error(
            "config must be a dict, the name of a preset or the path of a JSON file, got int", 3)
        self.assert_error(
            "config 'smokey' is neither a preset nor a file; the presets are " +
            ", ".join(lopt.presets()) + "; did you mean 'smoke'?", "smokey")

    def test_presets_and_types_are_described(self):
        self.assertIn("smoke", lopt.presets())
        self.assertIn("generalization", lopt.presets("evaluate"))
        self.assertIn("### TruncatedPES", lopt.describe())
        self.assertTrue(lopt.describe("TruncatedPES").startswith(
            "## Estimators\n\n### TruncatedPES\n"))
        with self.assertRaisesRegex(lopt.Error, "There is no type 'PES'; the types are MLPLOpt"):
            lopt.describe("PES")
        with self.assertRaisesRegex(lopt.Error, "the kinds are meta_train and evaluate"):
            lopt.presets("eval")

    def test_options_and_types_from_elsewhere_have_the_words_of_python(self):
        self.assertIn("To resume with another one, pass allow_isa_change=True.", lopt.describe())
        self.assertNotIn("--allow", lopt.describe())
        config = lopt.load_config("smoke")
        config["estimators"][0]["task"] = {"type": "Mine"}
        config["learned_optimizer"] = {"type": "Mine"}
        with self.assertRaises(lopt.Error) as caught:
            lopt.resolve(config)
        text = str(caught.exception)
        self.assertIn("valid types of task: ", text)
        self.assertNotIn("plug-ins", text)


if __name__ == "__main__":
    unittest.main()
