"""The Python of README.md, docs/python.md, docs/fit.md and docs/using.md, run from the first line to
the last."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOPT_PROGRAM")


def snippets_of(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(),
                      re.MULTILINE | re.DOTALL)


def printed_by(snippet, page, names=None):
    """What the snippet prints, among these names."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(snippet, page, "exec"), {} if names is None else names)
    return out.getvalue()


class Readme(unittest.TestCase):
    # Of a loss: in 300 steps the rounding of other processors and versions of PyTorch grows to some
    # percent.
    TOLERANCE = 0.1

    def setUp(self):
        (self.snippet,) = snippets_of("README.md")
        self.text = " ".join((ROOT / "README.md").read_text().split())

    def stated(self, pattern):
        """The numbers of the one sentence that fits."""
        (sentence,) = re.findall(pattern, self.text)
        return re.findall(r"\d+\.\d+", sentence)

    def assertPrints(self, losses, stated):
        self.assertEqual(len(losses), len(stated))
        for loss, text in zip(losses, stated):
            last_digit = 10.0 ** -len(text.partition(".")[2])
            self.assertLess(abs(loss - float(text)), self.TOLERANCE * float(text) + last_digit / 2)

    def with_optimizer(self, lines, made):
        """The snippet with another optimizer."""
        snippet = self.snippet
        for old, new in (("from lopt.torch import LearnedOptimizer\n", lines),
                         ('LearnedOptimizer(model.parameters(), "recommended", num_steps=300)',
                          made)):
            self.assertEqual(snippet.count(old), 1)
            snippet = snippet.replace(old, new)
        return snippet

    def losses(self, snippet):
        lines = [line.split() for line in printed_by(snippet, "README.md").splitlines()]
        self.assertEqual([step for step, _ in lines], ["100", "200", "300"])
        return [float(loss) for _, loss in lines]

    def test_the_script_prints_the_losses_that_are_stated(self):
        stated = self.stated(r"this script prints losses of ([^.]*(?:\.\d[^.]*)*)\.")
        self.assertEqual(len(stated), 3)
        self.assertPrints(self.losses(self.snippet), stated)

    def test_the_one_file_optimizer_prints_them_too(self):
        stated = self.stated(r"this script prints losses of ([^.]*(?:\.\d[^.]*)*)\.")
        path = str(ROOT / "trained/recommended.safetensors")
        snippet = self.with_optimizer(
            "from lopt.lopt_optimizer import LearnedOptimizer\n",
            f"LearnedOptimizer.from_file({path!r}, params=model.parameters(), num_steps=300)")
        self.assertPrints(self.losses(snippet), stated)

    def test_adam_ends_where_it_is_said_to_end(self):
        rates = self.stated(r"With learning rates of (.*?), `torch\.optim\.Adam` ends at losses of ")
        ends = self.stated(r"`torch\.optim\.Adam` ends at losses of ([^.]*(?:\.\d[^.]*)*)\.")
        got = [self.losses(self.with_optimizer(
            "", f"torch.optim.Adam(model.parameters(), lr={rate})"))[-1] for rate in rates]
        self.assertPrints(got, ends)


class Snippets(unittest.TestCase):
    def test_what_the_page_says_runs(self):
        snippets = snippets_of("docs/python.md")
        self.assertGreater(len(snippets), 5)
        # The writer of torch.utils.tensorboard needs a package of its own.
        board = types.ModuleType("torch.utils.tensorboard")
        board.SummaryWriter = lambda directory: unittest.mock.MagicMock()
        names = {}
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            try:
                with unittest.mock.patch.dict(sys.modules, {board.__name__: board}), \
                        contextlib.redirect_stdout(io.StringIO()):
                    for snippet in snippets:
                        exec(compile(snippet, "docs/python.md", "exec"), names)
            finally:
                os.chdir(here)
        self.assertEqual(names["config"]["meta_steps"], 40)
        self.assertEqual(len(names["losses"]), 40)


class Fitting(unittest.TestCase):
    def test_a_loss_is_fitted(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        os.chdir(scratch.name)
        (snippet,) = snippets_of("docs/fit.md")
        long_fit = "steps=300, minutes=10)"
        self.assertEqual(snippet.count(long_fit), 1)
        short = snippet.replace(long_fit, "steps=40, trials=2, updates=0)")
        self.assertIn("AdamW-cosine-decay", printed_by(short, "docs/fit.md"))


class Using(unittest.TestCase):
    def setUp(self):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(200, 16, 8, generator=generator)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 1)
        self.names = {"model": self.model, "loss_function": torch.nn.functional.mse_loss,
                      "batches": [(x, x.sum(1, True)) for x in self.inputs],
                      "validation_loss": self.loss}
        here = os.getcwd()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, here)
        os.chdir(scratch.name)
        shutil.copy(ROOT / "trained/mlp.safetensors", "theta.safetensors")

    def loss(self, model):
        with torch.no_grad():
            return torch.nn.functional.mse_loss(model(self.inputs), self.inputs.sum(2, True)).item()

    def snippet(self, what):
        """The one with this text."""
        (snippet,) = [one for one in snippets_of("docs/using.md") if what in one]
        return snippet

    def test_a_training_of_unknown_length(self):
        start = self.loss(self.model)
        printed = printed_by(self.snippet('num_steps="unknown"'), "docs/using.md", self.names)
        losses = [float(line.split()[1]) for line in printed.splitlines()]
        self.assertEqual(len(losses), 2)
        self.assertLess(losses[1], losses[0])
        self.assertLess(losses[1], 0.1 * start)
        self.assertEqual(self.loss(self.model), losses[1])  # the averages of the same step

    def test_a_training_by_the_one_file(self):
        import lopt.lopt_optimizer

        start = self.loss(self.model)
        with unittest.mock.patch.dict(sys.modules, {"lopt_optimizer": lopt.lopt_optimizer}):
            printed_by(self.snippet("from lopt_optimizer import"), "docs/using.md", self.names)
        self.assertLess(self.loss(self.model), 0.1 * start)

    @unittest.skipUnless(PROGRAM, "LOPT_PROGRAM does not name the program")
    def test_a_training_by_torch_script(self):
        command = [PROGRAM, "export", "theta.safetensors", "--format", "torchscript", "--out",
                   "theta.pt"]
        exported = subprocess.run(command, capture_output=True, text=True)
        if "which is not installed" in exported.stderr:
            self.skipTest("the program has no torch module")
        self.assertEqual(exported.returncode, 0, exported.stderr)
        torch.manual_seed(0)
        printed_by(self.snippet("torch.jit.load"), "docs/using.md", self.names)
        self.assertLess(self.names["loss"].item(), 0.1)


if __name__ == "__main__":
    unittest.main()
