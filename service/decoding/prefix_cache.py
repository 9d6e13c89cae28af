"""Prompts that a replica has read: a later turn's prompt begins with an earlier one's, and costs only its new tokens.

vLLM calls this automatic prefix caching. It hashes blocks of 16 tokens, whose keys and values lie scattered in a GPU's
memory. Here a sequence lies in one piece, so prompts are kept whole and compared token by token, and a prefix may end
anywhere. A prompt replaces the one that it goes on from: a conversation is kept once.

It is of use only to a model whose rows do not depend on what else a forward reads (`CausalLM.is_row_independent`):
what is kept has the bits that would be computed again.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor

from service.decoding.kv_cache import KVCache

# A prompt's tokens after its salt: under another salt nothing is shared.
Salted = tuple[str | int, ...]


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
        """Forget all prompts."""
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
