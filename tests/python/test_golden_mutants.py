"""Mistakes in a reader of theta files are found by the files' golden steps.

Makes mutants of the rules of python/lopt_optimizer.py, one change each: a constant by 1 %, a sign,
two neighbours of a list in each other's place, a transposition left out, the wrong schedule, a time
of one step later, a step or a guard left out. Each must be refused by a theta file of every type of
optimizer that runs the changed code, but for those of NOT_FOUND, each with its reason.

Environment: LOPT_PROGRAM, the program; without it, the tests are skipped. LOPT_MUTANTS_TABLE: a
file to write the table to.
LOPT_MUTANTS_EVERY: 8 tries every eighth mutant alone.
"""

import ast
import collections
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import lopt_optimizer  # noqa: E402
from lopt_optimizer import ThetaFile  # noqa: E402

PROGRAM = os.environ.get("LOPT_PROGRAM")
SOURCE = ROOT / "python/lopt_optimizer.py"

SCHEDULES = ("constant", "linear", "cosine", "warmup-cosine")
MLP = {"type": "MLPLOpt", "hidden_size": 4, "exp_mult": 0.1, "step_mult": 0.1}
ADAFAC = {"type": "AdafacMLPLOpt", "exp_mult": 2e-3, "step_mult": 1e-2}
CELO2 = {"type": "Celo2", "learning_rate": 0.01, "weight_decay": 0.1}

NETWORK = {"ff_mod_stack/b2": [0.3, 300.0, 0.1], "ff_mod_stack/w2": 3.0}

# Theta files of each type: options, and what their weights have of their own, a factor or values.
# Weights reach the caps and floors that those of a training stay within.
FILES = {
    "MLPLOpt": [({**MLP, "schedule": "linear"}, {}),
                (MLP | {"progress_features": True, "schedule": "cosine", "relative_step": True,
                        "relative_to_parameter": True, "normalizer_epsilon": 1e-7}, {}),
                (MLP | {"precision": "bf16"}, {})],
    "AdafacMLPLOpt": [(ADAFAC | {"initial_rms_decays": [0.9, 0.99, 0.999]},
                       {"rms_decays": [1.0, 0.0, 0.0], "adafactor_decays": [0.0, 1.0, 0.0]}),
                      (ADAFAC, {})],
    "Celo": [*(({"type": "Celo", "lstm_size": size}, NETWORK | {"rnn_params/step_size/b": [6.0],
                                                                "rnn_params/step_size/w": 9.0})
               for size in (4, 6)),
             ({"type": "Celo", "scheduled": False}, NETWORK)],
    "CeloAdam": [({"type": "CeloAdam", "lstm_size": 4}, {"rnn_params/step_size/b": [3.0],
                                                         "rnn_params/step_size/w": 3.0}),
                 ({"type": "CeloAdam", "lstm_size": 3}, {"rnn_params/step_size/b": [6.0],
                                                         "rnn_params/step_size/w": 0.0})],
    "Sinv6": [({"type": "Sinv6", "lstm_size": size}, {"rnn_params/step_size/b": [bias],
                                                      "rnn_params/step_size/w": factor})
              for size, bias, factor in ((4, 3.0, 10.0), (3, 3.0, 10.0), (3, 5e3, 1.0),
                                         (3, -5e3, 1.0))],
    "Celo2Base": [({**CELO2, "type": "Celo2Base", "schedule": "linear"}, {})],
    "Celo2": [({**CELO2, "one_d": "learned", "schedule": "warmup-cosine"}, {}),
              ({**CELO2, "one_d": "adamw", "schedule": "cosine"}, {}),
              ({**CELO2, "one_d": "adam"}, {})],
    "LearnableSGD": [({"type": "LearnableSGD", "schedule": schedule}, {})
                     for schedule in SCHEDULES],
    "LearnableSGDM": [({"type": "LearnableSGDM", "schedule": "linear"}, {})],
    "LearnableAdam": [({"type": "LearnableAdam", "schedule": "cosine", "weight_decay": 0.1}, {})],
    "OrthogonalSteps": [({"type": "OrthogonalSteps",
                          "optimizer": {"type": "LearnableSGDM", "schedule": "cosine"}}, {})],
    "MatricesAndVectors": [({"type": "MatricesAndVectors", "matrices": ADAFAC,
                             "vectors": {"type": "LearnableAdam", "schedule": "cosine"}}, {}),
                           ({"type": "MatricesAndVectors",
                             "matrices": {"type": "LearnableSGDM", "schedule": "linear"},
                             "vectors": {"type": "OrthogonalSteps", "optimizer": ADAFAC}}, {})],
    "LearnedScheduler": [({"type": "LearnedScheduler", "weight_decay": 0.1,
                           "optimizer": {"type": "OrthogonalSteps",
                                         "optimizer": {"type": "LearnableSGDM"}}},
                          {"scheduler/out/w": 0.5}),
                         ({"type": "LearnedScheduler", "step_size": 1e-5, "weight_decay": 1e-4,
                           "schedule": "linear", "hidden_size": 3,
                           "optimizer": {"type": "LearnableAdam", "schedule": "cosine"}},
                          {"scheduler/out/b": [18.0, 12.0]})],
}
# Hyperparameters that are theta.
HYPERPARAMETERS = {"log_lr": -3, "one_minus_momentum": -1.6, "one_minus_beta1": -1.9,
                   "one_minus_beta2": -4, "log_epsilon": -11}

