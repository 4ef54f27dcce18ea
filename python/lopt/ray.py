"""Meta-training on a Ray cluster: actors compute the windows, this process updates theta.

    import lopt.ray

    training = lopt.ray.meta_train("tutorial", num_workers=8, out="runs/a")

Needs Ray: pip install 'ray>=2.60'.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from typing import Any

try:
    import ray
except ImportError as error:
    raise ImportError("lopt.ray needs Ray, which is not installed here: pip install 'ray>=2.60'") from error

from . import _core, training
from .training import MetaTraining

__all__ = ["meta_train"]

_VERSION = _core._program_version
# Of an actor at once: run, collect and deliver.
_CALLS = 3
# What actors are made with by this module itself.
_OWN_OPTIONS = (
    "concurrency_groups", "get_if_exists", "lifetime", "max_concurrency", "max_restarts",
    "max_task_retries", "name",
)
# How long an actor that the learner wants no more may take to say why it ends.
_LAST_WORD_SECONDS = 5


class _Worker:
    """The actor: the worker loop, and the frames from and to the learner."""

    def __init__(self) -> None:
        self._carrier = _core.Carrier("Ray")

    def run(self, setup: Callable[[], object] | None, threads: int, token: str) -> None:
        if setup is not None:
            setup()
        _core.work_for_learner(self._carrier, threads, token, _VERSION)

    def collect(self) -> list[bytes]:
        """Waits for frames to the learner; none: there will be none any more."""
        return [frame for _, frame in self._carrier.take() if frame is not None]

    def deliver(self, frames: list[bytes]) -> None:
        self._carrier.hand_in(1, frames)


class _Died(Exception):
    """An actor is no more, and is to be replaced."""


class _Actors:
    """Keeps actors at work for a learner in this process, and carries the frames between them."""

    def __init__(
        self,
        num_workers: int,
        max_restarts: int,
        setup: Callable[[], object] | None,
        options: dict[str, Any],
    ):
        self._num_workers = num_workers
        self._max_restarts = max_restarts
        self._options = {"num_cpus": 1} | options | {"max_concurrency": _CALLS}
        self._class = ray.remote(_Worker)
        self._class.options(**self._options)  # raises what is wrong with them
        threads = max(1, int(self._options["num_cpus"] or 0))
        self._token = secrets.token_hex(16)  # with one, a refusal names both versions
        self._arguments = (setup, threads, self._token)
        self._run = secrets.token_hex(3)
        self._started = 0
        self._died = 0
        self._carrier = _core.Carrier(f"Ray {ray.__version__}")
        self._links: dict[int, _Link] = {}  # by connection
        self.failure: BaseException | None = None

    def train(self, *arguments: Any) -> dict[str, Any]:
        """Runs the learner with these arguments of _core.meta_train, and the actors meanwhile."""
        carrying = threading.Thread(target=self._carry_here, name="lopt.ray")
        carrying.start()
        try:
            return _core.meta_train(*arguments, workers=self._carrier, token=self._token)
        finally:
            self._carrier.close()
            carrying.join()

    def _carry_here(self) -> None:
        try:
            asyncio.run(self._carry())
        except Exception as error:
            self._fail(f"carrying messages to Ray actors has failed: {error!r}", error)

    async def _carry(self) -> None:
        """Until the learner has ended."""
        keepers = [asyncio.create_task(self._keep()) for _ in range(self._num_workers)]
        for keeper in keepers:
            keeper.add_done_callback(self._kept)
        try:
            while errands := await asyncio.to_thread(self._carrier.take):
                for connection, frame in errands:
                    if connection in self._links:
                        self._links[connection].take(frame)
        finally:
            await _cancel(keepers)

    def _kept(self, keeper: asyncio.Future) -> None:
        """A fault of this module must not leave the learner waiting."""
        if not keeper.cancelled() and (error := keeper.exception()):
            self._fail(f"keeping a Ray actor at work has failed: {error!r}", error)

    async def _keep(self) -> None:
        """Has an actor at work, another one when it dies."""
        while True:
            name = f"lopt-{self._run}-{self._started}"
            self._started += 1
            try:
                await self._employ(name)
                return
            except _Died as died:
                self._died += 1
                if self._died > self._max_restarts:
                    self._fail(
                        f"Ray actor {name} has died, and max_restarts={self._max_restarts} actors were "
                        f"replaced before: {died}",
                        died.__cause__,
                    )
                    return
            except Exception as error:
                self._fail(f"Ray actor {name} has failed: {_words(error)}", error)
                return

    def _fail(self, text: str, error: BaseException | None) -> None:
        if self.failure is None:
            self.failure = error
        self._carrier.fail(text)

    async def _employ(self, name: str) -> None:
        """One actor, until the learner has ended its work. Raises _Died, or what its work raised."""
        actor = self._class.options(**self._options, name=name).remote()
        link = _Link(actor, name, self._carrier, self._links)
        tasks: list[asyncio.Future] = []
        why = "it has left"
        try:
            running = asyncio.ensure_future(_result(actor.run.remote(*self._arguments)))
            linked = asyncio.ensure_future(link.carry())
            tasks += [running, linked, asyncio.ensure_future(link.dropped.wait())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():  # what it says of the connection's end counts
                await asyncio.wait([running], timeout=_LAST_WORD_SECONDS)
            if running.done():
                running.result()
            elif linked.done():
                linked.result()
                # As where the learner has refused it while it computes. Once the learner has said
                # that the job is over, this does no harm.
                raise _Died("it has left and does not end")
            else:
                raise _Died("the learner has dropped it; the log says why")
        except BaseException as error:
            why = _words(error)
            raise
        finally:
            await _cancel(tasks)
            link.end(why)
            ray.kill(actor)


class _Link:
    """The connection of an actor to the learner."""

    def __init__(self, actor: Any, name: str, carrier: _core.Carrier, links: dict[int, _Link]):
        self._actor = actor
        self._name = name
        self._carrier = carrier
        self._links = links
        self._connection: int | None = None
        self._down_frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.dropped = asyncio.Event()  # by the learner

    def take(self, frame: bytes | None) -> None:
        """What the learner has for the actor; None: it drops the connection."""
        if frame is None:
            self.dropped.set()
        else:
            self._down_frames.put_nowait(frame)

    async def carry(self) -> None:
        """Until the actor has ended the connection, or a call fails."""
        frames = await _result(self._actor.collect.remote())
        if not frames:
            return
        # A connection must say at once who it is, and an actor may start late.
        self._connection = self._carrier.open(f"Ray actor {self._name}")
        self._links[self._connection] = self
        self._carrier.hand_in(self._connection, frames)
        ways = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
        try:
            ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ended:
                way.result()
        finally:
            await _cancel(ways)

    def end(self, why: str) -> None:
        if self._connection is not None:
            del self._links[self._connection]
            self._carrier.end(self._connection, why)

    async def _up(self) -> None:
        while frames := await _result(self._actor.collect.remote()):
            self._carrier.hand_in(self._connection, frames)

    async def _down(self) -> None:
        """One call at a time, since an actor may run calls in another order."""
        while True:
            frames = [await self._down_frames.get()]
            while not self._down_frames.empty():
                frames.append(self._down_frames.get_nowait())
            await _result(self._actor.deliver.remote(frames))


async def _cancel(tasks: list[asyncio.Future]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _result(reference: Any) -> Any:
    """What a call of an actor gives. Raises _Died if it gives nothing as the actor is no more."""
    try:
        return await reference
    except (
        ray.exceptions.RayTaskError,
        ray.exceptions.ActorUnschedulableError,
        ray.exceptions.RuntimeEnvSetupError,
    ):
        raise
    except ray.exceptions.RayError as error:
        raise _Died(" ".join(str(error).split())) from error


def _words(error: BaseException) -> str:
    """In a line, without the traceback that Ray adds."""
    if isinstance(error, _Died):
        return str(error)
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    return f"{type(cause).__name__}: {cause}"


def meta_train(
    config: Any = None,
    *,
    num_workers: int,
    max_restarts: int = 16,
    setup: Callable[[], object] | None = None,
    actor_options: dict[str, Any] | None = None,
    **options: Any,
) -> MetaTraining:
    """Meta-trains a learned optimizer on a Ray cluster.

    Actors compute the windows of the config's logical workers; this process adds up gradients,
    updates theta and writes `out`, so no file system need be shared but for the data of tasks. The
    weights are those of lopt.meta_train, bit for bit in mode "Sync", also if actors die. Calls
    ray.init() if nobody has.

    Args:
        config: As for lopt.meta_train. Its `workers` says how many actors can be busy.
        num_workers: Actors, at least 1. The run begins with the first.
        max_restarts: How many actors that have died are replaced in all; the next ends the run.
        setup: A function that each actor calls first, such as one that registers tasks.
        actor_options: Options of ray.remote for the actors: num_cpus (1 if not given; also the
            threads of an actor), resources, runtime_env, ...
        **options: The other arguments of lopt.meta_train; threads are those of this process.

    Raises:
        Error: As lopt.meta_train; an actor runs another version of lopt or computes otherwise than
            this process, or its work fails, which the text says with the actor's name; or more than
            max_restarts actors have died.
    """
    for name, value, least in ("num_workers", num_workers, 1), ("max_restarts", max_restarts, 0):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _core.Error(f"lopt.ray.meta_train: {name} must be an int of {least} or more, got {value!r}")
    given = dict(actor_options or {})
    own = sorted(given.keys() & _OWN_OPTIONS)
    if own:
        raise _core.Error(f"lopt.ray.meta_train: actor_options has {', '.join(own)}, set by lopt itself")
    if not ray.is_initialized():
        ray.init()
    actors = _Actors(num_workers, max_restarts, setup, given)
    try:
        return training.meta_train(config, **options, _train=actors.train)
    except _core.Error as error:
        if actors.failure is None:
            raise
        raise error from actors.failure
