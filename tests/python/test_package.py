"""Tests of the package: its names, types, data and program."""

import ast
import builtins
import importlib.resources
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import lopt
from lopt import _core


def run(*words, **options):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)


class Names(unittest.TestCase):
    def test_every_public_name_says_what_it_is(self):
        for name in lopt.__all__:
            public = getattr(lopt, name)
            self.assertTrue(public.__doc__, name)
            if inspect.isclass(public):
                for member, value in vars(public).items():
                    if not member.startswith("_") and callable(value):
                        self.assertTrue(value.__doc__, f"{name}.{member}")

    def test_the_types_of_every_compiled_name_are_in_the_stubs(self):
        package = pathlib.Path(lopt.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        stubs = {}
        for node in ast.parse((package / "_core.pyi").read_text()).body:
            if isinstance(node, ast.ClassDef):
                stubs[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                stubs[node.name] = set()
        for name, value in vars(_core).items():
            if name.startswith("_"):
                continue
            self.assertIn(name, stubs)
            if inspect.isclass(value):
                members = {m for m in vars(value) if not m.startswith("_")}
                self.assertLessEqual(members, stubs[name], name)

    def test_the_stubs_define_each_name_that_they_use(self):
        stubs = ast.parse((pathlib.Path(lopt.__file__).parent / "_core.pyi").read_text())
        known = set(dir(builtins))
        for node in ast.walk(stubs):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                known |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                known.add(node.name)
        used = {node.id for node in ast.walk(stubs) if isinstance(node, ast.Name)}
        self.assertLessEqual(used, known)

    def test_draws_have_the_types_of_their_arguments_and_arrays(self):
        stubs = ast.parse((pathlib.Path(lopt.__file__).parent / "_core.pyi").read_text())
        classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
        for name in "Key", "Keys":
            methods = {node.name: node for node in classes[name].body
                       if isinstance(node, ast.FunctionDef)}
            for draw, dtype in {"normal": "float32", "uniform": "float32",
                                "truncated_normal": "float32", "integers": "int64"}.items():
                self.assertEqual(ast.unparse(methods[draw].returns), f"NDArray[numpy.{dtype}]")
                shape = methods[draw].args.args[1]
                self.assertEqual(ast.unparse(shape.annotation), "int | tuple[int, ...] | list[int]")

    def test_type_checkers_know_a_task_for_a_dataclass_with_the_types_of_its_options(self):
        source = ast.parse(inspect.getsource(lopt.task))
        [decorator] = source.body[0].decorator_list
        self.assertEqual(ast.unparse(decorator), "dataclass_transform(eq_default=False, "
                         "field_specifiers=(dataclasses.field,))")
        for function, returned in {lopt.task: "type[Task]", lopt.register_task: "type[Task]",
                                   lopt.option: "Default"}.items():
            self.assertEqual(inspect.get_annotations(function)["return"], returned)

    def test_importing_lopt_imports_no_torch(self):
        result = run("-c", "import sys, lopt; print('torch' in sys.modules)")
        self.assertEqual((result.stdout, result.stderr), ("False\n", ""))

    def test_without_ray_importing_lopt_ray_names_the_package(self):
        result = run("-c", "import sys; sys.modules['ray'] = None; import lopt.ray")
        self.assertRegex(result.stderr, r"ImportError: lopt\.ray needs Ray, .*pip install 'ray>=2\.60'")

    def test_trained_weights_are_in_the_package(self):
        file = importlib.resources.files("lopt") / "trained/recommended.safetensors"
        with importlib.resources.as_file(file) as path:
            self.assertEqual(lopt.Theta.read(path).trained_horizon, 3000)


class Program(unittest.TestCase):
    def test_names_of_files_and_what_files_say_may_be_any_bytes(self):
        with tempfile.TemporaryDirectory() as scratch:
            out = os.path.join(os.fsencode(scratch), b"\xff")
            words = [sys.executable, "-m", "lopt", "meta-train", "--preset", "smoke", "--steps", "1"]
            subprocess.run([*words, b"--out", out], check=True, capture_output=True)
            self.assertTrue(os.path.exists(os.path.join(out, b"theta.safetensors")))
            config = pathlib.Path(scratch) / "config.json"
            config.write_bytes(b'{"seed": "\xff"}')
            with self.assertRaises(lopt.Error) as caught:
                lopt.load_config(config)
            self.assertIn(f"{config}: ", str(caught.exception))
            self.assertIn("\\xff", str(caught.exception))

    def test_a_place_that_cannot_be_looked_at_is_an_error_that_names_it(self):
        long = "x" * 300
        reason = f"cannot look at {long}: File name too long"
        for function in (lopt.Theta.read, lopt.report, lopt.load_config):
            with self.assertRaises(lopt.Error) as caught:
                function(long)
            self.assertIn(reason, str(caught.exception))

    def test_the_package_is_the_program(self):
        self.assertIn(f"lopt {lopt.__version__}", run("-m", "lopt", "version").stdout)
        wrong = run("-m", "lopt", "versio")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("There is no command 'versio'; did you mean 'version'?", wrong.stderr)
        with tempfile.TemporaryDirectory() as scratch:
            trained = run("-m", "lopt", "meta-train", "--preset", "smoke", "--out", "run",
                          cwd=scratch, env=os.environ | {"PYTHONPATH": str(
                              pathlib.Path(lopt.__file__).parents[1])})
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertIn("The weights are in run/theta.safetensors", trained.stdout)
            again = run("-m", "lopt", "meta-train", "--preset", "smoke", "--out", "run",
                        cwd=scratch, env=os.environ | {"PYTHONPATH": str(
                            pathlib.Path(lopt.__file__).parents[1])})
            self.assertIn("resume it (--resume), replace it (--overwrite)", again.stderr)

    def test_commands_that_start_processes_start_the_package(self):
        result = run("-m", "lopt", "bench", "--filter", "first_update.*", "--short")
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