SCHEDULED = ["Celo", "CeloAdam", "Sinv6"]  # by Celo's scheduler

# The types by whose files mutants of a class or function are judged: those that run it.
SERVES = {
    "_TIME_SCALES": ["MLPLOpt", "AdafacMLPLOpt"],
    "_join": ["MLPLOpt", "AdafacMLPLOpt", "LearnableSGDM"],
    "_mean_squares": ["MLPLOpt", "AdafacMLPLOpt", "Celo"],
    "_scales_and_rms": ["MLPLOpt", "AdafacMLPLOpt", "Celo"],
    "_spread": ["Celo"],
    "_scale": ["MLPLOpt", "AdafacMLPLOpt", "Celo"],
    "_WARMUP": ["LearnableSGD"],
    "_schedule_factor": ["LearnableSGD"],  # of which there is a file for each schedule
    "_network_weights": ["MLPLOpt", "AdafacMLPLOpt", "Celo", "Celo2Base"],
    "_times": ["MLPLOpt", "AdafacMLPLOpt"],
    "_network": ["MLPLOpt", "AdafacMLPLOpt", "Celo", "Celo2Base"],
    "_MLPLOpt": ["MLPLOpt"],
    "_largest_axes": ["AdafacMLPLOpt", "Celo", "Celo2Base"],
    "_averaged": ["AdafacMLPLOpt", "Celo", "Celo2Base"],
    "_floored_rsqrt": ["AdafacMLPLOpt", "Celo", "Celo2Base"],
    "_decayed": ["AdafacMLPLOpt", "Celo"],
    "_at_every_element": ["AdafacMLPLOpt", "Celo"],
    "_factors": ["AdafacMLPLOpt", "Celo"],
    "_moment_shapes": ["AdafacMLPLOpt", "Celo"],
    "_places_of_kind": ["AdafacMLPLOpt", "Celo"],
    "_AdafacMLPLOpt": ["AdafacMLPLOpt"],
    "_CELO_PROGRESS": SCHEDULED,
    "_CELO_DECAYS": ["Celo"],
    "_CELO_MOMENTUM": ["CeloAdam", "Sinv6"],
    "_CELO_SQUARES": ["CeloAdam", "Sinv6"],
    "_of_pairs": SCHEDULED,
    "_as_pairs": SCHEDULED,
    "_WithCeloScheduler": SCHEDULED,
    "_Celo": ["Celo"],
    "_CeloMoments": ["CeloAdam", "Sinv6"],
    "_CeloAdam": ["CeloAdam"],
    "_Sinv6": ["Sinv6"],
    "_newton_schulz": ["Celo2", "OrthogonalSteps"],
    "_decay": ["Celo2Base", "Celo2"],
    "_mean_square_of": ["Celo2Base", "Celo2"],
    "_normalized": ["Celo2Base", "Celo2"],
    "_Celo2Base": ["Celo2Base", "Celo2"],
    "_Celo2": ["Celo2"],
    "_decay_of": ["LearnableAdam"],
    "_Learnable": ["LearnableSGD", "LearnableSGDM", "LearnableAdam"],
    "_LearnableSGD": ["LearnableSGD"],
    "_LearnableSGDM": ["LearnableSGDM"],
    "_LearnableAdam": ["LearnableAdam"],
    "_OfAnother": ["OrthogonalSteps", "LearnedScheduler"],
    "_seen_shape": ["OrthogonalSteps", "LearnedScheduler", "MatricesAndVectors"],
    "_as_seen": ["OrthogonalSteps", "LearnedScheduler", "MatricesAndVectors"],
    "_orthogonal": ["OrthogonalSteps"],
    "_OrthogonalSteps": ["OrthogonalSteps"],
    "_MatricesAndVectors": ["MatricesAndVectors"],
    "_columns": ["LearnedScheduler"],
    "_is_matrix": ["LearnedScheduler"],
    "_cosine": ["LearnedScheduler"],
    "_LearnedScheduler": ["LearnedScheduler"],
    "_in_rule_order": ["MLPLOpt", "AdafacMLPLOpt", "Celo2Base", "OrthogonalSteps",
                       "LearnedScheduler", "MatricesAndVectors"],
    "_in_torch_order": ["MLPLOpt", "AdafacMLPLOpt", "Celo2Base", "OrthogonalSteps",
                        "LearnedScheduler", "MatricesAndVectors"],
}
# Not part of a step: checks of options, and the names and shapes that a file's tensors must have.
LEFT_OUT = {"_counts", "check", "need_of_num_steps", "needs_loss", "layout", "OPTIONS", "CHOICES",
            "OTHERS", "THETA"}

