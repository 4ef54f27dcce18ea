"""Tasks of one's own in Python: what a class has to have, and what the extension calls."""

from .options import option
from .registry import make_family, register_task, task

__all__ = ["make_family", "option", "register_task", "task"]
