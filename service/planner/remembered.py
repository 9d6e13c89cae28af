"""What is known of words once it was found, for each shop apart in which words are read."""

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from service.planner.shop import current

_MOST = 4096


class _NoShop:
    """What is remembered of words in no shop belongs to this."""


_NO_SHOP: Final = _NoShop()


class Remembered(dict[str, str]):
    """What is known of words. All is forgotten when it is full; what `find` is not sure of is not kept.

    Where arms are read in shops of their own, nothing is in the dictionary itself, and each shop has one apart.
    """

    def __init__(self, find: Callable[[str], tuple[str, bool]]) -> None:
        super().__init__()
        self._find = find
        # A request that outlasts a reload must not keep the shop from before it.
        self._apart: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()

    def __missing__(self, word: str) -> str:
        kept = self._of_shop()
        if kept is not self and (known := kept.get(word)) is not None:
            return known
        found, is_sure = self._find(word)
        if is_sure:
            if len(kept) >= _MOST:
                kept.clear()
            kept[word] = found
        return found

    def knows(self, word: str) -> bool:
        """Tell whether something is kept of a word."""
        return word in self._of_shop()

    def forget(self) -> None:
        """Forget everything, of every shop."""
        self.clear()
        self._apart.clear()

    def _of_shop(self) -> dict[str, str]:
        return self._apart.setdefault(current.lexicon() or _NO_SHOP, {}) if current.APART else self
