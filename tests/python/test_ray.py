"""Tests of meta-training on a Ray cluster, of this machine alone.

Most run where the interpreter has Ray: pip install 'ray>=2.60'.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import re
import secrets
import signal
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import lopt

# Whether Ray is here, without what it does when it is imported.
RAY = importlib.util.find_spec("ray") is not None

CONFIG = {
    "workers": 3,
    "meta_steps": 20,
    "seed": 5,
    "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
    "estimators": [{
        "type": "TruncatedPES",
        "task": {"type": "FixedDimQuadraticFamily", "dim": 10},
        "num_tasks": 2,
        "trunc_length": 10,
        "lengths": {"type": "ConstantTruncationSchedule", "total_length": 30},
    }],
    "checkpoint_seconds": 0,
    "checkpoint_steps": 6,
}


def other_version():
    """What an actor with another version of lopt says."""
    import lopt.ray

    lopt.ray._VERSION = "0.0.1 (abc)"


def no_such_data():
    raise KeyError("no such data")


def die_in_first_actor(marker):
    """The first actor that comes ends hard before it computes."""

    def setup():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os._exit(3)

    return setup


def register():
    @lopt.task
    class Parabola:
        """The sum of squares."""

        per_replica = True

        def init(self, key):
            return {"w": key.normal(4)}

        def loss_and_grad(self, params):
            return params["w"] @ params["w"], {"w": 2 * params["w"]}


def imitation_of_ray():
    """As much of the module ray as lopt.ray uses when it is imported and employs an actor."""
    ray = types.ModuleType("ray")
    ray.__version__ = "0"
    ray.kill = mock.Mock()
    names = "RayTaskError", "ActorUnschedulableError", "RuntimeEnvSetupError", "RayError"
    ray.exceptions = types.SimpleNamespace(**{name: type(name, (Exception,), {}) for name in names})
    return ray


class WithoutRay(unittest.TestCase):
    def test_an_actor_that_leaves_while_its_work_runs_has_died(self):
        frames = [[b"who it is"], []]  # the second is its last word

        async def collect():
            return frames.pop(0)

        async def run(*_):
            await asyncio.Event().wait()

        def remote(of):
            return types.SimpleNamespace(remote=of)

        actor = types.SimpleNamespace(run=remote(run), collect=remote(collect), deliver=None)
        ray = imitation_of_ray()
        ray.remote = lambda _: types.SimpleNamespace(options=lambda **_: remote(lambda: actor))
        loaded = {name: module for name, module in sys.modules.items() if name != "lopt.ray"}
        with mock.patch.dict(sys.modules, loaded | {"ray": ray}, clear=True):
            module = importlib.import_module("lopt.ray")
            actors = module._Actors(1, 0, None, {})
            with (mock.patch.object(module, "_LAST_WORD_SECONDS", 0),
                  self.assertRaisesRegex(module._Died, "^it has left and does not end$")):
                asyncio.run(actors._employ("lopt-0"))
        ray.kill.assert_called_once_with(actor)


@unittest.skipUnless(RAY, "Ray is not installed for this interpreter")
class OnRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Nothing is written to the home directory. Ray looks at these when it is imported.
        cls.enterClassContext(mock.patch.dict(os.environ, {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0"}))
        import ray

        import lopt.ray

        cls.ray = ray
        session = cls.enterClassContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=session)
        cls.addClassCleanup(ray.shutdown)
        cls.whole = lopt.meta_train(CONFIG)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out = pathlib.Path(scratch.name, "run")

    def train(self, config=CONFIG, num_workers=2, **options):
        return lopt.ray.meta_train(config, num_workers=num_workers, **options)

    def assert_same(self, training, other=None):
        wanted = (other or self.whole).theta.values
        self.assertEqual(training.theta.values.tobytes(), wanted.tobytes())

    def actors(self):
        return sorted(self.ray.util.list_named_actors())

    def test_theta_and_metrics_are_those_of_one_process(self):
        lopt.meta_train(CONFIG, out=f"{self.out}-one")
        records = []
        training = self.train(
            out=self.out, callbacks=[lambda step, metrics: records.append({"step": step} | metrics)])
        self.assert_same(training)
        self.assertEqual(training.updates, 20)
        one, ours = (pathlib.Path(f"{out}/metrics.jsonl").read_text()
                     for out in (f"{self.out}-one", self.out))
        self.assertEqual(ours, one)
        self.assertEqual([json.loads(line) for line in ours.splitlines()], records)
        self.assertEqual(self.actors(), [])

    def test_actors_that_are_killed_are_replaced_and_no_bit_changes(self):
        seen = set()

        def kill(step, metrics):
            seen.update(self.actors())
            if step in (3, 9):
                self.ray.kill(self.ray.get_actor(self.actors()[0]))

        self.assert_same(self.train(callbacks=[kill], max_restarts=2))
        numbers = {int(re.fullmatch(r"lopt-\w+-(\d+)", name)[1]) for name in seen}
        self.assertGreaterEqual(max(numbers), 2)

    def test_an_actor_that_dies_once_more_than_is_allowed_ends_the_run(self):
        with self.assertRaisesRegex(
                lopt.Error, r"^Ray actor lopt-\w+-0 has died, and max_restarts=0 actors were replaced "
                            r"before: ") as caught:
            self.train(num_workers=1, max_restarts=0, setup=lambda: os._exit(3))
        self.assertIsInstance(caught.exception.__cause__, self.ray.exceptions.RayActorError)

    def test_an_actor_that_dies_before_it_computes_is_replaced(self):
        self.assert_same(self.train(
            num_workers=1, max_restarts=1, setup=die_in_first_actor(f"{self.out}-died")))

    def test_an_actor_that_hangs_is_replaced(self):
        pids = pathlib.Path(f"{self.out}-pids")

        def note():
            with open(pids, "a") as file:
                file.write(f"{os.getpid()}\n")

        def stop(step, metrics):
            if step == 3:
                os.kill(int(pids.read_text().splitlines()[-1]), signal.SIGSTOP)

        training = self.train(CONFIG | {"worker_timeout_seconds": 3}, num_workers=1, setup=note,
                              callbacks=[stop])
        self.assert_same(training)
        self.assertGreaterEqual(len(pids.read_text().splitlines()), 2)

    def test_a_callback_may_take_longer_than_an_actor_may_be_silent(self):
        self.assert_same(self.train(CONFIG | {"worker_timeout_seconds": 1}, callbacks=[
            lambda step, metrics: time.sleep(3) if step == 4 else None]))

    def test_what_an_actor_raises_comes_out_with_its_name(self):
        with self.assertRaisesRegex(
                lopt.Error, r"^Ray actor lopt-\w+-0 has failed: KeyError: "
                            r"'no such data'$") as caught:
            self.train(num_workers=1, setup=no_such_data, out=self.out)
        self.assertIn("in no_such_data", str(caught.exception.__cause__))
        self.assertEqual(self.actors(), [])
        self.assert_same(self.train(out=self.out, resume=True))

    def test_an_actor_with_another_version_is_refused(self):
        with self.assertRaisesRegex(
                lopt.Error, r"^Ray actor lopt-\w+-0 has failed: Error: the learner refuses this process: it runs "
                            r"another version of the program than the learner: '0.0.1 \(abc\)' there, "
                            rf"'{re.escape(lopt._core._program_version)}' here$"):
            self.train(num_workers=1, setup=other_version)

    def test_an_actor_without_the_task_fails_and_with_setup_it_computes(self):
        register()
        task = {**CONFIG["estimators"][0], "task": {"type": "Parabola"}}
        config = CONFIG | {"estimators": [task], "meta_steps": 4}
        with self.assertRaisesRegex(lopt.Error, r"^Ray actor .* has failed: .*Parabola"):
            self.train(config)
        self.assert_same(self.train(config, setup=register), lopt.meta_train(config))

    def test_what_a_callback_raises_comes_out_and_the_run_goes_on_in_one_process_and_back(self):
        class Stop(Exception):
            pass

        def stop(at):
            def callback(step, metrics):
                if step == at:
                    raise Stop

            return [callback]

        with self.assertRaises(Stop):
            self.train(out=self.out, callbacks=stop(4))
        with self.assertRaises(Stop):
            lopt.meta_train(out=self.out, resume=True, callbacks=stop(10))
        training = self.train(None, out=self.out, resume=True, num_workers=1)
        self.assertEqual(training.updates, 9)
        self.assert_same(training)

    def test_ctrl_c_ends_the_run_after_the_update_and_while_no_actor_is_there(self):
        def interrupt(step, metrics):
            if step == 5:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.train(out=self.out, callbacks=[interrupt])
        manifest = json.loads((self.out / "manifest.json").read_text())
        self.assertEqual((manifest["status"], manifest["updates"]), ("interrupted", 6))
        self.assert_same(self.train(out=self.out, resume=True))

        # No node has this resource, so no actor ever comes.
        class Interrupt(lopt.Callback):
            def on_start(self, config):
                signal.setitimer(signal.ITIMER_REAL, 0.2)

        def alarm(*_):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, alarm))
        with self.assertRaises(KeyboardInterrupt):
            self.train(actor_options={"resources": {"moon": 1}}, callbacks=[Interrupt()])
        self.assertEqual(self.actors(), [])

    def test_wrong_arguments_are_errors_and_start_nothing(self):
        for options, text in (
            ({"num_workers": 0}, "num_workers must be an int of 1 or more, got 0"),
            ({"max_restarts": -1}, "max_restarts must be an int of 0 or more, got -1"),
            ({"actor_options": {"name": "mine"}}, "actor_options has name, set by lopt itself"),
            ({"config": {"worker": 3}}, "worker"),
            ({"config": CONFIG | {"isa": "none"}}, "none"),
        ):
            with self.subTest(options), self.assertRaisesRegex(lopt.Error, re.escape(text)):
                self.train(**options)
        with self.assertRaises(ValueError):
            self.train(actor_options={"num_cpus": -1})
        with self.assertRaises(TypeError):
            self.train(stpes=3)
        self.assertEqual(self.actors(), [])


if __name__ == "__main__":
    unittest.main()
