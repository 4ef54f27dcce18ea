"""Tests of the classes of types: parts of configs as objects."""

import copy
import inspect
import json
import pathlib
import pickle
import pydoc
import re
import tempfile
import threading
import unittest

import numpy

import lopt
from lopt import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Of the required keys.
REQUIRED = {
    "task": lopt.QuadraticTask(),
    "lengths": lopt.ConstantTruncationSchedule(total_length=7),
    "K": 5,
    "learning_rate": 0.1,
    "optimizer": lopt.Adam(),
    "matrices": lopt.LearnableSGDM(),
    "vectors": lopt.LearnableAdam(),
    "earlier": lopt.QuadraticTask(),
    "total_steps": 10,
    "after": "linear",
}


def defaults(name):
    """The object of a type with its required keys alone."""
    cls = getattr(lopt, name)
    parameters = inspect.signature(cls).parameters.values()
    return cls(**{p.name: REQUIRED[p.name] for p in parameters if p.default is p.empty})


TYPES = {name: (kind, keys) for kind, name, _, keys in _core.component_types() if name != "None"}


def estimator(**options):
    return lopt.TruncatedPES(**{
        "task": lopt.ImageMLP(hidden=[32]), "lengths": REQUIRED["lengths"],
        "trunc_length": 50, "std": 0.02} | options)