# What is not found, by the types whose files do not, with the reason.
NOT_FOUND = {
    "A shortcut for a single tensor, or a tensor of one element, where golden steps have "
    "several.": {
        "_join: tensors[0] if len(tensors) == 1 else torch.cat(tensors, -1) -> tensors[1] if "
        "len(tensors) == 1 else torch.cat(tensors, -1)":
            ["MLPLOpt", "LearnableSGDM"],
        "_places_of_kind: p.numel() > 0 -> p.numel() > 1":
            ["AdafacMLPLOpt", "Celo"],
        "_LearnedScheduler.steps: p.numel() > 0 -> p.numel() > 1":
            ["LearnedScheduler"],
        "_Celo2Base.steps: p.numel() == 0 -> p.numel() == 1":
            ["Celo2Base", "Celo2"],
        "_orthogonal: step.numel() == 0 -> step.numel() == 1":
            ["OrthogonalSteps"],
        "_columns: float(p.shape[-1]) if p.dim() > 0 else 1.0 -> float(p.shape[-1]) if p.dim() > 0 "
        "else 1.01":
            ["LearnedScheduler"],
        "_LearnedScheduler.steps: len(filled) > 0 -> len(filled) > 1":
            ["LearnedScheduler"],
        "_Sinv6.steps: max(p.numel(), 1) -> max(p.numel(), 2)":
            ["Sinv6"],
    },
    "Rounding of a layer of a network in fp32, which stays as it is.": {
        "_network_weights: range(len(weights) - 1) -> range(len(weights) - 1 - 1)":
            ["AdafacMLPLOpt", "Celo", "Celo2Base"],
        "_network_weights: len(weights) - 1 -> len(weights) - 2":
            ["AdafacMLPLOpt", "Celo", "Celo2Base"],
    },
    "Nothing depends on it: the order of two things, which tensor gives a shape or a key, columns "
    "beyond those that are used, memory that is overwritten, a number that is not used, the shape "
    "of a vector, a size of theta that the file has itself, a minimum before the first.": {
        "_AdafacMLPLOpt.steps: False, True -> True, False":
            ["AdafacMLPLOpt"],
        "_newton_schulz: -2, -1 -> -1, -2":
            ["Celo2", "OrthogonalSteps"],
        "_LearnedScheduler.FEATURES: 11 -> 12":
            ["LearnedScheduler"],
        "_network: 0 -> 1":
            ["MLPLOpt"],
        "_network: _chunks(x[0]) -> _chunks(x[1])":
            ["MLPLOpt", "AdafacMLPLOpt", "Celo", "Celo2Base"],
        "_in_torch_order: len(shape) < 2 -> len(shape) < 3":
            ["MLPLOpt"],
        "_MLPLOpt.steps: outputs[:1] * (outputs[1:] * self.exp_mult).exp_() -> outputs[:2] * "
        "(outputs[1:] * self.exp_mult).exp_()":
            ["MLPLOpt"],
        "_MLPLOpt.multipliers: torch.full_like(rms[0], multiplier) -> torch.full_like(rms[1], "
        "multiplier)":
            ["MLPLOpt"],
        "_at_every_element: part[0].numel -> part[1].numel":
            ["AdafacMLPLOpt", "Celo"],
        "_at_every_element: numbers[0].shape -> numbers[1].shape":
            ["AdafacMLPLOpt", "Celo"],
        "_Learnable.steps: self.state_shapes([1]) -> self.state_shapes([2])":
            ["LearnableSGD", "LearnableSGDM", "LearnableAdam"],
        "_Learnable.steps: self.step(w, rate, _join(params), _join(gradients), joined, t) -> "
        "self.step(w, rate, _join(params), _join(gradients), joined, t + 1)":
            ["LearnableSGD", "LearnableSGDM"],
        "_LearnableAdam.step: self.weight_decay != 0 -> self.weight_decay != 1":
            ["LearnableAdam"],
        "_LearnedScheduler.weights: 'hidden/w', 'hidden/b' -> 'hidden/b', 'hidden/w'":
            ["LearnedScheduler"],
        "_LearnedScheduler.weights: 'hidden/b', 'out/w' -> 'out/w', 'hidden/b'":
            ["LearnedScheduler"],
        "_LearnedScheduler.weights: 'out/w', 'out/b' -> 'out/b', 'out/w'":
            ["LearnedScheduler"],
        "_spread: column.expand([-1, size]) -> column.expand([1, size])":
            ["Celo"],
        "_as_pairs: nearest, rest.masked_fill(~nearest.isfinite(), 0) -> "
        "rest.masked_fill(~nearest.isfinite(), 0), nearest":
            ["Celo", "CeloAdam", "Sinv6"],
        "_as_pairs: rest.masked_fill(~nearest.isfinite(), 0) -> "
        "rest.masked_fill(~nearest.isfinite(), 1)":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: 10, 2 -> 2, 10":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: {'hidden': [self.lstm_size], 'cell': "
        "[self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [10, 2]} -> {'hidden': "
        "[self.lstm_size], 'cell': [self.lstm_size], 'loss_means': [11, 2], 'loss_minima': [10, "
        "2]}":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: {'hidden': [self.lstm_size], 'cell': "
        "[self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [10, 2]} -> {'hidden': "
        "[self.lstm_size], 'cell': [self.lstm_size], 'loss_means': [10, 3], 'loss_minima': [10, "
        "2]}":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: 10, 2 -> 2, 10 (2)":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: {'hidden': [self.lstm_size], 'cell': "
        "[self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [10, 2]} -> {'hidden': "
        "[self.lstm_size], 'cell': [self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [11, "
        "2]}":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_shapes: {'hidden': [self.lstm_size], 'cell': "
        "[self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [10, 2]} -> {'hidden': "
        "[self.lstm_size], 'cell': [self.lstm_size], 'loss_means': [10, 2], 'loss_minima': [10, "
        "3]}":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_weights: 'linear_1/', 'linear_2/' -> 'linear_2/', "
        "'linear_1/'":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_weights: 'linear_2/', 'rnn/linear/' -> 'rnn/linear/', "
        "'linear_2/'":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.scheduler_weights: 'rnn/linear/', 'step_size/' -> 'step_size/', "
        "'rnn/linear/'":
            ["Celo", "CeloAdam", "Sinv6"],
        "_WithCeloScheduler.loss_features: 1000000000000.0 -> 1010000000000.0":
            ["Celo", "CeloAdam", "Sinv6"],
        "_Celo.weights: _network_weights([torch.cat(first), theta['ff_mod_stack/w1'][0], "
        "theta['ff_mod_stack/w2'][0]], [theta['ff_mod_stack/b' + layer][0] for layer in ['0', "
        "'1', '2']], 30) -> _network_weights([torch.cat(first), theta['ff_mod_stack/w1'][0], "
        "theta['ff_mod_stack/w2'][0]], [theta['ff_mod_stack/b' + layer][0] for layer in ['0', "
        "'1', '2']], 31)":
            ["Celo"],
        "_Celo.steps: False, True -> True, False":
            ["Celo"],
        "_Celo.steps_of_kind: torch.hypot(rms[2:3], torch.full_like(rms[2:3], 1e-09).sqrt()) -> "
        "torch.hypot(rms[2:4], torch.full_like(rms[2:3], 1e-09).sqrt())":
            ["Celo"],
        "_Celo.steps_of_kind: torch.full_like(rms[2:3], 1e-09) -> torch.full_like(rms[2:4], "
        "1e-09)":
            ["Celo"],
    },
    "Newton-Schulz makes the same of a matrix and of its transpose; in a matrix the axis 1 is the "
    "axis -1.": {
        "_newton_schulz: x.shape[-2] > x.shape[-1] -> x.shape[-2] > x.shape[1]":
            ["Celo2", "OrthogonalSteps"],
        "_newton_schulz: x.shape[-2] > x.shape[-1] -> x.shape[-2] > x.shape[-2]":
            ["Celo2", "OrthogonalSteps"],
        "_newton_schulz: x.transpose(-1, -2) -> x.transpose(1, -2)":
            ["OrthogonalSteps"],
        "_newton_schulz: x.transpose(-1, -2) -> x.transpose(1, -2) (2)":
            ["OrthogonalSteps"],
        "_newton_schulz: x.transpose(-1, -2) -> x.transpose(1, -2) (3)":
            ["OrthogonalSteps"],
        "_newton_schulz: x.square().sum([-2, -1], True) -> x.square().sum([-2, 1], True)":
            ["OrthogonalSteps"],
    },
    "A constant beside numbers that are far greater: 1e-30 where 1e-9 is added, 1e-8 beside a norm "
    "of 1 or a root of at least 1e-5, a quotient by 1e-8 that is clipped.": {
        "_newton_schulz: x.square().sum([-2, -1], True).sqrt() + 1e-08 -> x.square().sum([-2, -1], "
        "True).sqrt() - 1e-08":
            ["Celo2", "OrthogonalSteps"],
        "_newton_schulz: x.square().sum([-2, -1], True).sqrt() + 1e-08 -> x.square().sum([-2, -1], "
        "True).sqrt() + 1.0100000000000001e-08":
            ["Celo2", "OrthogonalSteps"],
        "_AdafacMLPLOpt.steps_of_kind: square + 1e-30 -> square - 1e-30":
            ["AdafacMLPLOpt"],
        "_AdafacMLPLOpt.steps_of_kind: square + 1e-30 -> square + 1.01e-30":
            ["AdafacMLPLOpt"],
        "_Celo2Base.features: square + 1e-30 -> square - 1e-30":
            ["Celo2Base", "Celo2"],
        "_Celo2Base.features: square + 1e-30 -> square + 1.01e-30":
            ["Celo2Base", "Celo2"],
        "_WithCeloScheduler.loss_features: (corrected[:, 1:] - minima[:, :-1]).clamp(min=1e-08) "
        "-> (corrected[:, 1:] - minima[:, :-1]).clamp(min=1.0100000000000001e-08)":
            ["Celo", "CeloAdam", "Sinv6"],
        "_Celo.steps_of_kind: square + 1e-30 -> square - 1e-30":
            ["Celo"],
        "_Celo.steps_of_kind: square + 1e-30 -> square + 1.01e-30":
            ["Celo"],
        "_CeloAdam.steps: 1e-08 + (of_r * state['r'] + 1e-10).sqrt() -> 1.0100000000000001e-08 + "
        "(of_r * state['r'] + 1e-10).sqrt()":
            ["CeloAdam"],
    },
    "A cap that no numbers reach: decays are at most 1, a warm-up's factor is below 1 until it "
    "ends, the ratio of the two means is at most 100 and falls to e^-40 in 380 updates alone, no "
    "golden gradient is 1e15, quotients of the losses' means are not negative.": {
        "_decay_of: (1 - torch.exp(log_of_rest)).clamp(0, 0.9999999403953552) -> 1 - "
        "torch.exp(log_of_rest)":
            ["LearnableAdam"],
        "_decay_of: 0.9999999403953552 -> 1.0099999397993087":
            ["LearnableAdam"],
        "_schedule_factor: min(1.0, (t + 1) / (_WARMUP * num_steps)) -> min(1.01, (t + 1) / "
        "(_WARMUP * num_steps))":
            ["LearnableSGD"],
        "_AdafacMLPLOpt.weights: self.decays(self.initial_rms_decays, "
        "theta['rms_decays']).clamp(0, 1) -> self.decays(self.initial_rms_decays, "
        "theta['rms_decays']).clamp(0, 2)":
            ["AdafacMLPLOpt"],
        "_AdafacMLPLOpt.weights: self.decays(self.initial_adafactor_decays, "
        "theta['adafactor_decays']).clamp(0, 1) -> self.decays(self.initial_adafactor_decays, "
        "theta['adafactor_decays']).clamp(0, 2)":
            ["AdafacMLPLOpt"],
        "_LearnedScheduler.scheduled: (squares[:, 0] / sizes).clamp(max=1e+30) -> squares[:, 0] / "
        "sizes":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: (squares[:, 0] / sizes).clamp(max=1e+30) -> (squares[:, 0] / "
        "sizes).clamp(max=1.01e+30)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: torch.min(m[3], m[4]) -> torch.max(m[3], m[4])":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: torch.min(m[3], m[4]) -> torch.min(m[4], m[4])":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: growth.clamp(-20, 3) -> growth":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: growth.clamp(-20, 3) -> growth.clamp(-21, 3)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: growth.clamp(-20, 3) -> growth.clamp(-20, 4)":
            ["LearnedScheduler"],
        "_WithCeloScheduler.loss_features: ((corrected[:, :-1] - minima[:, :-1]) / spread - "
        "1).clamp(-1, 1) -> ((corrected[:, :-1] - minima[:, :-1]) / spread - 1).clamp(-2, 1)":
            ["Celo", "CeloAdam", "Sinv6"],
    },
    "What is for numbers whose squares float32 does not hold, which golden steps have none of; "
    "ExtremeInputs in test_lopt_optimizer.py has them.": {
        "_Celo2Base.PARAMETER: 2 -> 3":
            ["Celo2Base", "Celo2"],
        "_normalized: _mean_square_of(x * _SHRINK, axes).clamp(min=1e-20) -> _mean_square_of(x * "
        "_SHRINK, axes).clamp(max=1e-20)":
            ["Celo2Base", "Celo2"],
        "_orthogonal: matrix.square().sum(), matrix.abs().amax().detach() -> "
        "matrix.abs().amax().detach(), matrix.square().sum()":
            ["OrthogonalSteps"],
        "_LearnedScheduler.scheduled: squares[:, 2] -> squares[:, 3]":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: _cosine(products, norms, zeros, 2).masked_fill(~finite, 0) "
        "-> _cosine(products, norms, zeros, 2)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: _cosine(products, norms, zeros, 2).masked_fill(~finite, 0) "
        "-> _cosine(products, norms, zeros, 2).masked_fill(~finite, 1)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: exact.masked_fill(zeros[:, 2] | ~finite, 0) -> exact":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: zeros[:, 2] | ~finite -> zeros[:, 3] | ~finite":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: exact.masked_fill(zeros[:, 2] | ~finite, 0) -> "
        "exact.masked_fill(zeros[:, 2] | ~finite, 1)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: (exact < _SMALLEST) & (exact > 0) -> (exact < _SMALLEST) & "
        "(exact > 1)":
            ["LearnedScheduler"],
    },
    "Losses whose means float32 does not hold, infinite ones, and a gradient beyond 1000 before the "
    "last, on whose size Adam's step hardly depends; "
    "test_what_golden_steps_of_celo_do_not_show in test_lopt_optimizer.py has them.": {
        "_of_pairs: _widened(pairs[:, :, 0]) + _widened(pairs[:, :, 1]) -> _widened(pairs[:, :, "
        "0]) - _widened(pairs[:, :, 1])":
            ["Celo", "CeloAdam", "Sinv6"],
        "_as_pairs: rest.masked_fill(~nearest.isfinite(), 0) -> rest":
            ["Celo", "CeloAdam", "Sinv6"],
        "_CeloMoments.update_moments: gradient.clamp(-1000, 1000) -> gradient.clamp(-1010, 1000)":
            ["CeloAdam"],
        "_CeloMoments.update_moments: gradient.clamp(-1000, 1000) -> gradient.clamp(-1000, 1010)":
            ["CeloAdam"],
    },
    "What the type leaves out: Celo2Base makes nothing orthogonal, LearnedScheduler keeps no "
    "length of the other rule's steps, and no direction of a step of zeros.": {
        "_Celo2Base.direction: p.dim() >= 2 -> p.dim() >= 3":
            ["Celo2Base"],
        "_OfAnother.optimizer_steps: self.optimizer.steps(w, _as_seen(params, "
        "self.optimizer.SEES_SHAPES), _as_seen(gradients, self.optimizer.SEES_SHAPES), states, t, "
        "num_steps, loss) -> self.optimizer.steps(w, _as_seen(params, self.optimizer.SEES_SHAPES), "
        "_as_seen(gradients, self.optimizer.SEES_SHAPES), states, t + 1, num_steps, loss)":
            ["LearnedScheduler"],
        "_OfAnother.optimizer_steps: self.optimizer.steps(w, _as_seen(params, "
        "self.optimizer.SEES_SHAPES), _as_seen(gradients, self.optimizer.SEES_SHAPES), states, t, "
        "num_steps, loss) -> self.optimizer.steps(w, _as_seen(params, self.optimizer.SEES_SHAPES), "
        "_as_seen(gradients, self.optimizer.SEES_SHAPES), states, t, num_steps * 1.01, loss)":
            ["LearnedScheduler"],
        "_LearnedScheduler.steps: self.optimizer_steps(_without('optimizer/', w), params, "
        "gradients, of_optimizer, t, num_steps, loss) -> "
        "self.optimizer_steps(_without('optimizer/', w), "
        "params, gradients, of_optimizer, t + 1, num_steps, loss)":
            ["LearnedScheduler"],
        "_LearnedScheduler.steps: self.optimizer_steps(_without('optimizer/', w), params, "
        "gradients, of_optimizer, t, num_steps, loss) -> "
        "self.optimizer_steps(_without('optimizer/', w), "
        "params, gradients, of_optimizer, t, num_steps * 1.01, loss)":
            ["LearnedScheduler"],
    },
    "What derivatives of exported modules need where numbers are 0, and steps do not; "
    "estimators_torch_module_test has them.": {
        "_normalized: _mean_square_of(x * _SHRINK, axes).clamp(min=1e-20) -> _mean_square_of(x * "
        "_SHRINK, axes)":
            ["Celo2Base", "Celo2"],
        "_normalized: _mean_square_of(x * _SHRINK, axes).clamp(min=1e-20) -> _mean_square_of(x * "
        "_SHRINK, axes).clamp(min=1.01e-20)":
            ["Celo2Base", "Celo2"],
        "_orthogonal: (matrix / unit).masked_fill(still, 1) -> matrix / unit":
            ["OrthogonalSteps"],
        "_orthogonal: (matrix / unit).masked_fill(still, 1) -> (matrix / unit).masked_fill(still, "
        "2)":
            ["OrthogonalSteps"],
        "_cosine: cosine.masked_fill(zeros[:, 0] | zeros[:, x], 0) -> cosine":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: squares.masked_fill(zeros, 1) -> squares":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: squares.masked_fill(zeros, 1) -> squares.masked_fill(zeros, "
        "2)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: m[4].masked_fill(none, 1) -> m[4]":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: m[4].masked_fill(none, 1) -> m[4].masked_fill(none, 2)":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: m[3].masked_fill(none, 1) -> m[3]":
            ["LearnedScheduler"],
        "_LearnedScheduler.scheduled: m[3].masked_fill(none, 1) -> m[3].masked_fill(none, 2)":
            ["LearnedScheduler"],
    },
}


def plus_one_percent(value):
    if isinstance(value, int):
        return value + max(1, round(abs(value) / 100))
    return value * 1.01 if value else 0.01


def changes(node):
    """The mutants of an expression by itself."""
    def changed(**fields):
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    if isinstance(node, ast.Constant):
        if type(node.value) in (int, float):
            yield ast.Constant(plus_one_percent(node.value))
        elif node.value in SCHEDULES:
            yield ast.Constant(SCHEDULES[SCHEDULES.index(node.value) - 1])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield changed(op=ast.Sub())
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        yield changed(op=ast.Add())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    elif isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load):
        for i, (one, two) in enumerate(zip(node.elts, node.elts[1:])):
            if ast.unparse(one) != ast.unparse(two):
                yield changed(elts=[*node.elts[:i], two, one, *node.elts[i + 2 :]])
    elif isinstance(node, ast.Call):
        function, name = node.func, getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in ("t", "transpose", "permute", "clamp", "masked_fill", "relu_"):
            yield function.value
        if name == "clamp" and len(node.keywords) == 1:
            other = "min" if node.keywords[0].arg == "max" else "max"
            yield changed(keywords=[ast.keyword(other, node.keywords[0].value)])
        if name in ("min", "max"):
            other = "min" if name == "max" else "max"
            yield changed(func=ast.Name(other, ast.Load()) if isinstance(function, ast.Name) else
                          ast.Attribute(function.value, other, ast.Load()))
        if name == "range" and len(node.args) == 1:
            yield changed(args=[ast.BinOp(node.args[0], ast.Sub(), ast.Constant(1))])
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in ("t", "num_steps"):
            later = {"t": "(t + 1)", "num_steps": "(num_steps * 1.01)"}[node.id]
            yield ast.parse(later, mode="eval").body
    elif isinstance(node, ast.Attribute) and node.attr == "schedule":
        own = ast.unparse(node)
        yield ast.parse(f"_SCHEDULES[_SCHEDULES.index({own}) - 1]", mode="eval").body


class Mutant:
    """A place in the syntax tree of a statement `top` of the module, and what comes there.

    where: the function or attribute. name: of the mutant, for people. line: of the place."""

    def __init__(self, top, where, line, holder, field, index, new):
        self.top, self.where, self.line = top, where, line
        self._holder, self._field, self._index, self._new = holder, field, index, new
        self.name = None

    def swap(self):
        """Makes the change; a second time, undoes it."""
        values, key = ((vars(self._holder), self._field) if self._index is None else
                       (getattr(self._holder, self._field), self._index))
        values[key], self._new = self._new, values[key]

    def describe(self, old, parents):
        """The expression before and after, with enough around it to be known by."""
        new = self._new
        if isinstance(old, (ast.List, ast.Tuple)) and len(new.elts) == len(old.elts):
            i = next(i for i, (a, b) in enumerate(zip(old.elts, new.elts)) if a is not b)
            one, two = (ast.unparse(node) for node in old.elts[i : i + 2])
            return f"{one}, {two} -> {two}, {one}"
        shown, around = old, list(parents)
        while around and len(ast.unparse(shown)) < 12:
            shown = around.pop()
        if isinstance(shown, ast.Tuple):  # one number of many
            return f"{ast.unparse(old)} -> {ast.unparse(new)}"
        if shown is old:
            return f"{ast.unparse(old)} -> {ast.unparse(new)}"
        before = ast.unparse(shown)
        self.swap()
        after = ast.unparse(shown)
        self.swap()
        return f"{before} -> {after}"


def mutants(tree):
    """All of the code that steps run, with names that differ."""
    found, times = [], collections.Counter()

    def visit(node, top, where, parents):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases"):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if (not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr) or
                        isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                    continue
                inner = where
                if isinstance(child, ast.FunctionDef) or (isinstance(child, ast.Assign) and
                                                          isinstance(node, ast.ClassDef)):
                    own = getattr(child, "name", None) or ast.unparse(child.targets[0])
                    if own in LEFT_OUT:
                        continue
                    inner = f"{where}.{own}"
                # A slice of several axes is no list, and the time of t + 1 no time.
                apart = isinstance(node, ast.Subscript) and field == "slice" and isinstance(
                    child, ast.Tuple) or ast.unparse(node) == "t + 1" and field == "left"
                for new in [] if apart or not isinstance(child, ast.expr) else changes(child):
                    mutant = Mutant(top, inner, child.lineno, node, field, index, new)
                    around = [*parents, node] if isinstance(node, (ast.expr, ast.keyword)) else []
                    name = f"{inner}: {mutant.describe(child, around)}"
                    times[name] += 1
                    mutant.name = name if times[name] == 1 else f"{name} ({times[name]})"
                    found.append(mutant)
                visit(child, top, inner, [*parents, node]
                      if isinstance(node, (ast.expr, ast.keyword)) else [])

    for top in tree.body:
        name = getattr(top, "name", None) or (
            ast.unparse(top.targets[0]) if isinstance(top, ast.Assign) else None)
        if name in SERVES:
            visit(top, top, name, [])
    return found


def types_of(mutant):
    known = [where for where in SERVES
             if mutant.where == where or mutant.where.startswith(where + ".")]
    return SERVES[max(known, key=len)]


class Reader:
    """python/lopt_optimizer.py, or a mutant of it, and the files that it reads."""

    def __init__(self):
        self.tree = ast.parse(SOURCE.read_text())
        self._codes = {id(node): self._compile(node) for node in self.tree.body}
        self._files = {}

    @staticmethod
    def _compile(node):
        return compile(ast.fix_missing_locations(ast.Module([node], [])), str(SOURCE), "exec")

    def module(self, mutant=None):
        module = types.ModuleType("mutant")
        sys.modules["mutant"] = module
        for node in self.tree.body:
            code = self._codes[id(node)]
            if mutant is not None and node is mutant.top:
                mutant.swap()
                code = self._compile(node)
                mutant.swap()
            exec(code, vars(module))
        return module

    def refuses(self, module, path, update=None):
        """Whether a module's golden steps, without one of the updates, are not those of a file."""
        if path not in self._files:
            self._files[path] = ThetaFile(path)
        own = self._files[path]
        file = object.__new__(module.ThetaFile)
        vars(file).update(vars(own))
        try:
            file._rule = module._TYPES[own.learned_optimizer["type"]]
            # Two tensors show nearly all, in less time.
            for some in (("small/b", "small/w"), own._golden.params):
                file._golden = own._golden._replace(
                    params={name: own._golden.params[name] for name in some})
                if update is not None:
                    kept = [i for i in range(len(own._golden.steps)) if i != update]
                    file._golden = file._golden._replace(
                        steps=[own._golden.steps[i] for i in kept],
                        losses=[own._golden.losses[i] for i in kept],
                        gradients={name: x[kept] for name, x in own._golden.gradients.items()})
                if any(found.share > 1 for found in file.golden_deviations()):
                    return True
            return False
        except Exception:  # a reader that fails does not open the file either
            return True

    def lines(self, path):
        """The numbers of the lines that run for a file."""
        module, lines = self.module(), set()

        def trace(frame, event, _):
            if frame.f_code.co_filename != str(SOURCE):
                return None
            lines.add(frame.f_lineno)
            return trace

        sys.settrace(trace)
        try:
            refused = self.refuses(module, path)
        finally:
            sys.settrace(None)
        assert not refused, path
        return lines


def write_theta_files(directory):
    """Those of FILES, by the program; their paths by type."""
    paths = collections.defaultdict(list)
    for kind, files in FILES.items():
        for i, (options, own) in enumerate(files):
            # The layout is that of any schedule, and C++ has more of them.
            options_of_layout = {key: x for key, x in options.items() if key != "schedule"}
            rule, resolved = lopt_optimizer._resolve(options_of_layout, "test")
            random, theta = numpy.random.RandomState(1), {}
            for name, shape in rule.layout(resolved).items():
                values = random.normal(0, 0.3, shape)
                last = name.split("/")[-1]
                if last in HYPERPARAMETERS or last.endswith("_decays"):
                    values = HYPERPARAMETERS.get(last, 0) + 0.1 * values
                if isinstance(own.get(name), float):
                    values *= own[name]
                elif name in own:
                    values = numpy.reshape(own[name], shape)
                theta[name] = values.astype(numpy.float32)
            numpy.savez(directory / "theta.npz", **theta)
            path = directory / f"{kind}-{i}.safetensors"
            finished = subprocess.run(
                [PROGRAM, "import", directory / "theta.npz", "--out", path, "--learned-optimizer",
                 json.dumps(options)], capture_output=True, text=True)
            if finished.returncode != 0:
                raise AssertionError(f"{options}: {finished.stderr}")
            paths[kind].append(str(path))
    return paths


@unittest.skipUnless(PROGRAM, "LOPT_PROGRAM does not name the program")
class Mutants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        cls.paths = write_theta_files(cls.directory)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        cls.addClassCleanup(torch.set_num_threads, threads)

    def test_every_type_has_files_and_mutants(self):
        self.assertEqual(set(FILES), set(lopt_optimizer._TYPES))
        for rule in lopt_optimizer._TYPES.values():
            self.assertIn(rule.__name__, SERVES)

    def test_each_mutant_of_the_rules_is_found_by_every_type_that_runs_it(self):
        reader = Reader()
        lines = {path: reader.lines(path) for paths in self.paths.values() for path in paths}
        counts, not_found = collections.Counter(), collections.defaultdict(list)
        all_mutants = mutants(reader.tree)
        tried = all_mutants[:: int(os.environ.get("LOPT_MUTANTS_EVERY", "1"))]
        for mutant in tried:
            module = reader.module(mutant)
            kinds = types_of(mutant)
            for kind in kinds:
                paths = self.paths[kind]
                within = mutant.where.split(".")[-1]
                if not within.isupper() and "BETA" not in within and within != "_WARMUP":
                    paths = [path for path in paths if mutant.line in lines[path]]
                    if not paths and len(kinds) > 1:
                        continue
                counts[kind, "tried"] += 1
                if any(reader.refuses(module, path) for path in paths):
                    counts[kind, "found"] += 1
                else:
                    not_found[mutant.name].append(kind)
        self.write_table(counts)
        names = {mutant.name for mutant in tried}
        listed = {name: kinds for reasons in NOT_FOUND.values() for name, kinds in reasons.items()
                  if name in names or len(tried) == len(all_mutants)}
        for name in {**not_found, **listed}:
            with self.subTest(name):
                self.assertEqual(not_found.get(name, []), listed.get(name, []))

    def test_each_update_left_out_is_found_by_every_type(self):
        reader, module = Reader(), None
        for kind, paths in self.paths.items():
            module = module or reader.module()
            for path in paths:
                for update in range(ThetaFile(path).golden_steps):
                    with self.subTest(f"{kind} without update {update}"):
                        self.assertTrue(reader.refuses(module, path, update))

    def write_table(self, counts):
        lines = ["| Type | Mutants | Found | Listed |", "|---|---|---|---|"]
        for kind in FILES:
            tried, found = counts[kind, "tried"], counts[kind, "found"]
            lines.append(f"| {kind} | {tried} | {found} | {tried - found} |")
        text = "\n".join(lines) + "\n"
        print("\n" + text)
        if "LOPT_MUTANTS_TABLE" in os.environ:
            pathlib.Path(os.environ["LOPT_MUTANTS_TABLE"]).write_text(text)


if __name__ == "__main__":
    unittest.main()
