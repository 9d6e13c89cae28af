import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.decoding.tree import MedusaTree, ancestor_mask, path_to
from tests.decoding.tiny import choices


def test_a_small_tree() -> None:
    tree = MedusaTree.from_choices([[0], [0, 0], [1], [0, 1], [0, 0, 0]], num_heads=3)

    # root, [0], [1], [0, 0], [0, 1], [0, 0, 0]
    assert tree.ranks == (0, 0, 1, 0, 1, 0)
    assert tree.parents == (-1, 0, 0, 1, 1, 3)
    assert tree.branches == (((0, 1), (1, 2)), ((0, 3), (1, 4)), (), ((0, 5),), (), ())
    assert path_to(5, tree.parents) == [0, 1, 3, 5]
    assert ancestor_mask(tree.parents).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 1, 0, 1],
    ]


def test_no_choices_are_a_root_alone() -> None:
    assert MedusaTree.from_choices([], num_heads=0).branches == ((),)


@given(st.integers(1, 6).flatmap(choices))
def test_nodes_are_the_choices(chosen: list[list[int]]) -> None:
    tree = MedusaTree.from_choices(chosen, num_heads=6)
    mask = ancestor_mask(tree.parents)

    named = {}
    for node in range(1, len(tree.parents)):
        named[tuple(tree.ranks[each] for each in path_to(node, tree.parents)[1:])] = node
    assert sorted(named) == sorted(map(tuple, chosen))
    for choice, node in named.items():
        ancestors = {0, *(named[choice[:length]] for length in range(1, len(choice) + 1))}
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ([[0], [0, 0], [0, 0, 0]], r"choice \[0, 0, 0\] needs 3 heads, and there are 2"),
        ([[0], [1, 0]], r"choice \[1, 0\] hangs from \[1\], which is not a choice"),
        ([[0], [1], [0]], r"choice \[0\] is listed twice"),
        ([[0], [0, -1]], r"choice \[0, -1\] has a negative rank"),
        ([[0], []], "an empty choice names nothing"),
    ],
)
def test_impossible_trees_are_refused(chosen: list[list[int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MedusaTree.from_choices(chosen, num_heads=2)


@given(st.data())
def test_missing_parents_are_refused_whatever_the_tree(data: st.DataObject) -> None:
    chosen = data.draw(choices(4).filter(lambda drawn: any(len(choice) > 1 for choice in drawn)))
    child = data.draw(st.sampled_from([choice for choice in chosen if len(choice) > 1]))

    with pytest.raises(ValueError, match="hangs from"):
        MedusaTree.from_choices([choice for choice in chosen if choice != child[:-1]], num_heads=4)


def test_the_mask_of_a_chain_is_causal() -> None:
    assert ancestor_mask([-1, 0, 1]).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
