"""Notebooks: the tutorial's, and what the package shows in one."""

import contextlib
import io
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

import lopt

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples/python/tutorial.ipynb"


def made_notebook():
    path = ROOT / "tools/make_notebook"
    module = types.ModuleType("make_notebook")
    module.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module.notebook()


class Shown:
    """An IPython of which a notebook is, or is not, the front end; it keeps what is displayed."""

    def __init__(self, notebook=True):
        self.first = []
        self.updates = 0
        module = types.ModuleType("IPython")
        shell = types.SimpleNamespace(**{"kernel": object()} if notebook else {})
        module.get_ipython = lambda: shell
        display = types.ModuleType("IPython.display")
        display.display = self._display
        modules = {"IPython": module, "IPython.display": display}
        self.patch = unittest.mock.patch.dict(sys.modules, modules)

    def _display(self, shown, display_id):
        self.first.append(shown)

        def update(again):
            assert again is shown
            self.updates += 1
        return types.SimpleNamespace(update=update)


def lines_of(svg):
    """The points of each line of a picture."""
    tree = xml.etree.ElementTree.fromstring(svg)
    lines = tree.findall("{http://www.w3.org/2000/svg}polyline")
    return [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
            for line in lines]


class Curves(unittest.TestCase):
    def curve(self, *runs, meta_steps=0):
        curve = lopt.callbacks.Curve()
        for seed, losses in enumerate(runs):
            curve.on_start({"seed": seed, "meta_steps": meta_steps})
            for step, loss in enumerate(losses):
                curve.on_metrics(step, {"meta_loss": loss})
        return curve

    def test_a_falling_loss_is_a_falling_line_and_its_mean_lags_behind(self):
        raw, mean = lines_of(self.curve([100 - step for step in range(100)]).svg())
        self.assertEqual(len(raw), 100)
        self.assertTrue(all(a[0] < b[0] for a, b in zip(raw, raw[1:])))
        self.assertTrue(all(a[1] <= b[1] for a, b in zip(raw, raw[1:])))
        # The mean of the last five losses is two losses higher.
        self.assertEqual([y for _, y in mean[50:60]], [y for _, y in raw[48:58]])

    def test_a_long_run_has_few_points_and_a_short_one_leaves_room_for_its_length(self):
        raw, _ = lines_of(self.curve([math.sin(step) for step in range(5000)]).svg())
        self.assertEqual(len(raw), 250)
        whole, _ = lines_of(self.curve([1.0, 2.0, 3.0]).svg())
        half, _ = lines_of(self.curve([1.0, 2.0, 3.0], meta_steps=4).svg())
        self.assertAlmostEqual(half[2][0] - half[0][0], (whole[2][0] - whole[0][0]) / 2, delta=0.1)

    def test_every_run_is_a_line_with_its_seed_and_what_is_not_finite_is_left_out(self):
        curve = self.curve([1, math.nan, 2, math.inf, 3], [2, 2])
        svg = curve.svg()
        self.assertEqual([len(line) for line in lines_of(svg)], [3, 3, 2, 2])
        self.assertEqual(re.findall(r"seed \d", svg), ["seed 0", "seed 1"])
        for empty in (self.curve(), self.curve([]), self.curve([math.nan])):
            self.assertEqual(lines_of(empty.svg()), [])
        self.assertEqual(len(lines_of(self.curve([0.0] * 3).svg())), 2)
        curve.on_metrics(7, {"eval_loss": 1.0})
        self.assertEqual(curve.svg(), svg)
        with tempfile.TemporaryDirectory() as scratch:
            curve.write(scratch + "/curve.svg")
            self.assertEqual(pathlib.Path(scratch, "curve.svg").read_text(), svg)
        with self.assertRaisesRegex(lopt.Error, "on_start comes before on_metrics"):
            lopt.callbacks.Curve().on_metrics(0, {"meta_loss": 1.0})


class Display(unittest.TestCase):
    def train(self, shown, **options):
        errors = io.StringIO()
        with shown.patch, contextlib.redirect_stderr(errors):
            lopt.meta_train("smoke", steps=6, **options)
        return errors.getvalue()

    def test_meta_train_draws_its_curve_in_a_notebook_alone(self):
        for options in ({}, {"progress": True}):
            shown = Shown()
            self.assertEqual(self.train(shown, **options), "")
            [curve] = shown.first
            self.assertGreaterEqual(shown.updates, 1)
            self.assertEqual([len(line) for line in lines_of(curve._repr_html_())], [6, 6])
        for shown, options in ((Shown(notebook=False), {}), (Shown(), {"progress": False})):
            self.assertEqual(self.train(shown, **options), "")
            self.assertEqual(shown.first, [])
        terminal = Shown(notebook=False)
        self.assertIn("6/6", self.train(terminal, progress=True))
        self.assertEqual(terminal.first, [])

    def test_a_curve_of_ones_own_is_the_only_one(self):
        shown, curve = Shown(), lopt.callbacks.Curve()
        self.train(shown, callbacks=[curve])
        self.assertEqual(shown.first, [curve])

    def test_a_description_is_markdown_that_a_prompt_shows_as_it_is_printed(self):
        description = lopt.describe("TruncatedPES")
        self.assertIn("\n### TruncatedPES\n", description)
        self.assertEqual(repr(description), str(description))
        self.assertEqual(description._repr_markdown_(), str(description))
        self.assertIs(type(description._repr_markdown_()), str)


class Tutorial(unittest.TestCase):
    def test_the_notebook_is_what_make_notebook_makes_of_the_tutorial(self):
        self.assertTrue(NOTEBOOK.read_text() == made_notebook(),
                        "tools/make_notebook makes another examples/python/tutorial.ipynb")

    def test_the_notebook_runs_and_shows_the_curve(self):
        try:
            import ipykernel  # noqa: F401
            import nbclient
            import nbformat
        except ImportError as error:
            self.skipTest(f"{error}: python3-nbclient and python3-ipykernel are not installed")
        updates = int(os.environ.setdefault("LOPT_TUTORIAL_UPDATES", "4"))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbformat.validate(notebook)
        with tempfile.TemporaryDirectory() as scratch:
            client = nbclient.NotebookClient(
                notebook, timeout=1800, resources={"metadata": {"path": scratch}})
            client.execute()
            theta = lopt.Theta.read(scratch + "/tutorial.safetensors")
            picture = pathlib.Path(scratch, "tutorial.svg").read_text()
        self.assertEqual(theta.learned_optimizer["type"], "MLPLOpt")
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        shown = [output.data["text/html"] for output in outputs if output.output_type == "display_data"]
        self.assertEqual([len(lines_of(svg)) for svg in shown], [2, 6])
        self.assertEqual(len(lines_of(shown[0])[0]), min(updates, 250))
        self.assertEqual(shown[1].strip(), picture.strip())
        if updates >= 500:  # y is downwards
            for line in lines_of(picture)[1::2]:
                self.assertGreater(line[-1][1] - line[0][1], 50)


if __name__ == "__main__":
    unittest.main()