class Components(unittest.TestCase):
    def assert_error(self, text, function, *arguments, error=lopt.Error, **options):
        with self.assertRaises(error) as caught:
            function(*arguments, **options)
        self.assertEqual(str(caught.exception), text)

    def test_every_type_of_the_config_page_is_a_class_with_its_keys(self):
        page = (ROOT / "docs/config.md").read_text()
        kinds = {"Learned optimizers", "Schedules of learning rates", "Modes", "Estimators",
                 "Truncation schedules", "Tasks", "Augmentations"}
        titles = set()
        for kind in kinds:
            [section] = re.findall(rf"^## {kind}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
            for title in re.findall(r"^### (.*)$", section, re.M):
                titles |= {name for name in title.split(", ") if " " not in name}
        self.assertEqual(titles - set(TYPES), {"None"})
        for name in titles - {"None"}:
            self.assertTrue(issubclass(getattr(lopt, name), lopt.Component), name)
        self.assertEqual(set(inspect.signature(lopt.ConstantTruncationSchedule).parameters),
                         {"total_length"})

    def test_no_type_takes_a_name_of_the_package_and_no_key_one_of_the_objects(self):
        self.assertEqual(len(lopt.__all__), len(set(lopt.__all__)))
        for name, (_, keys) in TYPES.items():
            self.assertFalse(hasattr(_core, name), name)
            for key, *_ in keys:
                self.assertFalse(hasattr(lopt.Component, key), (name, key))

    def test_each_type_made_of_its_required_keys_is_the_config_that_is_resolved(self):
        self.assertGreater(len(TYPES), 50)
        for name, (kind, keys) in TYPES.items():
            made = defaults(name)
            self.assertIs(type(made), getattr(lopt, name))
            _, resolved = _core.check_component(kind, name, {
                key: value for key, value in made.config.items() if key != "type"})
            self.assertEqual(set(resolved), {"type", *(key for key, *_ in keys)})
            for key, *_ in keys:
                value = getattr(made, key)
                value = value.config if isinstance(value, lopt.Component) else value
                if key not in made.config:
                    self.assertEqual(value, resolved[key], (name, key))
            self.assertEqual(eval(repr(made)), made)

    def test_objects_are_their_dictionaries_in_every_place(self):
        config = {
            "learned_optimizer": lopt.MLPLOpt(hidden_size=4),
            "theta_opt": lopt.Adam(learning_rate=0.02, clip_by_global_norm=1.0,
                                   schedule=lopt.Cosine()),
            "estimators": (estimator(), {"type": "FullES", "task": lopt.QuadraticTask(dim=3),
                                         "lengths": lopt.ConstantTruncationSchedule()}),
            "mode": lopt.Sync(),
            "meta_steps": 5,
        }
        plain = {
            "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 4},
            "theta_opt": {"type": "Adam", "learning_rate": 0.02, "clip_by_global_norm": 1.0,
                          "schedule": {"type": "Cosine"}},
            "estimators": [
                {"type": "TruncatedPES", "task": {"type": "ImageMLP", "hidden": [32]},
                 "lengths": {"type": "ConstantTruncationSchedule", "total_length": 7},
                 "trunc_length": 50, "std": 0.02},
                {"type": "FullES", "task": {"type": "QuadraticTask", "dim": 3},
                 "lengths": {"type": "ConstantTruncationSchedule"}}],
            "mode": {"type": "Sync"},
            "meta_steps": 5,
        }
        self.assertEqual(lopt.load_config(config), plain)
        self.assertEqual(lopt.resolve(config), lopt.resolve(plain))
        self.assertEqual(lopt.Experiment(config).config, lopt.Experiment(plain).config)
        self.assertEqual(estimator().config, plain["estimators"][0])
        json.dumps(estimator().config)

        theta = lopt.Theta.init(lopt.MLPLOpt(hidden_size=4), seed=3)
        self.assertEqual(theta.values.tobytes(), lopt.Theta.init(
            {"type": "MLPLOpt", "hidden_size": 4}, seed=3).values.tobytes())
        own = lopt.Theta(lopt.MLPLOpt(hidden_size=4), theta.values)
        self.assertEqual(own.learned_optimizer, {"type": "MLPLOpt", "hidden_size": 4})
        self.assertIn("MLPLOpt", repr(own))
        with tempfile.TemporaryDirectory() as scratch:
            own.write(pathlib.Path(scratch) / "theta.safetensors")
            read = lopt.Theta.read(pathlib.Path(scratch) / "theta.safetensors")
        self.assertEqual(read.values.tobytes(), theta.values.tobytes())
        evaluation = lopt.evaluate(theta, {
            "steps": [2], "seeds": 1, "tasks": {"bowl": {"task": lopt.QuadraticTask(dim=3)}}},
            baselines="none")
        self.assertEqual(evaluation.rows[0]["task"], "bowl")

    def test_what_was_set_is_shown_and_the_rest_has_its_default(self):
        made = estimator()
        self.assertEqual(
            repr(made), "lopt.TruncatedPES(task=lopt.ImageMLP(hidden=[32]), "
            "lengths=lopt.ConstantTruncationSchedule(total_length=7), trunc_length=50, std=0.02)")
        self.assertEqual((made.std, made.num_tasks, made.type), (0.02, 8, "TruncatedPES"))
        self.assertEqual(made.task, lopt.ImageMLP(hidden=(32,)))
        self.assertEqual(made.task.batch_size, 128)
        self.assertIn("trunc_length", dir(made))
        self.assertEqual(made.replace(std=0.5).std, 0.5)
        self.assertEqual(made.replace(std=0.5).replace(std=0.02), made)

    def test_objects_are_equal_if_they_say_the_same(self):
        self.assertEqual(lopt.Adam(), lopt.Adam(beta1=lopt.Adam().beta1))
        self.assertEqual(hash(lopt.Adam()), hash(lopt.Adam(beta1=lopt.Adam().beta1)))
        zeros = [lopt.ScheduledTruncationSchedule(std=std) for std in (0, 0.0, -0.0)]
        self.assertEqual(len(set(zeros)), 1)
        self.assertNotEqual(lopt.Adam(), lopt.Adam(beta1=0.5))
        self.assertNotEqual(lopt.QuadraticTask(), lopt.FixedDimQuadraticFamily())
        self.assertEqual(estimator(task={"type": "ImageMLP", "hidden": [32]}), estimator())
        self.assertNotEqual(lopt.Adam(), {"type": "Adam"})
        self.assertEqual(len({lopt.Adam(), lopt.Adam(), lopt.AdamW()}), 2)
        self.assertEqual(len({estimator(), estimator()}), 1)

    def test_objects_do_not_change(self):
        hidden = [32]
        made = lopt.ImageMLP(hidden=hidden)
        hidden.append(1)
        made.hidden.append(2)
        made.config["hidden"].append(3)
        self.assertEqual(made.config, {"type": "ImageMLP", "hidden": [32]})
        self.assert_error("an object of lopt.ImageMLP does not change; replace(hidden=...) makes "
                          "another", setattr, made, "hidden", [1], error=AttributeError)
        self.assert_error("an object of lopt.ImageMLP does not change; replace(hidden=...) makes "
                          "another", delattr, made, "hidden", error=AttributeError)
        self.assert_error("lopt.QuadraticTask has no option 'hidden'; it has dim", getattr,
                          lopt.QuadraticTask(), "hidden", error=AttributeError)

    def test_the_names_of_keys_elsewhere_are_known(self):
        schedule = lopt.ConstantTruncationSchedule(total_length=7)
        theirs = lopt.FullES(task_family=lopt.QuadraticTask(), trunc_sched=schedule)
        self.assertEqual(theirs, lopt.FullES(task=lopt.QuadraticTask(), lengths=schedule))
        self.assertEqual(lopt.ESTask(task_family=lopt.QuadraticTask()).task, lopt.QuadraticTask())
        self.assert_error("lopt.FullES: task_family is given twice; give one of task, task_family",
                          lopt.FullES, task=lopt.QuadraticTask(), task_family=lopt.QuadraticTask())
        self.assert_error("lopt.QuadraticTask: unknown key 'task_family'; valid keys: dim",
                          lopt.QuadraticTask, task_family=lopt.QuadraticTask())

    def test_wrong_options_are_errors_at_construction(self):
        self.assert_error(
            "lopt.ConstantTruncationSchedule: unknown key 'total_lenght'; valid keys: total_length; "
            "did you mean 'total_length'?", lopt.ConstantTruncationSchedule, total_lenght=3)
        self.assert_error(
            "lopt.ConstantTruncationSchedule: 'total_length' must be an integer in [1, 10000000], "
            "got 0", lopt.ConstantTruncationSchedule, total_length=0)
        self.assert_error("lopt.QuadraticTask: 'dim' must be finite, got nan", lopt.QuadraticTask,
                          dim=float("nan"))
        self.assert_error("lopt.QuadraticTask: the class is the type; 'type' is no key of it",
                          lopt.QuadraticTask, type="Adam")
        self.assert_error("lopt.Component is the class of all parts of configs; make one of them",
                          lopt.Component, error=TypeError)
        with self.assertRaisesRegex(TypeError, "positional"):
            lopt.QuadraticTask(10)
        with self.assertRaisesRegex(lopt.Error, "'task' is missing; valid types of task: Quad"):
            lopt.FullES(lengths=REQUIRED["lengths"])
        with self.assertRaisesRegex(
                lopt.Error, r"^lopt.ESTask: 'task.type' is 'Adam'; valid types of task: Quad"):
            lopt.ESTask(task=lopt.Adam())
        with self.assertRaisesRegex(lopt.Error, "'task' must be a dict, .*got the class Quadratic"):
            lopt.ESTask(task=lopt.QuadraticTask)
        with self.assertRaisesRegex(lopt.Error, "must be a list of objects"):
            lopt.SampledFamily(tasks=lopt.QuadraticTask())
        with self.assertRaisesRegex(lopt.Error, "unknown key 'learned_optimizer.clip_by_value'"):
            lopt.resolve({"learned_optimizer": lopt.Adam(clip_by_value=1.0),
                          "estimators": [estimator()]})
        with self.assertRaisesRegex(lopt.Error, "'estimators.0..type' is 'QuadraticTask'"):
            lopt.resolve({"learned_optimizer": lopt.Adam(), "estimators": [lopt.QuadraticTask()]})
        self.assert_error("config must be a dict, the name of a preset or the path of a JSON file, "
                          "got Adam", lopt.meta_train, lopt.Adam())

    def test_pickles_and_copies_are_equal(self):
        mixed = lopt.SampledFamily(tasks=[lopt.QuadraticTask(dim=3), {"type": "QuadraticTask"}])
        for made in lopt.Adam(), estimator(), mixed:
            for again in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
                self.assertEqual(again, made)
                self.assertEqual(repr(again), repr(made))
        self.assertEqual([type(task) for task in mixed.tasks], [lopt.QuadraticTask, dict])
        with self.assertRaises(AttributeError):
            object.__new__(lopt.Adam).beta1
        with self.assertRaises(AttributeError):
            object.__new__(lopt.Component).beta1

    def test_an_object_that_says_itself_is_refused(self):
        class Ring:
            def __lopt_config__(self):
                return self

        class Wrong:
            def __lopt_config__(self):
                return 3

        for wrong in Ring(), Wrong():
            with self.assertRaises(lopt.Error):
                lopt.Theta.init(wrong)
            with self.assertRaises(lopt.Error):
                lopt.ESTask(task=wrong)

    def test_threads_make_objects_at_once(self):
        made = []

        def make():
            for dim in range(1, 200):
                made.append(lopt.ESTask(task=lopt.QuadraticTask(dim=dim)).task.dim == dim)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(made, [True] * 796)

    def test_help_says_what_the_description_says(self):
        text = pydoc.plain(pydoc.render_doc(lopt.TruncatedPES))
        # From Python 3.13 on, each parameter has a line of its own.
        line = re.sub(r"[\s|]+", " ", text).replace("( *", "(*")
        self.assertIn("TruncatedPES(*, task: lopt.Component dict[str, ", line)
        self.assertIn(" num_tasks: int = 8", line)
        self.assertIn("    std: Standard deviation of the perturbations of theta. (number above 0; "
                      "default 0.01)\n", text)
        self.assertIn("    task: The tasks that are trained. (object, task; required) Or "
                      "task_family.\n", text)
        self.assertIn("clip_by_value: Of theta_opt alone. ", lopt.MLPLOpt.__doc__)
        self.assertEqual(lopt.Adam.__doc__.count("Of theta_opt alone"), 2)
        signature = inspect.signature(lopt.Adam)
        self.assertEqual(signature.parameters["beta1"].annotation, float)
        self.assertEqual(signature.parameters["clip_by_value"].default, None)

    def test_stubs_have_each_class_with_its_keys(self):
        stubs = (pathlib.Path(lopt.__file__).parent / "_types.pyi").read_text()
        compile(stubs, "_types.pyi", "exec")
        for name, (_, keys) in TYPES.items():
            self.assertIn(f"class {name}(Component):", stubs)
        self.assertIn("    def __init__(self, *, dim: int = ...) -> None: ...", stubs)
        self.assertIn("task: Component | dict[str, Any], ", stubs)


class Tasks(unittest.TestCase):
    def test_instances_of_task_classes_stand_for_their_dictionaries(self):
        @lopt.task
        class Bowl:
            dim: int = lopt.option(3, "Numbers.", min=1)
            per_replica = True

            def init(self, key):
                return {"x": key.normal(self.dim)}

            def loss_and_grad(self, params):
                x = params["x"]
                return numpy.square(x).sum(), {"x": 2 * x}

        made = lopt.ESTask(task=Bowl(dim=5))
        self.assertEqual(made.config, {"type": "ESTask", "task": {"type": "Bowl", "dim": 5}})
        self.assertEqual(made, lopt.ESTask(task={"type": "Bowl", "dim": 5}))
        with self.assertRaisesRegex(lopt.Error, "'task.dim' must be an integer of at least 1, got 0"):
            lopt.ESTask(task=Bowl(dim=0))
        training = lopt.meta_train({
            "learned_optimizer": lopt.LearnableSGD(), "meta_steps": 2,
            "estimators": [estimator(task=Bowl(dim=5))]})
        self.assertEqual(list(training.totals), ["0_Bowl"])

        class Other(Bowl):
            pass

        with self.assertRaisesRegex(lopt.Error, "Other is no task type, or is one no longer"):
            lopt.ESTask(task=Other())
        with self.assertRaisesRegex(lopt.Error, "got the class Bowl"):
            lopt.ESTask(task=Bowl)

    def test_a_single_task_is_a_family_and_a_family_is_none(self):
        task = lopt.QuadraticTask(dim=3)
        self.assertIs(lopt.single_task_to_family(task), task)
        plain = {"type": "QuadraticTask"}
        self.assertIs(lopt.single_task_to_family(plain), plain)
        with self.assertRaises(lopt.Error) as caught:
            lopt.single_task_to_family(lopt.FixedDimQuadraticFamily(dim=2))
        self.assertEqual(
            str(caught.exception), "single_task_to_family: lopt.FixedDimQuadraticFamily(dim=2) is a "
            "family already, whose tasks differ; use it as it is")
        with self.assertRaisesRegex(lopt.Error, "valid types of task"):
            lopt.single_task_to_family(lopt.Adam())
        with self.assertRaisesRegex(lopt.Error, "task must be a dict, got int"):
            lopt.single_task_to_family(3)
        with self.assertRaisesRegex(lopt.Error, "data_dir is /tmp, but the task QuadraticTask does "):
            lopt.single_task_to_family(task, data_dir="/tmp")


if __name__ == "__main__":
    unittest.main()
