"""The K/V cache: keys and values of the tokens that the model has read, in one block that is allocated once."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
