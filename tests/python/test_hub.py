"""Tests of the directories that `lopt export --format hub` writes. The environment is that of
test_lopt_optimizer.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import unittest
import unittest.mock

import numpy
import test_lopt_optimizer as one_file
import torch
from test_lopt_optimizer import read_safetensors, run

CONFIG = {
    "name": "mine", "seed": 7, "data_dir": "/home/me/secret", "estimators": [
        {"type": "FullES", "task": {"type": "ImageMLP", "batch_size": 64},
         "lengths": {"type": "LogUniformLengthSchedule", "min_length": 30, "max_length": 500}},
        {"type": "FullES", "schedule": {"type": "ConstantTruncationSchedule", "total_length": 900},
         "task": {"type": "ReparamWeights", "task": {"type": "ImageMLP", "batch_size": 16}}},
        {"type": "FullES", "task": {"type": "ImageMLP", "batch_size": 64}}]}


@unittest.skipUnless(one_file.PROGRAM, "LOPT_PROGRAM does not name the program")
class Hub(one_file.TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.directory / "out"

    def theta(self, learned_optimizer=None, config=CONFIG, name="theta.safetensors", seed=0):
        """A theta file of the program with random weights."""
        options = learned_optimizer or {"type": "LearnableSGDM"}
        inner, _ = one_file.lopt_optimizer._without_unknown_length(options, "test")
        rule, resolved = one_file.lopt_optimizer._resolve(inner, "test")
        random = numpy.random.RandomState(seed)
        drawn, path = self.directory / "drawn.npz", self.directory / name
        numpy.savez(drawn, **{tensor: random.normal(-1, 0.1, shape).astype(numpy.float32)
                              for tensor, shape in rule.layout(resolved).items()})
        run("import", drawn, "--out", path, "--learned-optimizer", json.dumps(options))
        arrays, metadata = read_safetensors(path)
        if config is not None:
            metadata["config"] = config if isinstance(config, str) else json.dumps(config)
        one_file.write_safetensors(path, arrays, {**metadata, "trained_horizon": "900",
                                                  "chosen_on": "outer_valid"})
        return path

    def export(self, theta, *options, out=None):
        """The model card of a directory."""
        out = out or self.out
        run("export", theta, "--format", "hub", "--out", out, *options)
        return (pathlib.Path(out) / "README.md").read_text(encoding="utf-8")

    def errors(self, theta, *options, code=1, out=None, **more):
        finished = subprocess.run(
            [one_file.PROGRAM, "export", theta, "--format", "hub", "--out", out or self.out,
             *map(str, options)], capture_output=True, text=True, errors="replace", **more)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return finished.stderr

    def evaluated(self, *thetas, baselines="Adam,SGD"):
        out = self.directory / "evaluation"
        shutil.rmtree(out, ignore_errors=True)
        words = [word for theta in thetas for word in ("--theta", theta)]
        run("eval", *words, "--preset", "smoke", "--baselines", baselines, "--out", out)
        return out

    def test_weights_that_come_with_lopt_are_published_under_its_licence(self):
        card = self.export("recommended")
        files = {path.name for path in self.out.iterdir()}
        self.assertEqual(files, {"theta.safetensors", "README.md", "lopt_optimizer.py",
                                 "LICENSE-lopt"})
        for name, source in (("theta.safetensors", "trained/recommended.safetensors"),
                             ("lopt_optimizer.py", "python/lopt_optimizer.py"),
                             ("LICENSE-lopt", "LICENSE")):
            self.assertEqual((self.out / name).read_bytes(),
                             (one_file.ROOT / source).read_bytes())
        own = re.search(r'^license = "(.*)"$', (one_file.ROOT / "pyproject.toml").read_text(),
                        re.MULTILINE).group(1)
        self.assertTrue(card.startswith(
            f'---\nlicense: "{own.lower()}"\nlibrary_name: lopt\ntags:\n- learned-optimizer\n'
            "- meta-learning\n- optimizer\n- pytorch\n---\n\n# recommended\n\n"))
        for fact in ("- **Type**: LearnedScheduler\n", "- **Weights**: 250 numbers, float32\n",
                     "- **Written by**: lopt 0.1.0 7b24062fa2f2\n",
                     "- **Longest training**: 3000 steps.", "- **Lengths**: 30 to 3000 steps\n",
                     "(`meta_steps`)**: 500\n", "- **Seed**: 0\n", "- **Chosen**: no, ",
                     "- **Golden steps**: 10 with 7 tensors.", "No evaluation was given"):
            self.assertIn(fact, card)
        self.assertIn("licence, `LICENSE-lopt`", " ".join(card.split()))
        copy = shutil.copy(one_file.ROOT / "trained/mlp.safetensors", self.directory / "mine")
        self.assertIn("apache-2.0", self.export(copy, out=self.directory / "of a copy"))
        self.assertIn("come with lopt, under apache-2.0, got 'mit'",
                      self.errors("mlp", "--licence", "mit", code=2, out=self.directory / "x"))

    def test_the_card_says_what_the_file_knows(self):
        card = self.export(self.theta(), "--licence", "cc-by-4.0")
        self.assertTrue(card.startswith('---\nlicense: "cc-by-4.0"\n'))
        for fact in ("\n# mine\n", "- **Weights**: 2 numbers, float32\n",
                     "- **Longest training**: 900 steps.",
                     "- **Tasks of its estimators**: ImageMLP (2), ReparamWeights of ImageMLP\n",
                     "- **Batch sizes**: 16 to 64\n", "- **Sizes of its models**: not said\n", "- **Lengths**: 30 to 900 steps\n",
                     "- **Data**: of a data directory",
                     "by the loss on the split outer_valid\n", '"momentum": 0.9',
                     "The weights are under `cc-by-4.0`; `lopt_optimizer.py` is a part of lopt"):
            self.assertIn(fact, card)
        self.assertNotIn("secret", card)
        self.assertNotIn(str(self.directory), card)

    def test_the_range_of_the_training_goes_before_what_the_config_says(self):
        path = self.theta()
        arrays, metadata = read_safetensors(path)
        one_file.write_safetensors(path, arrays, {**metadata, "trained_range": json.dumps({
            "shortest_training": 100, "longest_training": 900, "smallest_batch": 8,
            "largest_batch": 8, "fewest_params": 310, "most_params": 1210, "largest_tensor": 1024})})
        card = self.export(path, "--licence", "mit")
        for fact in ("- **Batch sizes**: 8\n", "- **Lengths**: 100 to 900 steps\n",
                     "- **Sizes of its models**: 310 to 1210 parameters, in tensors of up to 1024\n"):
            self.assertIn(fact, card)

    def test_weights_that_a_fit_chose_are_not_said_to_be_of_the_run(self):
        path = self.theta()
        arrays, metadata = read_safetensors(path)
        one_file.write_safetensors(path, arrays, {**metadata, "chosen_on": "inner_valid"})
        card = " ".join(self.export(path, "--licence", "mit").split())
        self.assertIn("- **Chosen**: by `lopt fit`, which may have changed them after the run, by the loss on "
                      "the split inner_valid", card)
        self.assertNotIn("among those of the run", card)

    def test_a_config_of_any_form_makes_a_card(self):
        for i, config in enumerate((
                {"estimators": 3}, {"estimators": [1, {"task": []}, {"lengths": 7}]}, {"name": 5},
                {"estimators": [{"task": {"batch_size": [1, "a", {"batch_size": 3}]},
                                 "lengths": {"lengths": ["x", 8, None]}}]},
                {"name": "a|b\n# <script>*größe*", "estimators": {"a": {"task": {"type": "`"}}}})):
            with self.subTest(config):
                card = self.export(self.theta(config=config), "--licence", "mit",
                                   out=self.directory / str(i))
                self.assertIn("- **Batch sizes**: ", card)
        self.assertIn("\n# a\\|b # \\<script>\\*größe\\*\n", card)

    def test_what_the_card_says_of_loading_runs_as_it_stands(self):
        path = str(pathlib.Path(one_file.PROGRAM).parent)
        for i, options in enumerate((
                {"type": "LearnableSGDM"}, {"type": "Celo"}, one_file.OF_OTHERS[0],
                {"type": "MLPLOpt", "precision": "bf16", "hidden_size": 4},
                {"type": "UnknownLength", "optimizer": {"type": "LearnableSGDM"}})):
            with self.subTest(options):
                out = self.directory / f"hub {i} größe"
                card = self.export(self.theta(options), "--licence", "mit", out=out)
                blocks = re.findall(r"```(python|sh)\n(.*?)```", card, re.DOTALL)
                self.assertEqual([kind for kind, _ in blocks], ["python", "sh"])
                self.assertEqual([text.count("\n") for _, text in blocks], [3, 3])
                model = torch.nn.Linear(3, 2)
                loss = model(torch.ones(4, 3)).square().mean()
                loss.backward()
                before = model.weight.detach().clone()
                here = os.getcwd()
                os.chdir(out)
                try:
                    with unittest.mock.patch.object(sys, "path", [str(out), *sys.path]), \
                            unittest.mock.patch.dict(sys.modules):
                        del sys.modules["lopt_optimizer"]
                        exec(blocks[0][1], {"model": model, "loss": loss})
                        used = sys.modules["lopt_optimizer"].__file__
                finally:
                    os.chdir(here)
                self.assertEqual(used, str(out / "lopt_optimizer.py"))
                self.assertFalse(torch.equal(before, model.weight))
                lines = blocks[1][1] if i == 0 else "\n".join(
                    line for line in blocks[1][1].splitlines() if " eval " not in line)
                subprocess.run(["/bin/sh", "-ec", lines], cwd=out, check=True, capture_output=True,
                               env={**os.environ, "PATH": path + ":" + os.environ["PATH"]})
                self.assertTrue((out / "theta.npz").exists())

    def test_the_evaluation_and_its_defeats_are_in_the_card(self):
        theta = self.theta(seed=1, name="mine.safetensors")
        other = self.theta({"type": "LearnableSGD"}, name="other.safetensors")
        evaluation = self.evaluated(other, theta)
        card = self.export(theta, "--licence", "mit", "--evaluation", evaluation)
        section = card[card.index("## Evaluation"):card.index("## Licence")]
        self.assertIn("there called mine, with nothing tuned", " ".join(section.split()))
        with open(evaluation / "table.csv", encoding="utf-8") as table:
            names, *lines = (line.rstrip("\n").split(",") for line in table)
        rows = [dict(zip(names, line)) for line in lines]
        own = [row for row in rows if row["optimizer"] == "mine"]
        self.assertEqual(len(own), 3)
        behind = 0
        for row in own:
            best = next(one for one in rows if one["best_baseline"] == "true"
                        and (one["task"], one["steps"]) == (row["task"], row["steps"]))
            self.assertRegex(section, rf"(?m)^\| {row['task']} +\| +{row['steps']} \| .* "
                                      rf"{best['optimizer']} \| .* {row['best_verdict'] or '-'} \|$")
            lost = float(row["test_loss"]) > float(best["test_loss"])
            behind += lost
            self.assertEqual(f"- {row['task']}, {row['steps']} steps: " in section, lost)
        self.assertGreater(behind, 0)  # the weights are drawn
        self.assertIn(f"above the best baseline's on {behind} of 3:", section)
        self.assertEqual((self.out / "evaluation.md").read_text(),
                         (evaluation / "table.md").read_text())
        self.assertNotIn(str(self.directory), card)

        self.assertRegex(
            self.errors(self.theta(seed=2), "--licence", "mit", "--evaluation", evaluation,
                        out=self.directory / "x"),
            "evaluation: the evaluation has not judged these weights; it has judged other "
            r"\(.*other.safetensors\), mine \(.*mine.safetensors\)\n$")
        manifest = evaluation / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"finished"', '"interrupted"'))
        self.assertIn("the evaluation is interrupted, wanted one that is finished (lopt eval "
                      "--resume --out ",
                      self.errors(theta, "--licence", "mit", "--evaluation", evaluation,
                                  out=self.directory / "x"))
        self.assertIn("manifest.json", self.errors(
            theta, "--licence", "mit", "--evaluation", self.directory, out=self.directory / "x"))
        self.assertFalse((self.directory / "x").exists())

    def test_without_two_tuned_baselines_nothing_is_claimed(self):
        theta = self.theta()
        evaluation = self.evaluated(theta, baselines="none")
        card = self.export(theta, "--licence", "mit", "--evaluation", evaluation)
        self.assertIn("There is no best baseline on 3 of 3, since", card)
        self.assertNotIn("None: its test loss", card)

    def test_the_licence_of_ones_own_weights_has_no_default(self):
        theta = self.theta()
        self.assertIn("--licence is missing: whether and how others may use your weights",
                      self.errors(theta, code=2))
        for licence in ("unknown", "none", "other", "MIT", "my own", "mit\nx: y", 'a"b', "größe"):
            self.assertIn("--licence must be the name of a licence as model hubs have it",
                          self.errors(theta, "--licence", licence, code=2))
        self.assertFalse(self.out.exists())

    def test_a_file_without_a_config_is_refused(self):
        self.assertRegex(
            self.errors(self.theta(config=None), "--licence", "mit"),
            "theta.safetensors: the file does not hold the config of the run that trained it, ")
        self.assertFalse(self.out.exists())

    def test_the_card_of_an_optimizer_for_unknown_lengths_says_how_its_model_is_judged(self):
        card = self.export(self.theta({"type": "UnknownLength", "optimizer": {
            "type": "LearnableSGDM", "schedule": "cosine"}}), "--licence", "mit")
        self.assertIn("`optimizer.eval()` makes it the average", " ".join(card.split()))
        self.assertNotIn("num_steps=", card)
        self.assertNotRegex(card, r"[^\n]\n##")  # a blank line before each heading
        self.assertTrue((self.out / "lopt_optimizer.py").is_file())

    def test_an_optimizer_without_a_pytorch_form_is_published_without_it(self):
        self.out.mkdir()  # an empty one is taken
        path = self.directory / "rnn.safetensors"
        arrays = {}
        text = self.errors(self.rnn(path, arrays), "--licence", "mit", code=1)
        for name, shape in re.findall(r"([\w/]+) \[([\d, ]*)\]", text[:text.index("; got: ")]):
            sizes = [int(size) for size in shape.split(",") if size.strip()]
            arrays["theta/" + name] = numpy.full(sizes, 0.1, numpy.float32)
        card = self.export(self.rnn(path, arrays), "--licence", "mit")
        self.assertEqual({path.name for path in self.out.iterdir()},
                         {"README.md", "theta.safetensors"})
        self.assertIn("It has no PyTorch form: a RNNMLPLOpt cannot be exported, for it sees all "
                      "tensors", " ".join(card.split()))
        self.assertNotIn("pytorch", card)
        self.assertNotIn("lopt_optimizer", card)
        self.assertIn("- **Golden steps**: none", card)

    def rnn(self, path, arrays):
        one_file.write_safetensors(path, arrays, {
            "learned_optimizer": '{"type": "RNNMLPLOpt"}', "config": json.dumps(CONFIG)})
        return path

    def test_a_directory_that_cannot_be_made_is_an_error_that_leaves_nothing(self):
        theta = self.theta()
        licence = ("--licence", "mit")
        full = self.directory / "full"
        full.mkdir()
        (full / "mine").write_text("mine")
        self.assertIn("full is not empty; --out must be a directory that is new or empty",
                      self.errors(theta, *licence, out=full))
        self.assertEqual(os.listdir(full), ["mine"])
        self.assertIn("mine is a file; --out must be a directory",
                      self.errors(theta, *licence, out=full / "mine"))

        def few_bytes():  # as on a disk that is full
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))

        self.assertIn("out/lopt_optimizer.py: File too large",
                      self.errors(theta, *licence, preexec_fn=few_bytes))
        self.assertFalse(self.out.exists())
        self.out.mkdir()
        self.errors(theta, *licence, preexec_fn=few_bytes)
        self.assertEqual(os.listdir(self.out), [])


if __name__ == "__main__":
    unittest.main()
