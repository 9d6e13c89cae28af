"""The shop whose words are read in this process; without one, words are only what they are in general."""

from collections.abc import Sequence
from typing import Final

from service.planner.shop.lexicon import Lexicon, Name

# One, or none. Rules ask at every word whether there is a shop, and no call is as fast as this list.
SHOPS: Final[list[Lexicon]] = []


def lexicon() -> Lexicon | None:
    """Return the lexicon of the shop; None without one."""
    return SHOPS[0] if SHOPS else None


def use(one: Lexicon | None) -> None:
    """Read words as this shop's from now on. `readers.use_shop` also forgets what was read before."""
    SHOPS[:] = [one] if one is not None else []


def name_of(texts: Sequence[str]) -> Name | None:
    """Return what lower-case words together surely are in the shop; None where they are no name of it."""
    found = lexicon()
    name = found.name(" ".join(texts)) if found is not None else None
    return name if name is not None and name.sure else None
