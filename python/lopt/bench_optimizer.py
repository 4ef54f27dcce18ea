"""Times steps of optimizers on CPU tensors, in turns.

    python3 -m lopt.bench_optimizer [--threads N] [--models NAME...] [--isa avx2]

A round is a block of steps with each optimizer in turn, so that all see the same load of the
machine. Printed are the time of a step in microseconds, the least and the median over the rounds,
the median over the rounds of its ratio to torch.optim.Adam's of the same round, and the least
processor time of a step, of all threads.
"""

import argparse
import importlib.util
import statistics
import time
import warnings
from pathlib import Path

import torch

from . import _core, lopt_optimizer
from .theta import _TRAINED, Theta, load
from .torch import LearnedOptimizer

MODELS = {  # shapes
    "2410": [(32, 64), (32,), (10, 32), (10,)],
    "2410/50": [(8, 6)] * 49 + [(58,)],
    "100k": [(256, 256), (256,), (128, 256), (128,), (10, 128), (10,)],
    "1M": [(768, 784), (768,), (512, 768), (512,), (10, 512), (10,)],
    "10M": [(2048, 2048), (2048,), (2048, 2048), (2048,), (800, 2048), (800,)],
}


def theta_of(hidden_size):
    options = {"type": "MLPLOpt", "hidden_size": hidden_size, "step_mult": 1e-6}
    return Theta.init(options, seed=0)


class Both:
    """torch.optim.Muon takes matrices only: AdamW takes the rest."""
    def __init__(self, params):
        groups = ([p for p in params if p.dim() == 2], [p for p in params if p.dim() != 2])
        self.parts = [make(group, lr=lr) for make, group, lr in
                      zip((torch.optim.Muon, torch.optim.AdamW), groups, (0.03, 0.003)) if group]

    def step(self):
        for part in self.parts:
            part.step()


def optimizers(chosen, old):
    """Functions from params to an optimizer, by name."""
    def learned(theta):
        return lambda params: LearnedOptimizer(params, theta, num_steps=1_000_000)

    trained = [path.stem for path in _TRAINED.glob("*.safetensors")]

    def one_file(module):
        path = Path(__file__).parent / "trained" / "mlp.safetensors"
        return lambda params: module.LearnedOptimizer.from_file(path, params)

    known = {"Adam": lambda params: torch.optim.Adam(params),
             "Adam foreach": lambda params: torch.optim.Adam(params, foreach=True),
             **{name: learned(load(name)) for name in sorted(trained)},
             **{f"hidden {size}": learned(theta_of(size)) for size in (4, 8, 32)},
             "one file": one_file(lopt_optimizer)}
    try:
        torch.optim.Adam(params_of([(1,)]), fused=True)
        known["Adam fused"] = lambda params: torch.optim.Adam(params, fused=True)
        known["AdamW fused"] = lambda params: torch.optim.AdamW(params, fused=True)
    except RuntimeError:
        pass  # older versions of torch have it for other devices alone
    if hasattr(torch.optim, "Muon"):
        known["Muon"] = Both
    if old:
        spec = importlib.util.spec_from_file_location("old_lopt_optimizer", old)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        known["one file, old"] = one_file(module)
    unknown = set(chosen) - set(known)
    if unknown:
        raise SystemExit(f"Optimizers are {', '.join(known)}; got {', '.join(unknown)}")
    return {name: known[name] for name in known if name in chosen or name == "Adam" or not chosen}


def params_of(shapes):
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator)
    return params


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--optimizers", nargs="+", default=[], help="Adam is always among them.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.02, help="Of a block.")
    parser.add_argument("--isa", help="Instruction set of the kernels, such as avx2.")
    parser.add_argument("--old", help="Path of an older lopt_optimizer.py.")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="LearnedOptimizer: (this training is unlike all|step "
                            r"\d+ is beyond)")  # more steps and numbers than it was trained on
    if options.isa:
        _core.pin_isa(options.isa)
    print(f"torch {torch.__version__}, {options.threads} threads, {_core.isa()}")
    for model in options.models:
        made = {name: make(params_of(MODELS[model]))
                for name, make in optimizers(options.optimizers, options.old).items()}
        steps = {}
        for name, optimizer in made.items():
            optimizer.step()
            begin = time.perf_counter()
            optimizer.step()
            elapsed = time.perf_counter() - begin
            steps[name] = max(1, min(100, round(options.seconds / elapsed)))
        times = {name: [] for name in made}
        processor = {name: [] for name in made}
        for _ in range(options.rounds):
            for name, optimizer in made.items():
                begin, used = time.perf_counter(), time.process_time()
                for _ in range(steps[name]):
                    optimizer.step()
                times[name].append((time.perf_counter() - begin) / steps[name] * 1e6)
                processor[name].append((time.process_time() - used) / steps[name] * 1e6)
        for name, own in times.items():
            ratio = statistics.median(a / b for a, b in zip(own, times["Adam"]))
            print(f"{model:8} {name:14} least {min(own):10.1f} us  median "
                  f"{statistics.median(own):10.1f} us  {ratio:7.2f} x Adam  processor "
                  f"{min(processor[name]):10.1f} us", flush=True)


if __name__ == "__main__":
    main()
