"""Parts of configs as objects: what all of them have in common."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from . import _core

# What google/learned_optimization calls keys that have other names here.
OTHER_NAMES = {"task_family": "task", "trunc_sched": "lengths"}

Own = TypeVar("Own", bound="Component")


class Component:
    """A part of a config as an object: what a dictionary with a "type" says.

    lopt.ImageMLP(hidden=[32]) is {"type": "ImageMLP", "hidden": [32]}; there is a class for each
    type of task, estimator, truncation schedule, optimizer (learned or of theta), schedule of
    learning rates, augmentation and mode. Options are attributes, those that were not given with
    their defaults. Objects do not change, are equal if they say the same, and may stand wherever
    their dictionary may.

    Raises Error, at construction, if an option is unknown, missing or has a wrong value.
    """

    __slots__ = ("_given", "_config", "_resolved")
    __module__ = "lopt"

    type: ClassVar[str] = ""
    _kind: ClassVar[str] = ""
    _keys: ClassVar[tuple[str, ...]] = ()
    _given: dict[str, Any]  # options as they were given, of plain data and objects
    _config: dict[str, Any]  # of plain data alone
    _resolved: dict[str, Any]  # with every key

    def __init__(self, /, **options: Any):
        cls = self.__class__
        if cls is Component:
            raise TypeError("lopt.Component is the class of all parts of configs; make one of them")
        options = _with_own_names(cls, options)
        config, resolved = _core.check_component(cls._kind, cls.type, options)
        given = {name: _kept(value, config[name]) for name, value in options.items()}
        for name, value in ("_given", given), ("_config", config), ("_resolved", resolved):
            object.__setattr__(self, name, value)

    @property
    def config(self) -> dict[str, Any]:
        """A copy of the dictionary, with the type and the options that were given."""
        return _copied(self._config)

    def replace(self: Own, **options: Any) -> Own:
        """Another object of the class, with these options in place of its own."""
        return self.__class__(**self._given | _with_own_names(self.__class__, options))

    __replace__ = replace

    def __lopt_config__(self) -> dict[str, Any]:
        return self._config

    def __getattr__(self, name: str) -> Any:
        if name in self._keys:
            return _copied(self._given[name] if name in self._given else self._resolved[name])
        raise AttributeError(
            f"lopt.{self.type} has no option {name!r}; it has " + (", ".join(self._keys) or "none")
        )

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(
            f"an object of lopt.{self.type} does not change; replace({name}=...) makes another"
        )

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._keys})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Component):
            return NotImplemented
        return self.__class__ is other.__class__ and self._resolved == other._resolved

    def __hash__(self) -> int:
        return hash((self.__class__, _hashable(self._resolved)))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"lopt.{self.__class__.__name__}({options})"

    def __reduce__(self) -> tuple:
        return _remade, (self.__class__, self._given)


def _remade(cls: type[Component], options: dict[str, Any]) -> Component:
    return cls(**options)


def _with_own_names(cls: type[Component], options: dict[str, Any]) -> dict[str, Any]:
    """The options by the names of their keys."""
    named: dict[str, Any] = {}
    for name, value in options.items():
        key = OTHER_NAMES.get(name, name)
        key = key if key in cls._keys else name
        if key in named:
            raise _core.Error(f"lopt.{cls.type}: {name} is given twice; give one of " + ", ".join(
                other for other in options if OTHER_NAMES.get(other, other) == key))
        named[key] = value
    return named


def _kept(value: Any, plain: Any) -> Any:
    """What is kept of an option: the objects in it, and plain data of all else."""
    if isinstance(value, Component):
        return value
    if isinstance(value, (list, tuple)):
        return [_kept(item, as_plain) for item, as_plain in zip(value, plain)]
    return plain


def _copied(value: Any) -> Any:
    """A copy of plain data; objects, which do not change, are themselves."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return value
