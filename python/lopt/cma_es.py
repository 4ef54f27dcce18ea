"""Meta-training by CMA-ES, which compares the losses of whole populations of thetas."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import operator
import os
import pickle
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from . import _core
from .theta import Theta


_STATE = "search.pickle"
_LOCK = "search.lock"
# What stands behind the pickle, where its readers do not look, of a search without a generation: such
# a one may be begun anew, and that is known without reading a pickle, which could run anything.
_NOT_BEGUN = b"\nlopt.cma_es: no generation has ended\n"


class _Normal:
    """Standard normal numbers for cma, each call's a function of the key and the calls before."""

    def __init__(self, key: _core.Key) -> None:
        self._key = key
        self._calls = 0

    def __call__(self, rows: int, columns: int) -> numpy.ndarray:
        self._calls += 1
        return self._key.fold_in(self._calls).normal((rows, columns)).astype(numpy.float64)


@dataclass(frozen=True)
class Generation:
    """What a callback of meta_train gets.

    Attributes:
        number: The generation's, from 0.
        losses: Of its thetas, float64 [population].
        std: The step size sigma of the next generation, whose thetas have the covariance sigma^2 C.
    """

    number: int
    losses: numpy.ndarray
    std: float


def _cma():
    try:
        import cma
    except ImportError:
        raise _core.Error(
            "lopt.cma_es needs the package cma: pip install 'cma>=3'") from None
    return cma


def _made_by() -> dict[str, str]:
    """What the bits of a search depend on beside its config."""
    return {"instruction set": _core.isa(), "cma": getattr(_cma(), "__version__", ""),
            "NumPy": numpy.__version__}


def _check(config: dict[str, Any]) -> None:
    """Raises Error where the config has what a search leaves out."""
    for key, wanted in {"workers": 1, "estimators_per_worker": 0, "weighting": "fixed"}.items():
        if config[key] != wanted:
            raise _core.Error(f"lopt.cma_es: {key} must be {wanted}, got {config[key]}: one process "
                              "runs all estimators for every theta, each with its weight")


def _start(experiment: _core.Experiment) -> Theta:
    """The theta to begin with: that of init_theta, or the drawn one."""
    config = experiment.config
    if config["init_theta"]:
        return Theta.read(config["init_theta"], config["learned_optimizer"])
    return Theta.init(config["learned_optimizer"], config["seed"])


def _searched(theta: Theta, frozen: list[str]) -> numpy.ndarray:
    """The indices of the weights of the other tensors."""
    held = [numpy.full(t.size, name in frozen) for name, t in theta.tensors.items()]
    return numpy.flatnonzero(~numpy.concatenate(held))


class _Search:
    """All that lives between two generations; it can be pickled."""

    def __init__(self, experiment: _core.Experiment, population: int, std: float) -> None:
        start = _start(experiment)
        self.config = experiment.config
        self.population, self.std = population, std
        self.generation = 0
        self.made_by = _made_by()
        self.data = experiment.data
        self._start = numpy.array(start.values)
        self._searched = _searched(start, experiment.frozen)
        if self._searched.size < 2:
            raise _core.Error("lopt.cma_es: it searches 2 weights or more; 1 is not frozen")
        self._es = _cma().CMAEvolutionStrategy(
            self._start[self._searched].astype(numpy.float64), std,
            {"popsize": population, "randn": _Normal(_core.worker_key(experiment.run_key, 1)),
             "seed": numpy.nan, "verbose": -9})

    def _full(self, searched: numpy.ndarray) -> numpy.ndarray:
        theta = self._start.copy()
        theta[self._searched] = searched
        return theta

    def step(self, experiment: _core.Experiment, estimators: _core.Estimators,
             threads: int | None) -> Generation:
        asked = self._es.ask()
        losses = _core.meta_losses(
            numpy.array([self._full(theta) for theta in asked], numpy.float32), estimators,
            _core.worker_key(experiment.run_key, 0), self.generation, threads)
        finite = int(numpy.isfinite(losses).sum())
        if 2 * finite < self.population:
            raise _core.Error(
                f"lopt.cma_es: generation {self.generation}: only {finite} of {self.population} "
                "thetas have a finite loss, wanted at least half; take a smaller std, a better start "
                "or tasks whose losses are cut")
        self._es.tell(asked, list(losses))
        self.generation += 1
        return Generation(self.generation - 1, losses, float(self._es.sigma))

    def theta(self, experiment: _core.Experiment) -> Theta:
        facts = experiment.theta(experiment.learner.init(_core.theta_key(experiment.run_key)))
        trained = experiment.trained_range(self.generation) or {}
        return Theta(**facts | {
            "values": self._full(self._es.mean).astype(numpy.float32),
            "meta_steps": self.generation,
            "trained_horizon": trained.get("longest_training", 0),
            "trained_range": trained or None})


