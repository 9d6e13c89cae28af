"""The shop whose words are read: the process's own, or that of the arm whose request this is; without one, words are
only what they are in general.

A request has a context of its own, and so has every task that it starts: what one reads is nothing to the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from service.planner.shop.folder import Lexicon, Name

# Every shop that a request of this process can be read in. Planning asks at every word whether there is any, and no
# call is as fast as this list.
SHOPS: Final[list[Lexicon]] = []
# The shops of arms, None for an arm that has none, where any is another than the process's own.
APART: Final[list[Lexicon | None]] = []
_USUAL: Final[list[Lexicon | None]] = [None]
_CHOSEN: Final[ContextVar[Lexicon | None]] = ContextVar("the shop of a request's arm")


def lexicon() -> Lexicon | None:
    return _CHOSEN.get(_USUAL[0])


def use(one: Lexicon | None, of_arms: Iterable[Lexicon | None] = ()) -> None:
    """Read words as this shop's from now on, and in `reading` as those of arms.

    `spelling.use_shop` also forgets how words were spelt before.
    """
    _USUAL[:] = [one]
    apart = list(of_arms)
    APART[:] = apart if any(each is not one for each in apart) else []
    SHOPS[:] = [each for each in dict.fromkeys((one, *apart)) if each is not None]


@contextmanager
def reading(one: Lexicon | None) -> Iterator[None]:
    """Read the words of this request, meanwhile, as those of this shop, or of none."""
    token = _CHOSEN.set(one)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def name_of(texts: Sequence[str]) -> Name | None:
    """Return what lower-case words together surely are in the shop; None where they are no name of it."""
    found = lexicon()
    name = found.name(" ".join(texts)) if found is not None else None
    return name if name is not None and name.sure else None
