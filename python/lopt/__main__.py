"""`python -m lopt` is the program `lopt`."""

import sys

from ._core import run_program


def main() -> int:
    """Runs the program with the words of this process' command line; returns its exit code."""
    return run_program(sys.argv[1:], [sys.executable, "-m", "lopt"])


if __name__ == "__main__":
    sys.exit(main())
