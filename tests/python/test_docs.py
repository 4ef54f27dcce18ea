"""The Python of docs/python.md, run from the first line to the last."""

import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Snippets(unittest.TestCase):
    def test_what_the_page_says_runs(self):
        page = (ROOT / "docs/python.md").read_text()
        snippets = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(snippets), 5)
        # The writer of torch.utils.tensorboard needs a package of its own.
        board = types.ModuleType("torch.utils.tensorboard")
        board.SummaryWriter = lambda directory: unittest.mock.MagicMock()
        names = {}
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            try:
                with unittest.mock.patch.dict(sys.modules, {board.__name__: board}), \
                        contextlib.redirect_stdout(io.StringIO()):
                    for snippet in snippets:
                        exec(compile(snippet, "docs/python.md", "exec"), names)
            finally:
                os.chdir(here)
        self.assertEqual(names["config"]["meta_steps"], 40)
        self.assertEqual(len(names["losses"]), 40)


if __name__ == "__main__":
    unittest.main()