def _write(path: str, data: bytes) -> None:
    """Complete or, after a crash, as before. Makes the directory. Raises Error if it cannot."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise _core.Error(f"lopt.cma_es: cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def _only_one(directory: str) -> Iterator[None]:
    """Keeps other searches out of the directory, which it makes. The lock is the system's, of a file
    that stays: it ends with the process, however that ends. Raises Error if another search runs."""
    path = os.path.join(directory, _LOCK)
    with contextlib.ExitStack() as opened:
        try:
            os.makedirs(directory, exist_ok=True)
            fcntl.flock(opened.enter_context(open(path, "ab")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _core.Error(f"lopt.cma_es: {directory} is in use: another search runs in it; wait "
                              "for its end or give another directory") from None
        except OSError as error:
            # Some network file systems have no such locks.
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise _core.Error(f"lopt.cma_es: cannot lock {path}: {error.strerror}") from None
        yield


def _population(given: Any) -> int:
    try:
        population = operator.index(given)
    except TypeError:
        population = 0
    if population < 4:
        raise _core.Error(f"lopt.cma_es: population must be an integer of at least 4, got {given}")
    return population


def _read_search(directory: str) -> _Search:
    path = os.path.join(directory, _STATE)
    _cma()
    try:
        with open(path, "rb") as file:
            search = pickle.load(file)
    except FileNotFoundError:
        raise _core.Error(f"lopt.cma_es: cannot resume: {directory} holds no search") from None
    except Exception as error:  # noqa: BLE001  (a damaged pickle raises anything)
        raise _core.Error(f"lopt.cma_es: cannot resume: {path} is damaged: {error}") from None
    if not isinstance(search, _Search):
        raise _core.Error(f"lopt.cma_es: cannot resume: {path} holds no search")
    return search


def _holds_no_generation(directory: str) -> bool:
    """Whether the search in the directory, if there is one, ended before its first generation."""
    try:
        with open(os.path.join(directory, _STATE), "rb") as file:
            return file.read().endswith(_NOT_BEGUN)
    except OSError:
        return False


def _same(what: str, given: Any, had: Any) -> None:
    if given != had:
        raise _core.Error(f"lopt.cma_es: cannot resume with another {what}: {given!r}; the search "
                          f"has {had!r}")


# The keys of a config that a search depends on, beside meta_steps, its length.
_KEYS = ("learned_optimizer", "init_theta", "frozen", "estimators", "seed", "data_dir",
         "device")


def meta_train(
    config: dict[str, Any] | str | os.PathLike | None = None,
    *,
    out: str | os.PathLike | None = None,
    generations: int | None = None,
    seed: int | None = None,
    population: int | None = None,
    std: float | None = None,
    threads: int | None = None,
    resume: bool = False,
    callback: Callable[[Generation], None] | None = None,
) -> Theta:
    """Meta-trains by CMA-ES (Hansen 2016, arXiv 1604.00772), of the package cma.

    Each generation compares thetas drawn around a mean: all train the same tasks, from the same
    initial parameters on the same batches (meta_losses). A theta's loss is the weighted mean over
    the config's estimators, each a FullES. The search learns along which directions, and how far,
    thetas are worth comparing. It suits a few hundred weights at most and a start that is good
    already; `frozen` of the config leaves weights out of it. It reads these keys of the config:
    learned_optimizer, init_theta, frozen, estimators (but for their std and other options of pairs),
    meta_steps, seed, data_dir, device and isa. It ignores the others, such as theta_opt.

    The theta is a function of these, `population` and `std`, for any number of threads and across
    stop and resume, with the same data, versions of cma and NumPy, and BLAS of NumPy.

    A theta whose training diverges has the loss inf and is the worst of its generation, unless the
    task cuts losses. With non_finite "abort" it is an Error.

    Args:
        config: A dict, the name of a preset, or the path of a JSON file, as for lopt.meta_train.
            May be left out on resume.
        out: Directory of this search alone: theta.safetensors and the state, written after each
            generation. The state is a pickle, so resume only a search of your own. None: nothing
            is written.
        generations: In total; None: the config's meta_steps.
        seed: None: the config's.
        population: Thetas of a generation, at least 4. None: 16.
        std: Of each weight in the first generation. None: 0.08.
        threads: None: one for each core that the process may use.
        resume: Go on with the search in `out`, to more `generations` if these are given.
        callback: Called after each generation.

    Returns:
        The mean of the search, with what it was trained on.

    Raises:
        Error: cma is not installed; the config is wrong, has several workers or leaves fewer than
            two weights; an estimator is not a FullES; `out` holds a run, or a search that has made a
            generation and resume is not set; the search to be resumed is damaged, longer, or of
            another config, population, std, data, instruction set or versions; more than half of
            a generation's losses are not finite; `out` cannot be written; or another search runs in it.
    """
    with contextlib.ExitStack() as held:
        return _meta_train(held, config, out, generations, seed, population, std, threads, resume,
                           callback)


def _meta_train(held: contextlib.ExitStack, config, out, generations, seed, population, std, threads,
                resume, callback) -> Theta:
    """meta_train; `held` gets the directory's lock."""
    directory = _core.path_of(out, "out") if out is not None else ""
    if resume and not directory:
        raise _core.Error("lopt.cma_es: resume wants `out`, the directory of the search")
    if resume and os.path.exists(os.path.join(directory, _STATE)):
        held.enter_context(_only_one(directory))
    search = _read_search(directory) if resume else None
    if config is None:
        if search is None:
            raise _core.Error("lopt.cma_es: config is missing; it may be left out on resume alone")
        config = search.config
    given = {key: value for key, value in
             {"meta_steps": generations, "seed": seed}.items() if value is not None}
    experiment = _core.Experiment(_core.load_config(config) | given)
    _check(experiment.config)
    if experiment.config["isa"]:
        _core.pin_isa(experiment.config["isa"])
    wanted = experiment.config["meta_steps"]
    if search is None:
        std = 0.08 if std is None else std
        population = 16 if population is None else _population(population)
        if not (0 < std < numpy.inf):
            raise _core.Error(f"lopt.cma_es: std must be a positive number, got {std}")
        if directory:
            held.enter_context(_only_one(directory))
        replaced = (_STATE, "theta.safetensors") if _holds_no_generation(directory) else ()
        for name in (_STATE, "config.json", "theta.safetensors"):
            if directory and name not in replaced and os.path.exists(os.path.join(directory, name)):
                raise _core.Error(f"lopt.cma_es: {directory} holds {name}; resume the search that is "
                                  "there or give another directory")
        search = _Search(experiment, population, std)
    else:
        if population is not None:
            _same("population", population, search.population)
        if std is not None:
            _same("std", std, search.std)
        # A search of an earlier version has not the keys that have come since, with their defaults.
        had = _core.Experiment(search.config).config
        for key in _KEYS:
            _same(key, experiment.config[key], had[key])
        for what, having in _made_by().items():
            _same(what, having, search.made_by[what])
        if hasattr(search, "data"):  # earlier versions did not note it
            _same("data (files, with their CRC-32)", experiment.data, search.data)
        if wanted < search.generation:
            raise _core.Error(f"lopt.cma_es: generations is {wanted}, but the search has made "
                              f"{search.generation}")
        search.config = experiment.config

    def save() -> None:
        if directory:
            end = _NOT_BEGUN if search.generation == 0 else b""
            _write(os.path.join(directory, _STATE), pickle.dumps(search) + end)
            search.theta(experiment).write(os.path.join(directory, "theta.safetensors"))

    estimators = experiment.estimators()
    save()  # after a kill theta may be older than the state
    while search.generation < wanted:
        generation = search.step(experiment, estimators, threads)
        save()
        if callback is not None:
            callback(generation)
    return search.theta(experiment)


