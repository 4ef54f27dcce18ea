"""Whose turn it is: a task need not be thread-safe, and no two of them are in a BLAS at once."""

from __future__ import annotations

import contextlib
import threading

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def turn(torch):
    """A user's code runs, alone; torch, unless it is None, uses the calling thread only, so that
    bits do not depend on the machine's cores."""
    with _one_at_a_time:
        threads = torch.get_num_threads() if torch is not None else 1
        if threads == 1:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
