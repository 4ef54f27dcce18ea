"""Progress of a run in the status of Kubeflow Trainer's TrainJob (`status.trainerStatus`).

Kubeflow Trainer 2.2 and later, with its feature gate TrainJobStatus, tells the containers of a
TrainJob in three environment variables where to post it. Either of these does:

    python -m lopt.kubeflow RUN_DIRECTORY                  # beside any run of lopt meta-train
    lopt.meta_train(config, callbacks=[lopt.kubeflow.Progress()])

Posted are the percentage of updates done, the estimated seconds that remain, and the metrics `loss`
and `updates_per_second`: at most every 5 s, and once at the end. A post that fails is no error of
the run: the logger `lopt.kubeflow` warns, once for each kind of failure, and the next post is tried
all the same. Without the variables nothing is posted.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import math
import os
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .callbacks import Callback, _total_updates

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"  # path of the server's certificate authority
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # path of the bearer token, which changes within the hour

SECONDS_BETWEEN_POSTS = 5.0
_RATE_SECONDS = 60.0  # the window in which the speed is measured
_TAIL_BYTES = 1 << 18  # of metrics.jsonl, more than a record has
_MOST_SECONDS = 2**31 - 1  # the API's integers have 32 bits

_log = logging.getLogger("lopt.kubeflow")


@dataclass(frozen=True)
class _Progress:
    """What a run has done: updates of theta, all that it is to do, and its speed and loss."""

    updates: int
    total: int
    updates_per_second: float | None = None
    loss: float | str | None = None

    def trainer_status(self, now: datetime) -> dict[str, Any]:
        """The `trainerStatus` of the API, without what is not known."""
        status: dict[str, Any] = {
            "progressPercentage": max(0, min(100, 100 * self.updates // self.total)),
            "lastUpdatedTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        remaining = max(0, self.total - self.updates)
        if remaining == 0:
            status["estimatedRemainingSeconds"] = 0
        elif self.updates_per_second:
            seconds = math.ceil(remaining / self.updates_per_second)
            status["estimatedRemainingSeconds"] = min(seconds, _MOST_SECONDS)
        metrics = {"loss": self.loss, "updates_per_second": self.updates_per_second}
        status["metrics"] = [
            {"name": name, "value": value if isinstance(value, str) else f"{value:.6g}"}
            for name, value in metrics.items()
            if value is not None
        ]
        return status


class _Rate:
    """Updates per second of the last minute."""

    def __init__(self) -> None:
        self._seen: collections.deque[tuple[int, float]] = collections.deque()

    def note(self, updates: int, seconds: float) -> None:
        """So many updates there were at that time; fewer than before begin a new measurement."""
        if self._seen and updates < self._seen[-1][0]:
            self._seen.clear()
        if self._seen and seconds <= self._seen[-1][1]:
            return
        self._seen.append((updates, seconds))
        while len(self._seen) > 2 and seconds - self._seen[1][1] >= _RATE_SECONDS:
            self._seen.popleft()

    def per_second(self) -> float | None:
        """None while it is not known, or while nothing moves."""
        if len(self._seen) < 2:
            return None
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        return (last - first) / (end - start) or None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: the token is for one server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _kind(error: Exception) -> str:
    """What two failures of one kind have in common."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        return _kind(error.reason)
    return type(error).__name__


class _Poster:
    """Posts to the server that the environment names; no method raises because a post fails."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        timeout_seconds: float = 5.0,
    ):
        environ = os.environ if environ is None else environ
        self._values = {name: environ.get(name, "") for name in (URL, CA_CERT, TOKEN)}
        self._clock = clock
        self._timeout = timeout_seconds
        self._begun: float | None = None
        self._warned: set[str] = set()

    @property
    def wanted(self) -> bool:
        """Whether the environment names a server."""
        return bool(self._values[URL])

    def due(self) -> bool:
        """Whether the last post began 5 s ago or earlier."""
        return self._begun is None or self._clock() - self._begun >= SECONDS_BETWEEN_POSTS

    def post(self, progress: _Progress) -> None:
        """Posts now. Warns if that fails, once for each kind of failure."""
        self._begun = self._clock()
        try:
            self._send({"trainerStatus": progress.trainer_status(datetime.now(timezone.utc))})
        except Exception as error:  # noqa: BLE001  (whatever it is, the run goes on)
            self.warn(_kind(error), f"cannot post progress to {self._values[URL]}: {error}")

    def warn(self, kind: str, text: str) -> None:
        """Logs the text, once for each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("%s (logged once for this kind of failure, %s)", text, kind)

    def _send(self, body: dict[str, Any]) -> None:
        missing = [name for name, value in self._values.items() if not value]
        if missing:
            raise ValueError(f"{URL} is set, but not {' and '.join(missing)}")
        url = self._values[URL]
        if not url.startswith("https://"):
            raise ValueError(f"{URL} is to begin with https://, since the token goes there")
        # Token and certificate are read anew, since both change while a run lasts.
        token = Path(self._values[TOKEN]).read_text().strip()
        context = ssl.create_default_context(cafile=self._values[CA_CERT])
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # the server is in the cluster
            urllib.request.HTTPSHandler(context=context),
            _NoRedirect(),
        )
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with opener.open(request, timeout=self._timeout):
            pass


