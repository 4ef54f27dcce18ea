"""Optimizers by the words of a command line.

A word is a built-in name, such as AdamW-cosine, or NAME=WHAT with the options of what is built:

    NAME=module:callable?key=value&key=value     a module that Python finds
    NAME=path/to/file.py:callable?key=value      a file
    NAME=theta.safetensors?key=value             a theta file of lopt, by python/lopt_optimizer.py
    NAME=lopt.torch:theta.safetensors?key=value  the same by the installed package

A callable takes the parameters and returns a torch.optim.Optimizer; it is given lr, where one is
tuned, and num_steps if it has a parameter of that name. `rates=LOW:HIGH` is no option of it but the
range in which lr is tuned; by default, that of its default lr / 30 to its default lr * 30.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import math
import os
import pathlib
import sys

import torch

from .versions import code_behind, code_of, digest, version_of_package

ROOT = pathlib.Path(__file__).resolve().parents[2]


class AdamWCosine(torch.optim.AdamW):
    """AdamW whose rate falls to 0 by half a cosine."""

    def __init__(self, params, num_steps, lr=1e-3, **options):
        super().__init__(params, lr=lr, **options)
        self.rate, self.num_steps, self.made = lr, num_steps, 0

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = self.rate * (1 + math.cos(math.pi * self.made / self.num_steps)) / 2
        self.made += 1
        return super().step(closure)


def orthogonal(matrix):
    """Nearly the closest matrix with orthonormal rows or columns: five Newton-Schulz steps with the
    coefficients of Jordan et al. 2024."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for parameters of two axes and more, which it takes as matrices
    [out, rest], with Nesterov's momentum; AdamW for the others, with a tenth of the rate."""

    def __init__(self, params, lr=0.03, momentum=0.95):
        params = list(params)
        super().__init__([p for p in params if p.dim() > 1], {"lr": lr, "momentum": momentum})
        others = [p for p in params if p.dim() <= 1]
        self.adamw = torch.optim.AdamW(others, lr=lr / 10) if others else None

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none=set_to_none)
        if self.adamw:
            self.adamw.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure else None
        if self.adamw:
            self.adamw.step()
            self.state.update(self.adamw.state)
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                if "momentum" not in self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
                momentum = self.state[p]["momentum"]
                momentum.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(momentum, group["momentum"]).flatten(1))
                scale = max(1.0, update.shape[0] / update.shape[1]) ** 0.5
                p.sub_(update.view_as(p), alpha=group["lr"] * scale)
        return loss


class TorchMuon(torch.optim.Optimizer):
    """torch.optim.Muon for matrices, AdamW with a tenth of the rate for the others."""

    def __init__(self, params, lr=0.03):
        params = list(params)
        super().__init__(params, {"lr": lr})
        matrices = [p for p in params if p.dim() == 2]
        others = [p for p in params if p.dim() != 2]
        self.parts = [make(part, lr=rate) for make, part, rate in (
            (torch.optim.Muon, matrices, lr), (torch.optim.AdamW, others, lr / 10)) if part]

    def step(self, closure=None):
        loss = closure() if closure else None
        for part in self.parts:
            part.step()
            self.state.update(part.state)
        return loss


def momentum_sgd(params, lr=1e-2):
    """Gradient descent with momentum 0.9."""
    return torch.optim.SGD(params, lr=lr, momentum=0.9)


@dataclasses.dataclass(frozen=True)
class Choice:
    """An optimizer of a command line. make: function from (params, num_steps, lr); lr: what it has
    if nothing is tuned; rates: lowest and highest lr of trials; version: changes with its code,
    options and weights."""

    name: str
    make: object
    lr: float
    rates: tuple
    version: str


# Callable and the range of trials.
_BUILT_IN = {
    "Adam": (torch.optim.Adam, (1e-4, 1e-1)),
    "AdamW": (torch.optim.AdamW, (1e-4, 1e-1)),
    "AdamW-cosine": (AdamWCosine, (1e-4, 1e-1)),
    "SGDM": (momentum_sgd, (1e-3, 1.0)),
    "Muon": (Muon, (1e-3, 1.0)),
    "torch-Muon": (TorchMuon, (1e-3, 1.0)),
}
_STEP_SIZES = (0.03, 3.0)  # of learned optimizers, whose default is 1


def shipped():
    """The theta files of trained/ by the names of their optimizers."""
    return {path.stem: path for path in sorted((ROOT / "trained").glob("*.safetensors"))}


def names():
    """All names that need no NAME=WHAT."""
    return [*_BUILT_IN, *shipped()]


def missing(word):
    """Why a built-in optimizer is not there in this torch; empty if it is."""
    if word == "torch-Muon" and not hasattr(torch.optim, "Muon"):
        return f"torch-Muon is left out: PyTorch {torch.__version__} has no torch.optim.Muon"
    return ""


def _value(text):
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _load(place, name):
    """The module of a name, or of the path of a file. Raises SystemExit, which names the optimizer,
    if there is none."""
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        key = "user_models_" + digest(os.path.abspath(place))
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, place)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[key] = module
        return sys.modules[key]
    except (ImportError, OSError) as error:
        raise SystemExit(f"user_models: {place} of {name} cannot be imported: {error}") from None


