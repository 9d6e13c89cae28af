"""Keys and values of the tokens that the model has read: those of a generation, and those of earlier prompts."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

# A prompt's tokens after its salt: under another salt nothing is shared.
Salted = tuple[str | int, ...]


class KVCache:
    """A cache of which `length` positions are kept; a forward writes its nodes after them, and `keep` selects some.

    `data` is [layers, 2 (keys, values), kv heads, positions, head_dim].
    """

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.data.shape[3]

    def window(self, count: int, visible: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return views of each layer: the first `visible` positions, to read, and `count` new ones, to write.

        Keys [kv heads, D, visible], values [kv heads, visible, D], and where both are written, [2, kv heads, count, D].
        """
        keys, values = self.data[:, :, :, :visible].unbind(1)
        new = self.data[:, :, :, self.length : self.length + count]
        return list(zip(keys.transpose(2, 3).unbind(0), values.unbind(0), new.unbind(0), strict=True))

    @torch.inference_mode()
    def keep(self, offsets: Sequence[int]) -> None:
        """Keep these of the nodes just written (ascending offsets from `length`), compacted, and drop the others."""
        if any(later <= earlier for earlier, later in zip((-1, *offsets), offsets, strict=False)):
            raise ValueError(f"offsets {list(offsets)} do not ascend from 0")
        if offsets and self.length + offsets[-1] >= self.capacity:
            raise ValueError(f"offset {offsets[-1]} after {self.length} positions overflows a cache of {self.capacity}")
        in_place = next((index for index, offset in enumerate(offsets) if offset != index), len(offsets))
        if in_place < len(offsets):
            source = torch.tensor([self.length + offset for offset in offsets[in_place:]], device=self.data.device)
            target = slice(self.length + in_place, self.length + len(offsets))
            self.data[:, :, :, target] = self.data.index_select(3, source)
        self.length += len(offsets)

    @torch.inference_mode()
    def fill(self, data: Tensor) -> None:
        """Keep these positions, [layers, 2, kv heads, positions, head_dim], and no others."""
        self.length = data.shape[3]
        self.data[:, :, :, : self.length] = data

    def reset(self) -> None:
        """Forget all positions; the memory stays allocated."""
        self.length = 0


class PrefixCache:
    """Keys and values of prompts, and their states, in at most `most_bytes`; the least recently used ones go."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # [layers, 2, kv heads, T, head_dim] and [T, H] of each prompt of T tokens; the most recently used one last
        self._prompts: OrderedDict[Salted, tuple[Tensor, Tensor]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._prompts)

    def restore(self, salt: str, prompt: Sequence[int], cache: KVCache) -> Tensor | None:
        """Fill an empty cache with the longest prefix known under this salt, and return its states; None without one.

        The last token is left out: it must be read in any case, as the first choice is made from its scores.
        """
        tokens: Salted = (salt, *prompt[:-1])
        longest = max(self._prompts, key=lambda known: _shared(known, tokens), default=())
        if not (count := _shared(longest, tokens)):
            return None
        self._prompts.move_to_end(longest)
        data, states = self._prompts[longest]
        cache.fill(data[:, :, :, :count])
        return states[:count]

    def add(self, salt: str, prompt: Sequence[int], cache: KVCache, states: Tensor) -> None:
        """Keep a prompt that a cache begins with, and its states [T, H], unless one that is kept begins with it."""
        tokens: Salted = (salt, *prompt)
        data = cache.data[:, :, :, : len(prompt)]
        size = data.nbytes + states.nbytes
        shared = {known: _shared(known, tokens) for known in self._prompts}
        if size > self._most_bytes or len(prompt) in shared.values():
            return
        for known in [known for known, count in shared.items() if count == len(known) - 1]:
            self._drop(known)
        while self.bytes + size > self._most_bytes:
            self._drop(next(iter(self._prompts)))
        self._prompts[tokens] = data.clone(), states.clone()
        self.bytes += size

    def clear(self) -> None:
        self._prompts.clear()
        self.bytes = 0

    def _drop(self, known: Salted) -> None:
        self.bytes -= sum(tensor.nbytes for tensor in self._prompts.pop(known))


def _shared(known: Salted, tokens: Salted) -> int:
    """Return how many of the first tokens are the same, the salt not counted; 0 under another salt."""
    same = 0
    for one, other in zip(known, tokens, strict=False):
        if one != other:
            break
        same += 1
    return max(same - 1, 0)