class Progress(Callback):
    """Posts the progress of meta_train to Kubeflow Trainer, from a thread of its own.

    Training neither waits for the server nor depends on it; only the end of a run waits for the
    last post, at most twice `timeout_seconds`.
    """

    def __init__(
        self,
        timeout_seconds: float = 5.0,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Of each post; `environ` and `clock` (seconds) stand in for the process's."""
        self._poster = _Poster(environ, clock, timeout_seconds)
        self._clock = clock
        self._timeout = timeout_seconds
        self._thread: threading.Thread | None = None

    def on_start(self, config: dict[str, Any]) -> None:
        self._rate = _Rate()
        self._total = _total_updates(config)
        self._updates = 0
        self._loss: float | None = None

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        if not self._poster.wanted:
            return
        self._updates = step + 1
        self._loss = metrics.get("meta_loss", self._loss)
        self._rate.note(self._updates, self._clock())
        if self._poster.due() and not self._posting():
            self._post()

    def on_end(self, training: Any) -> None:
        if not self._poster.wanted:
            return
        self._updates = self._total
        if self._thread is not None:  # or an older percentage might come last
            self._thread.join(self._timeout)
        if self._posting():
            self._poster.warn("no answer", "the end of the run is not posted: the server is silent")
            return
        self._post()
        self._thread.join(self._timeout)

    def _posting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _post(self) -> None:
        progress = _Progress(self._updates, self._total, self._rate.per_second(), self._loss)
        self._thread = threading.Thread(
            target=self._poster.post, args=(progress,), name="lopt.kubeflow", daemon=True
        )
        self._thread.start()


class _Run:
    """What the files of a run's directory say, while another process writes them."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._rate = _Rate()
        self._process: tuple[Any, Any] | None = None

    def finished(self) -> bool:
        return self._record("manifest.json").get("status") == "finished"

    def progress(self) -> _Progress | None:
        """None before the run says anything. Throws ValueError for what is no meta-training."""
        rank = self._record("status/rank-0.json")  # newer than the manifest while the run lasts
        if not rank:
            return None
        total = self._record("config.json").get("meta_steps")
        if not total:
            raise ValueError("its config.json has no meta_steps, as runs of meta-train have")
        process = (rank["host"], rank["pid"])
        if process != self._process:  # resumed: the pause is not to count
            self._process, self._rate = process, _Rate()
        self._rate.note(rank["updates"], rank["time_seconds"])
        updates = total if self.finished() else rank["updates"]
        return _Progress(updates, total, self._rate.per_second(), self._loss())

    def _loss(self) -> float | str | None:
        """The meta-loss of the newest whole record that has one."""
        try:
            with open(self._directory / "metrics.jsonl", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return None
        for line in reversed(lines):
            try:
                return json.loads(line)["meta_loss"]
            except (ValueError, KeyError):  # the last line may not be whole yet
                continue
        return None

    def _record(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self._directory / name).read_text())
        except FileNotFoundError:
            return {}


def follow(
    directory: str | os.PathLike,
    wait: Callable[[float], bool],
    *,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    timeout_seconds: float = 5.0,
) -> None:
    """Posts the progress of the run in a directory until the run has finished.

    A run that was interrupted or has failed is followed on, since it may be resumed.

    Args:
        directory: That of the run; it need not exist yet.
        wait: Called with the seconds until the next look; true ends the following, after a post.
        environ: The variables of Kubeflow Trainer; None: this process's.
        clock: Seconds, for the time between posts.
        timeout_seconds: Of each post.
    """
    poster = _Poster(environ, clock, timeout_seconds)
    if not poster.wanted:
        return
    run = _Run(Path(directory))
    stop = False
    while True:
        finished = False
        try:
            finished = run.finished()
            if finished or stop or poster.due():
                progress = run.progress()
                if progress is not None:
                    poster.post(progress)
        except Exception as error:  # noqa: BLE001  (the files are another process's)
            poster.warn(f"run: {_kind(error)}", f"cannot read the run in {directory}: {error}")
        if finished or stop:
            return
        stop = wait(1.0)


def main(arguments: list[str] | None = None) -> int:
    """The command line of `python -m lopt.kubeflow`; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lopt.kubeflow",
        description="Posts the progress of a run of lopt meta-train to Kubeflow Trainer until it"
        f" has finished or SIGTERM comes. Does nothing where {URL} is not set.",
    )
    parser.add_argument("run_directory", help="that of --out; it need not exist yet")
    directory = parser.parse_args(arguments).run_directory
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s: %(message)s")
    if not os.environ.get(URL):
        _log.info("%s is not set: nothing is posted", URL)
        return 0
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # a container's first process needs one
    follow(directory, stop.wait)
    return 0


if __name__ == "__main__":
    sys.exit(main())