def _version_of_place(place):
    """Of a module's name, or of the path of a file, which has been loaded."""
    if not place.endswith(".py"):
        return version_of_package(place)
    return digest(code_of(pathlib.Path(place).read_text(encoding="utf-8")))


def _version_of_callable(place, name, function):
    """Also of the package that defines it, where the place has it from another."""
    versions = [_version_of_place(place)]
    home = getattr(function, "__module__", None)
    if home in sys.modules and not home.startswith("user_models_"):
        versions.append(version_of_package(home))
    return digest(*versions, name)


def _theta_file(name, package, path, options, lr, rates):
    """The learned optimizer of a theta file, by the one-file optimizer or by lopt.torch."""
    place = package or str(ROOT / "python/lopt_optimizer.py")
    module = _load(place, name)
    if not os.path.isfile(path):
        raise SystemExit(f"user_models: {name} is to be read from {path}, which is no file")
    opened = sys.modules["lopt"].load(path) if package else module.ThetaFile(path)

    def make(params, num_steps, lr):
        return module.LearnedOptimizer(params, opened,
                                       **{"num_steps": num_steps, "lr": lr, **options})

    kernels = pathlib.Path(sys.modules["lopt._core"].__file__).read_bytes() if package else b""
    version = digest(_version_of_place(place), kernels, pathlib.Path(path).read_bytes(),
                     repr(sorted(options.items())))
    return Choice(name, make, lr or 1.0, rates or _STEP_SIZES, version)


def _callable(name, what, function, source, options, lr, rates):
    """An optimizer that a callable makes."""
    parameters = inspect.signature(function).parameters
    default = parameters["lr"].default if "lr" in parameters else None
    if isinstance(default, (int, float)) and not isinstance(default, bool) and default > 0:
        lr = lr or float(default)
    if lr is None:
        raise SystemExit(f"user_models: {what} of {name} must have a parameter lr with a default "
                         f"above 0, or be given one ({what}?lr=0.001); it has {', '.join(parameters)}")

    def make(params, num_steps, lr):
        told = {"num_steps": num_steps} if "num_steps" in parameters else {}
        return function(params, lr=lr, **told, **options)

    version = digest(source, repr(sorted(options.items())))
    return Choice(name, make, lr, rates or (lr / 30, lr * 30), version)


def _options(word, query):
    """(options, lr or None, rates or None) of key=value&key=value."""
    options = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not key or not equals:
            raise SystemExit(f"user_models: key=value wanted after ? of {word}, got {part}")
        options[key] = _value(text)
    lr, rates = options.pop("lr", None), options.pop("rates", None)
    if lr is not None and not (isinstance(lr, (int, float)) and lr > 0):
        raise SystemExit(f"user_models: lr of {word} must be a number above 0, got {lr}")
    if rates is not None:
        try:
            low, high = map(float, rates.split(":"))
        except (AttributeError, ValueError):
            low = high = 0.0
        if not 0 < low < high:
            raise SystemExit(f"user_models: rates of {word} must be LOW:HIGH, two numbers above 0 "
                             f"in this order, got {rates}")
        rates = low, high
    return options, lr, rates


@functools.lru_cache(None)
def choose(word):
    """The Choice of a word of the command line. Raises SystemExit if there is none."""
    name, equals, what = word.partition("=")
    if not equals:
        if name in shipped():
            return _theta_file(name, "", str(shipped()[name]), {}, None, None)
        if name not in _BUILT_IN:
            raise SystemExit(f"user_models: there is no optimizer {name}; valid are "
                             f"{', '.join(names())}, and NAME=WHAT (README.md)")
        function, rates = _BUILT_IN[name]
        source = code_behind(function.__name__, __file__)  # torch's version is another matter
        return _callable(name, name, function, source, {}, None, rates)
    what, _, query = what.partition("?")
    options, lr, rates = _options(word, query)
    place, colon, last = what.rpartition(":")
    if not name or not what:
        raise SystemExit(f"user_models: NAME=WHAT wanted, got {word}")
    if last.endswith(".safetensors"):
        if place not in ("", "lopt.torch"):
            raise SystemExit(f"user_models: a theta file is read by lopt.torch or, without a name "
                             f"before it, by python/lopt_optimizer.py; got {place} for {name}")
        return _theta_file(name, place, last, options, lr, rates)
    if not colon:
        raise SystemExit(f"user_models: module:callable, file.py:callable or a theta file "
                         f"(.safetensors) wanted for {name}, got {what}")
    module = _load(place, name)
    function = getattr(module, last, None)
    if not callable(function):
        here = [key for key, value in vars(module).items()
                if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)]
        raise SystemExit(f"user_models: {place} of {name} has no callable {last}; optimizers in it "
                         f"are {', '.join(here) or 'none'}")
    source = _version_of_callable(place, last, function)
    return _callable(name, what, function, source, options, lr, rates)
