"""Short names of code and data, which change when those do."""

import ast
import functools
import hashlib
import importlib.metadata
import pathlib
import sys

from . import data, training


def code_of(text):
    """Python code without what changes nothing: comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(
                getattr(body[0], "value", None), ast.Constant) and len(body) > 1:
            del body[0]
    return ast.unparse(tree)


def digest(*parts):
    """A short name of bytes and texts: others have another."""
    sums = [hashlib.sha256(part.encode() if isinstance(part, str) else part).digest()
            for part in parts]
    return hashlib.sha256(b"".join(sums)).hexdigest()[:12]


@functools.lru_cache(None)
def _definitions(path):
    """What a module defines at its top level, by name."""
    tree = ast.parse(code_of(pathlib.Path(path).read_text(encoding="utf-8")))
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update((target.id, node) for target in node.targets
                         if isinstance(target, ast.Name))
    return found


def code_behind(name, path):
    """The definition of a name of a module and of all that it uses of the same module; empty if it
    is defined elsewhere."""
    definitions, todo, used = _definitions(path), [name], set()
    while todo:
        name = todo.pop()
        if name in used or name not in definitions:
            continue
        used.add(name)
        todo += [node.id for node in ast.walk(definitions[name]) if isinstance(node, ast.Name)]
    return "\n".join(ast.unparse(definitions[name]) for name in sorted(used))


@functools.lru_cache(None)
def version_of_package(name):
    """Of a module that Python finds, by all the Python files of the package that it is part of, and
    by the release, which stands for what is compiled. It must have been imported."""
    top = name.partition(".")[0]
    try:
        release = importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        release = str(getattr(sys.modules[top], "__version__", ""))
    if top == "torch":  # whose release is beside this version in each line
        return digest(release)
    package = sys.modules[top]
    if hasattr(package, "__path__"):
        files = [(path.relative_to(folder).as_posix(), path) for folder in package.__path__
                 for path in sorted(pathlib.Path(folder).rglob("*.py"))]
    else:  # one file, or a part of the interpreter
        path = getattr(package, "__file__", None) or ""
        files = [(top, pathlib.Path(path))] if path.endswith(".py") else []
    return digest(release, *[part for place, path in files for part in (place, path.read_bytes())])


@functools.lru_cache(None)
def version_of_task(task_type):
    """Of a Task's code, of its text, and of the loop that trains it."""
    shared = [code_of(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
              for module in (data, training)]
    text = bytes(data.text_of(task_type.files).tolist()) if task_type.files else b""
    path = sys.modules[task_type.__module__].__file__
    return digest(code_behind(task_type.__name__, path), text, *shared)
