"""The weights of a learned optimizer."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from . import _core
from ._component import Component

_TRAINED = Path(__file__).parent / "trained"


@dataclass(eq=False)
class Theta:
    """The weights of a learned optimizer, with what is needed to use them.

    Theta(learned_optimizer, values) makes one, also with an object such as lopt.MLPLOpt();
    Theta.read and Theta.init do as well.

    Attributes:
        learned_optimizer: Type and options, as in a config: {"type": "MLPLOpt", ...}.
        values: The weights, float32 [D]. Other arrays of this object are views of it.
        config: The resolved config of the run that trained it, with the keys that they have now;
            None if unknown.
        seed: Of that run.
        meta_steps: Updates of theta.
        trained_horizon: Inner steps that no episode of that run exceeded; 0 if unknown. What the
            optimizer does in longer trainings it was not trained for.
        trained_range: What the inner trainings of that run were like, {"shortest_training": ...,
            "longest_training", "smallest_batch", "largest_batch", "fewest_params", "most_params",
            "largest_tensor"}: steps, examples and numbers of elements, each 0 if unknown, the
            longest training as trained_horizon; None if nothing of it is known.
        chosen_on: The split on whose loss this theta was chosen, by its run or by a fit; empty if
            it is its run's last.
        version: Of the program that made it; empty if unknown.
    """

    learned_optimizer: dict[str, Any]
    values: numpy.ndarray
    config: dict[str, Any] | None = None
    seed: int = 0
    meta_steps: int = 0
    trained_horizon: int = 0
    chosen_on: str = ""
    version: str = ""
    trained_range: dict[str, int] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.learned_optimizer, Component):
            self.learned_optimizer = self.learned_optimizer.config

    @classmethod
    def read(cls, path: str | os.PathLike,
             learned_optimizer: dict[str, Any] | Component | None = None,
             despite_failed_check: bool = False) -> Theta:
        """Reads a theta file (.safetensors), the newest theta of a run, or a checkpoint.

        Args:
            path: The file, the output directory of a run, or one of its checkpoints/step-...
            learned_optimizer: For files that do not name one (tensors from elsewhere).
            despite_failed_check: Read a theta file also where its golden steps come out otherwise
                than when it was written, and log a warning.

        Raises:
            Error: It cannot be read, is damaged, does not do what it did when it was written, or is
                of another learned optimizer than the given one. For a checkpoint also if the tasks
                of its config cannot be made, which the trained horizon is known from.
        """
        return cls(**_core.read_theta(path, learned_optimizer, despite_failed_check))

    @classmethod
    def init(cls, learned_optimizer: dict[str, Any] | Component, seed: int = 0) -> Theta:
        """The weights that a run with this seed begins with, of an optimizer with all its options.
        """
        resolved = _core.resolve_optimizer(learned_optimizer)
        return cls(resolved, _core.init_theta(resolved, seed), seed=seed)

    def write(self, path: str | os.PathLike) -> None:
        """Writes a theta file: complete or, after a crash, absent.

        Raises:
            Error: An attribute has the wrong type, dtype or shape, or the file cannot be written.
        """
        _core.write_theta(self, path)

    @property
    def tensors(self) -> dict[str, numpy.ndarray]:
        """Views of `values` by the names of the tensors, each with its shape.

        Raises:
            Error: The number of values is not that of the learned optimizer's weights.
        """
        layout = _core.theta_layout(self.learned_optimizer)
        sizes = [int(numpy.prod(shape)) for _, shape in layout]
        if self.values.shape != (sum(sizes),):
            raise _core.Error(
                f"theta.values must have shape [{sum(sizes)}] for a "
                f"{self.learned_optimizer['type']}, got {list(self.values.shape)}"
            )
        ends = numpy.cumsum(sizes)
        return {
            name: self.values[end - size : end].reshape(shape)
            for (name, shape), size, end in zip(layout, sizes, ends)
        }

    def _range_facts(self) -> list[tuple[str, str]]:
        known = self.trained_range or {}

        def span(low: str, high: str) -> str:
            least, most = known.get(low, 0), known.get(high, 0)
            return f"{most:,}" if least == most else f"{least:,} to {most:,}"

        shortest, largest = known.get("shortest_training"), known.get("largest_tensor")
        return [
            ("shortest training", f"{shortest:,} steps" if shortest else ""),
            ("batches", span("smallest_batch", "largest_batch")
             if known.get("largest_batch") else ""),
            ("trained parameters", span("fewest_params", "most_params")
             if known.get("most_params") else ""),
            ("largest trained tensor", f"{largest:,}" if largest else ""),
        ]

    def _facts(self) -> list[tuple[str, str]]:
        options = ", ".join(f"{k} {v}" for k, v in self.learned_optimizer.items() if k != "type")
        facts = [
            ("options", options),
            ("weights", f"{self.values.size:,}"),
            ("updates", f"{self.meta_steps:,}"),
            ("seed", str(self.seed)),
            ("trained horizon", f"{self.trained_horizon:,} steps" if self.trained_horizon else ""),
            *self._range_facts(),
            ("run", (self.config or {}).get("name", "")),
            ("chosen on", self.chosen_on),
            ("version", self.version),
        ]
        return [(name, value) for name, value in facts if value]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts())
        return f"<lopt.Theta of {self.learned_optimizer['type']}, {facts}>"

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        tensors = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td><td>{list(t.shape)}</td>"
            f"<td>{t.min():.4g}</td><td>{t.max():.4g}</td><td>{numpy.linalg.norm(t):.4g}</td></tr>"
            for name, t in self.tensors.items()
            if t.size
        )
        return (
            f"<b>{html.escape(self.learned_optimizer['type'])}</b><table>{facts}</table>"
            "<table><tr><th>tensor</th><th>shape</th><th>min</th><th>max</th><th>norm</th></tr>"
            f"{tensors}</table>"
        )


class GoldenDeviation(NamedTuple):
    """How the golden steps of a theta file come out for one reader: the element that is farthest
    from what the file says, beside its limit.

    Attributes:
        reader: An instruction set ("avx2").
        tensor: The golden tensor.
        element: The element's number in it.
        wanted: The number in the file.
        got: The reader's.
        deviation: How far it is off.
        limit: How far it may be.
        within: Whether it is within the limit.
    """

    reader: str
    tensor: str
    element: int
    wanted: float
    got: float
    deviation: float
    limit: float
    within: bool


def golden_deviations(
    path: str | os.PathLike, learned_optimizer: dict[str, Any] | Component | None = None
) -> list[GoldenDeviation]:
    """Repeats the golden steps of a theta file on every instruction set of this machine. Empty if
    the file has none.

    Args:
        path: The theta file.
        learned_optimizer: For files that do not name one (tensors from elsewhere).

    Raises:
        Error: The file cannot be read or is damaged.
    """
    return [GoldenDeviation(*one) for one in _core.golden_deviations(path, learned_optimizer)]


def trained_path(theta: str | os.PathLike, caller: str, argument: str) -> str:
    """The path of a trained optimizer that comes with the package, if `theta` is its name; else the
    path that it is itself, of something that exists. Raises Error, about the argument of the caller.
    """
    trained = {path.stem: str(path) for path in _TRAINED.glob("*.safetensors")}
    path = _core.path_of(theta, argument)
    if theta in trained:
        return trained[path]
    if not os.path.exists(path):
        raise _core.Error(
            f"{caller}: {path!r} is neither a file nor a trained optimizer: "
            + ", ".join(sorted(trained))
            + _core.did_you_mean(path, sorted(trained))
        )
    return path


def load(theta: str | os.PathLike, despite_failed_check: bool = False) -> Theta:
    """A trained optimizer by its name, or what Theta.read reads from a path.

    Args:
        theta: "recommended", "fast", "mlp", "mlp-fast", "celo2" or "tutorial", which come with the
            package, or a path; that of a file of such a name begins with "./".
        despite_failed_check: As of Theta.read.

    Raises:
        Error: There is no such name and no such file; or Theta.read's.
    """
    return Theta.read(trained_path(theta, "load", "theta"), despite_failed_check=despite_failed_check)
