"""Tests of tasks of one's own."""

import unittest

import numpy as np

import lopt


@lopt.task
class Regression:
    """Least squares with new examples in each step.

    In torch.
    """

    dim: int = lopt.option(8, "Inputs.", min=1)
    scale: float = lopt.option(1.0, "Of the examples.", above=0)
    name: str = "plain"
    flag: bool = False
    widths: list[int] = lopt.option([4, 5], "Unused.", min=1)

    def sample(self, key):
        return {"target": key.normal(self.dim)}

    def init(self, key):
        return {"w": key.normal(self.dim)}

    def batch(self, keys):
        return self.scale * keys.normal((16, self.dim))

    def loss(self, params, batch, config):
        return (batch @ (params["w"] - config["target"])).square().mean()


def config_of(task, **estimator):
    """A meta-training of a few seconds at most."""
    return {
        "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
        "theta_opt": {"type": "Adam", "learning_rate": 0.01},
        "meta_steps": 3,
        "estimators": [
            {
                "type": "TruncatedPES",
                "task": task,
                "num_tasks": 4,
                "trunc_length": 5,
                "std": 0.01,
                "schedule": {"type": "ConstantTruncationSchedule", "total_length": 8},
                **estimator,
            }
        ],
    }


class Options(unittest.TestCase):
    def assert_wrong(self, task, text):
        with self.assertRaises(lopt.Error) as caught:
            lopt.resolve(config_of(task))
        self.assertEqual(str(caught.exception), text)

    def test_defaults_are_written_out(self):
        resolved = lopt.resolve(config_of({"type": "Regression", "dim": 3}))
        self.assertEqual(
            resolved["estimators"][0]["task"],
            {"type": "Regression", "dim": 3, "scale": 1.0, "name": "plain", "flag": False,
             "widths": [4, 5]},
        )

    def test_errors_are_those_of_built_in_types(self):
        at = "config: 'estimators[0].task."
        self.assert_wrong(
            {"type": "Regression", "dmi": 3},
            "config: unknown key 'estimators[0].task.dmi'; valid keys: dim, scale, name, flag, widths; "
            "did you mean 'dim'?",
        )
        self.assert_wrong(
            {"type": "Regression", "dim": 0}, f"{at}dim' must be an integer of at least 1, got 0")
        self.assert_wrong(
            {"type": "Regression", "dim": 2.5}, f"{at}dim' must be an integer of at least 1, got 2.5")
        self.assert_wrong(
            {"type": "Regression", "scale": 0}, f"{at}scale' must be a number above 0, got 0")
        self.assert_wrong(
            {"type": "Regression", "name": 3}, f"{at}name' must be text, got 3")
        self.assert_wrong(
            {"type": "Regression", "widths": [0]}, f"{at}widths[0]' must be an integer of at least 1, got 0")

    def test_describe_shows_the_type_and_its_options(self):
        text = lopt.describe()
        self.assertIn("Least squares with new examples in each step.", text)
        self.assertIn("Of the examples.", text)


if __name__ == "__main__":
    unittest.main()
