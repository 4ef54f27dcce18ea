"""Tests of keys."""

import json
import pathlib
import copy
import pickle
import unittest

import numpy as np

import lopt

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "keys.json"


class KeysTest(unittest.TestCase):
    def test_draws_are_the_golden_ones(self):
        for golden in json.loads(GOLDEN.read_text())["cases"]:
            key = lopt.Key(int(golden["seed"]))
            self.assertEqual([key.hi, key.lo], golden["key"])
            for data, words in golden["fold_in"].items():
                folded = key.fold_in(int(data))
                self.assertEqual([folded.hi, folded.lo], words)
            self.assertEqual([[k.hi, k.lo] for k in key.split(3)], golden["split3"])
            np.testing.assert_array_equal(key.uniform(5), np.float32(golden["uniform5"]))
            np.testing.assert_array_equal(key.integers(5, 0, 10000), golden["randint5_0_10000"])
            np.testing.assert_allclose(key.normal(5), golden["normal5"], rtol=0, atol=1e-6)

    def test_several_keys_draw_row_by_row_what_each_draws_alone(self):
        several = lopt.Key(3).split(4)
        keys = lopt.Keys(several)
        for draw in (
            lambda k: k.normal((2, 3)),
            lambda k: k.uniform(5),
            lambda k: k.truncated_normal((2,), -1, 0.5),
            lambda k: k.integers((3, 2), -2, 9),
            lambda k: k.fold_in(7).normal(),
        ):
            drawn = draw(keys)
            self.assertEqual(len(drawn), 4)
            for row, key in zip(drawn, several):
                np.testing.assert_array_equal(row, draw(key))
        self.assertEqual(list(keys), several)
        self.assertEqual(keys[-1], several[3])

    def test_arrays_are_the_callers(self):
        key = lopt.Key(3)
        drawn = key.normal((2, 3))
        self.assertEqual((drawn.dtype, drawn.shape), (np.float32, (2, 3)))
        self.assertTrue(drawn.flags.writeable and drawn.flags.c_contiguous)
        drawn[:] = 7
        self.assertFalse((key.normal((2, 3)) == 7).any())
        self.assertEqual(key.normal().shape, ())
        self.assertEqual(key.normal((0, 2)).shape, (0, 2))
        self.assertEqual(key.integers(1, 0, 2).dtype, np.int64)

    def test_keys_are_values(self):
        self.assertEqual(lopt.Key(5), lopt.Key(5))
        self.assertNotEqual(lopt.Key(5), lopt.Key(6))
        self.assertEqual(len({lopt.Key(5), lopt.Key(5), lopt.Key(6)}), 2)
        self.assertEqual(eval(repr(lopt.Key(2**40 + 5))), lopt.Key(2**40 + 5))

    def test_keys_go_through_pickles_and_copies(self):
        key = lopt.Key(2**40 + 5)
        keys = lopt.Keys(key.split(3))
        for again, keys_again in (pickle.loads(pickle.dumps((key, keys))),
                                  copy.deepcopy((key, keys)), (copy.copy(key), copy.copy(keys))):
            self.assertEqual(again, key)
            np.testing.assert_array_equal(keys_again.normal(2), keys.normal(2))

    def test_wrong_shapes_and_ranges_are_errors(self):
        key = lopt.Key(1)
        for shape, shown in ((-1, "-1"), ((2, "a"), "(2, 'a')"), ("a", "'a'"), (2.5, "2.5")):
            with self.assertRaises(lopt.Error) as caught:
                key.normal(shape)
            self.assertEqual(
                str(caught.exception),
                "normal: shape must be an int or a tuple of ints that are at least 0, "
                f"got {shown}",
            )
        with self.assertRaises(lopt.Error) as caught:
            key.integers(3, 5, 5)
        self.assertEqual(
            str(caught.exception), "Randint: low must be below high, got low 5 and high 5"
        )
        with self.assertRaises(IndexError):
            lopt.Keys([key])[1]


if __name__ == "__main__":
    unittest.main()
