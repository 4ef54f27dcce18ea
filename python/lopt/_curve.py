"""Curves as SVG, and whether a notebook is there to show them."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 28, 34
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
_BINS = 250  # that a curve has at most
_SMOOTHED = 20  # the running mean is over this part of a curve


def notebook_display() -> Callable[..., Any] | None:
    """IPython's display() in a notebook; None elsewhere, as in a terminal's IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers in [low, high]."""
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (5, 2, 1) if (high - low) / (step * factor) >= 3)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _running_mean(values: numpy.ndarray) -> numpy.ndarray:
    """Of the last twentieth of the curve, at each place."""
    window = max(1, len(values) // _SMOOTHED)
    sums = numpy.concatenate([[0.0], numpy.cumsum(values)])
    ends = numpy.arange(1, len(values) + 1)
    begins = numpy.maximum(ends - window, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)


def _binned(values: numpy.ndarray) -> numpy.ndarray:
    """The means of at most _BINS neighbours."""
    return numpy.array([part.mean() for part in numpy.array_split(values, min(len(values), _BINS))])


def curves_svg(lines: Sequence[tuple[str, Sequence[float], Sequence[float]]], x_end: float,
               x_label: str, y_label: str) -> str:
    """A picture of lines (name, x, y), each faint, with its running mean. x is from 0 to at least
    x_end. Values that are not finite are left out; the highest and lowest hundredth may be outside."""
    finite = []
    for name, x, y in lines:
        xs, ys = numpy.asarray(x, float), numpy.asarray(y, float)
        keep = numpy.isfinite(ys)
        if keep.any():
            finite.append((name, xs[keep], ys[keep]))
    all_y = numpy.concatenate([y for _, _, y in finite]) if finite else numpy.array([0.0, 1.0])
    low, high = numpy.quantile(all_y, [0.01, 0.99])
    if high - low < 1e-9 * max(abs(high), 1e-300):
        low, high = low - (abs(low) or 1), high + (abs(high) or 1)
    margin = (high - low) / 20
    low, high = low - margin, high + margin
    x_end = max([x_end, 1, *(x[-1] for _, x, _ in finite)])
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place_x(x: float) -> float:
        return LEFT + across * x / x_end

    def place_y(y: float) -> float:
        return TOP + down * (high - y) / (high - low)

    def path(xs: numpy.ndarray, ys: numpy.ndarray, style: str) -> str:
        points = " ".join(f"{place_x(x):.1f},{place_y(min(max(y, low), high)):.1f}"
                          for x, y in zip(_binned(xs), _binned(ys)))
        return f'<polyline points="{points}" fill="none" {style}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in _ticks(low, high):
        y = place_y(tick)
        parts.append(f'<path d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in _ticks(0, x_end):
        parts.append(f'<text x="{place_x(tick):.1f}" y="{HEIGHT - BOTTOM + 15}" '
                     f'text-anchor="middle">{tick:,.4g}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 10}">{html.escape(y_label)}</text>'
                 f'<text x="{LEFT + across / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
                 f"{html.escape(x_label)}</text>")
    for i, (name, x, y) in enumerate(finite):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(path(x, y, f'stroke="{colour}" stroke-opacity="0.25"'))
        parts.append(path(x, _running_mean(y), f'stroke="{colour}" stroke-width="2"'))
        if len(lines) > 1:
            parts.append(f'<text x="{WIDTH - RIGHT - 60 * (len(finite) - i)}" y="{TOP - 10}" '
                         f'fill="{colour}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
