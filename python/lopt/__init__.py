"""lopt: meta-training of learned optimizers, and the optimizers it has trained.

Configs are dictionaries, names of presets or paths of JSON files, with the keys that describe()
explains. Wrong input raises Error, whose text names who found it, what was wanted, what was got and
the valid choices.
"""

from ._core import Error, __version__, describe, load_config, presets, resolve

__all__ = ["Error", "describe", "load_config", "presets", "resolve"]
