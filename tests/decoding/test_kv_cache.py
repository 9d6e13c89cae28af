import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.kv_cache import KVCache
from service.decoding.tree import ancestor_mask
from tests.decoding.tiny import forward_all, random_model

# 0 - 1 - 3
#   |   ` 4 - 6
#   ` 2 - 5
PARENTS = [-1, 0, 0, 1, 1, 2, 4]
DEPTHS = [0, 1, 1, 2, 2, 2, 3]
TOKENS = [5, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("path", [[0, 1, 4, 6], [0, 2, 5], [0, 1, 3], [0], []])
def test_what_is_kept_equals_a_fresh_reading_of_the_same_tokens(path: list[int]) -> None:
    model = random_model(3)
    prompt = [8, 9, 2]
    cache = model.new_cache(16)
    model.forward(torch.tensor(prompt), torch.arange(3), cache)
    cache.keep(range(3))
    model.forward(torch.tensor(TOKENS), torch.tensor(DEPTHS) + 3, cache, ancestor_mask(PARENTS))

    cache.keep(path)

    kept = prompt + [TOKENS[node] for node in path]
    fresh = model.new_cache(len(kept))
    model.forward(torch.tensor(kept), torch.arange(len(kept)), fresh)
    assert cache.length == len(kept)
    torch.testing.assert_close(cache.data[:, :, :, : len(kept)], fresh.data[:, :, :, : len(kept)], rtol=1e-4, atol=1e-4)
    # and the model goes on from it as if nothing had been rejected
    going_on = model.forward(torch.tensor([1]), torch.tensor([len(kept)]), cache)
    torch.testing.assert_close(going_on[0], forward_all(model, [*kept, 1])[-1], rtol=1e-4, atol=1e-4)


@given(st.integers(0, 5), st.sets(st.integers(0, 9)))
@settings(deadline=None)
def test_keeping_moves_whole_positions(length: int, kept: set[int]) -> None:
    data = torch.arange(16.0).expand(2, 2, 3, 16)[..., None].expand(-1, -1, -1, -1, 4).clone()
    cache = KVCache(data)
    cache.length = length

    cache.keep(sorted(kept))

    assert cache.length == length + len(kept)
    expected = [*range(length), *(length + offset for offset in sorted(kept))]
    assert cache.data[1, 1, 2, : cache.length, 3].tolist() == expected


def test_offsets_out_of_order_are_refused() -> None:
    cache = KVCache(torch.zeros(1, 2, 1, 8, 4))

    for offsets in ([1, 0], [2, 2], [-1]):
        with pytest.raises(ValueError, match="do not ascend from 0"):
            cache.keep(offsets)
    for offsets in ([8], [0, 1, 8]):
        with pytest.raises(ValueError, match="offset 8 after 0 positions overflows a cache of 8"):
            cache.keep(offsets)
    assert cache.length == 0


def test_reset_forgets_all() -> None:
    model = random_model(1)
    cache = model.new_cache(8)
    tokens, positions = torch.tensor([4, 2]), torch.arange(2)
    first = model.forward(tokens, positions, cache)
    cache.keep([0, 1])

    cache.reset()

    torch.testing.assert_close(model.forward(tokens, positions, cache), first)
