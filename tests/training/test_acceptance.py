"""Tests of which nodes a tree gets, and how large it grows for a machine's costs."""

from collections import Counter

from training.acceptance import Acceptance
from training.tree import Measured, Shape, choose

SEEN = Acceptance(Counter({(0,): 80, (1,): 10, (0, 0): 60, (0, 1): 9, (0, 0, 0): 40, (1, 0): 8}), starts=100)


def test_the_best_tree_takes_the_most_accepted_paths_and_is_closed_under_prefixes() -> None:
    tree = SEEN.best_tree(4)

    assert tree == [[0], [1], [0, 0], [0, 0, 0]]
    for size in range(1, 7):
        nodes = {tuple(path) for path in SEEN.best_tree(size)}
        assert all(path[:-1] in nodes or len(path) == 1 for path in nodes)


def test_of_shapes_that_are_about_as_fast_the_one_with_the_fewest_forwards_is_drafted() -> None:
    table = [
        Measured(Shape(3, 0.2), 33.9, 3.85),
        Measured(Shape(12, 0.1), 34.5, 3.67),
        Measured(Shape(12, 0.0), 49.9, 3.4),
    ]

    assert choose(table).shape == Shape(12, 0.1)