def main(arguments: list[str] | None = None) -> int:
    """The command line of `python -m lopt.cma_es`; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lopt.cma_es",
        description="Meta-trains by CMA-ES, which compares the losses of thetas; needs the package"
        " cma.")
    parser.add_argument("config", nargs="?", help="a preset or a JSON file; with --resume optional")
    parser.add_argument("--out", required=True, help="the directory to write to")
    parser.add_argument("--generations", type=int, help="in total; default: the config's meta_steps")
    parser.add_argument("--seed", type=int, help="default: the config's")
    parser.add_argument("--population", type=int, help="thetas of a generation; default: 16")
    parser.add_argument("--std", type=float, help="of the first generation; default: 0.08")
    parser.add_argument("--threads", type=int, help="default: one for each core")
    parser.add_argument("--resume", action="store_true", help="go on with the search in --out")
    options = parser.parse_args(arguments)

    def tell(generation: Generation) -> None:
        losses = generation.losses
        print(f"generation {generation.number + 1}: mean loss {losses.mean():.4f}, "
              f"least {losses.min():.4f}, std {generation.std:.3f}", flush=True)

    try:
        meta_train(options.config, out=options.out, generations=options.generations,
                   seed=options.seed, population=options.population, std=options.std,
                   threads=options.threads, resume=options.resume, callback=tell)
    except _core.Error as error:
        print(f"lopt.cma_es: {str(error).removeprefix('lopt.cma_es: ')}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if os.path.exists(os.path.join(options.out, _STATE)):
            threads = "" if options.threads is None else f" --threads {options.threads}"
            print(f"Stopped. To go on: python -m lopt.cma_es --out {shlex.quote(options.out)} "
                  f"--resume{threads}", file=sys.stderr)
        return 130
    print(f"The weights are in {os.path.join(options.out, 'theta.safetensors')}")
    return 0


if __name__ == "__main__":
    from lopt import cma_es  # whose classes the pickle names

    sys.exit(cma_es.main())
