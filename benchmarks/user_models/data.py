"""Data of the trainings: functions of a seed, or the texts that Python itself ships."""

import ast
import functools
import hashlib
import math
import pathlib
import sysconfig

import torch

# Files of the standard library whose docstrings are a text, for each of the text models.
PROGRAM_TEXT = ("argparse.py", "ast.py", "bdb.py", "collections/__init__.py", "contextlib.py",
                "difflib.py", "doctest.py", "enum.py", "functools.py", "heapq.py", "inspect.py",
                "logging/__init__.py", "logging/handlers.py", "optparse.py", "os.py", "pathlib.py",
                "pickletools.py", "random.py", "shutil.py", "statistics.py", "subprocess.py",
                "tarfile.py", "textwrap.py", "threading.py", "typing.py")
MAIL_TEXT = ("_pydecimal.py", "_pyio.py", "cmd.py", "codecs.py", "configparser.py", "csv.py",
             "email/headerregistry.py", "email/message.py", "email/policy.py", "fractions.py",
             "gettext.py", "http/client.py", "http/cookiejar.py", "ipaddress.py", "locale.py",
             "mailbox.py", "smtplib.py", "socket.py", "string.py", "unittest/case.py",
             "unittest/mock.py", "urllib/request.py", "uuid.py", "zipfile.py")


def generator(seed, use):
    """Random numbers for one use of a seed. Different uses are independent of each other."""
    digest = hashlib.sha256(f"{seed} {use}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def shuffled(count, part, numbers):
    """Numbers below count in a random order: the first `part` of them, and the others."""
    order = torch.randperm(count, generator=numbers)
    return order[:part], order[part:]


@functools.lru_cache(None)
def text_of(files):
    """The docstrings in files of the standard library as bytes [n], each below 128. They are those
    of the Python that runs this, so another Python may give another text. Raises RuntimeError if
    few of the files are there."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    parts = []
    for path in (folder / name for name in files):
        code = path.read_text(encoding="utf-8") if path.is_file() else ""
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                parts.append(ast.get_docstring(node) or "")
    content = "\n\n".join(part for part in parts if part).encode("ascii", "ignore")
    if len(content) < 50000:
        raise RuntimeError(f"data: 50000 bytes of docstrings wanted in {', '.join(files)} of "
                           f"{folder}, got {len(content)}: is Python's library installed?")
    return torch.tensor(list(content))


def text_windows(files, length, seed):
    """Windows [n, length + 1] of the docstrings in these files, to train on and to test on: a tenth
    of them, drawn by the seed, is held out."""
    text = text_of(files)
    windows = text[: len(text) // (length + 1) * (length + 1)].view(-1, length + 1)
    held_out, kept = shuffled(len(windows), len(windows) // 10, generator(seed, "text"))
    return windows[kept], windows[held_out]


def _distance_to_segment(points, ends):
    """Distances of points [p, 2] from segments [n, 2 (begin and end), 2]: [n, p]."""
    begin, along = ends[:, :1], ends[:, 1:] - ends[:, :1]
    offset = points - begin
    place = (offset * along).sum(-1) / along.square().sum(-1).clamp_min(1e-6)
    return (offset - place.clamp(0, 1)[..., None] * along).norm(dim=-1)


def _pixels(size):
    """Centres of the pixels of a picture from -1 to 1, [size * size, 2]."""
    ticks = (torch.arange(size) + 0.5) * 2 / size - 1
    return torch.stack(torch.meshgrid(ticks, ticks, indexing="ij"), -1).view(-1, 2)


def strokes(lines, labels, size, numbers):
    """Pictures [n, size, size] from 0 to 1 of characters made of straight strokes.

    lines: [classes, strokes, 2 (begin and end), 2] from -1 to 1; labels: [n]. Each character is
    turned, stretched and moved a little.
    """
    count = len(labels)
    turn = 0.25 * torch.randn(count, 1, 1, 2, 2, generator=numbers) * torch.tensor([1.0, 1.0])
    place = 0.15 * torch.randn(count, 1, 1, 2, generator=numbers)
    ends = 0.7 * lines[labels]
    ends = ends + (turn @ ends[..., None])[..., 0] + place
    points = _pixels(size)
    distances = torch.stack([_distance_to_segment(points, ends[:, i])
                             for i in range(ends.shape[1])]).amin(0)
    return torch.sigmoid((0.18 - distances) * 20).view(count, size, size)


def alphabet(classes, stroke_count, numbers):
    """Characters of an alphabet that nobody uses, for strokes(): each is one line with corners."""
    corners = torch.rand(classes, stroke_count + 1, 2, generator=numbers) * 2 - 1
    return torch.stack([corners[:, :-1], corners[:, 1:]], 2)


def shapes(count, size, numbers):
    """Coloured pictures [count, 3, size, size] with one of eight shapes each, and the labels:
    disc, ring, square, frame, diamond, cross, bars across and bars down, on a background of another
    colour with noise."""
    labels = torch.randint(0, 8, (count,), generator=numbers)
    centre = 0.5 * (torch.rand(count, 1, 2, generator=numbers) - 0.5)
    radius = 0.45 + 0.3 * torch.rand(count, 1, generator=numbers)
    offset = (_pixels(size) - centre) / radius[..., None]
    y, x = offset[..., 0], offset[..., 1]
    circle, square = offset.norm(dim=-1), offset.abs().amax(-1)
    within = square < 1
    masks = torch.stack([circle < 1, (circle < 1) & (circle > 0.6), within,
                         within & (square > 0.6), x.abs() + y.abs() < 1,
                         within & (offset.abs().amin(-1) < 0.3),
                         within & (torch.sin(y * 7) > 0), within & (torch.sin(x * 7) > 0)])
    mask = masks[labels, torch.arange(count)].float()[:, None]
    colours = 0.6 * torch.rand(count, 2, 3, 1, generator=numbers)
    bright = torch.randint(0, 2, (count,), generator=numbers)
    colours[torch.arange(count), bright] += 0.4
    pictures = colours[:, 0] * mask + colours[:, 1] * (1 - mask)
    pictures = pictures + 0.1 * torch.randn(pictures.shape, generator=numbers)
    return pictures.view(count, 3, size, size) - 0.5, labels


def table(rows, features, informative, numbers):
    """Rows [rows, features] of correlated features, and a smooth function [rows] of the first
    `informative` of them, with mean 0 and variance 1 and without noise."""
    mixing = torch.randn(features, features, generator=numbers) / math.sqrt(features)
    inputs = torch.randn(rows, features, generator=numbers)
    inputs = inputs + inputs @ mixing
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    x = inputs[:, :informative]
    first = torch.randn(informative, generator=numbers) / math.sqrt(informative)
    second = torch.randn(informative, generator=numbers) / math.sqrt(informative)
    outputs = x @ first + torch.sin(1.5 * (x @ second)) + 0.5 * x[:, 0] * x[:, 1]
    return inputs, (outputs - outputs.mean()) / outputs.std()
