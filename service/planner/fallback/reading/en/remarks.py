"""Clauses beside a wish that are about the deal or the people and not the thing: "..., my neighbour swears by it".

A clause is a remark by its words, whatever its form: each is a word of buying, bringing, paying, asking and thanking,
or of no meaning of its own, and one at least tells which (`phrases.txt`); or it is a sentence that wants and asks
nothing and has no word of a product. One word that may describe a thing, and it stays. So does all that stands beside
no thing's name: whoever writes "the kettle arrived broken" wants help. What the closed phrases of a remark say of
price, sort, offers and ratings stands.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.en.facets import FACETS
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.phrases import Phrases, Refusal, Span
from service.planner.spelling import is_known

_TELLS: Final = PHRASES.words("word.deal.tells")
_RETURNS: Final = PHRASES.words("word.deal.returns")  # which tell where nothing is said to have been bought
_IF_EVER: Final = PHRASES.words("word.deal.if")
_SHOP: Final = PHRASES.words("word.deal.shop")  # whoever is spoken to, with these, is no thing
_TIMES: Final = PHRASES.words("word.deal.times")
_DESCRIBES: Final = PHRASES.words("word.deal.describes")
_TROUBLE: Final = PHRASES.words("word.deal.trouble")
_BESIDE: Final = PHRASES.words("word.deal.beside").union(
    _TELLS, _RETURNS, _IF_EVER, _SHOP, _TIMES, lists.FUNCTION_WORDS, lists.TALK
)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_MOST_WORDS = 9  # of a clause that is a name
_FEWEST = 2  # of a remark: "hi" and "thanks" alone are read as ever
_FEWEST_TIMED = 4  # of one that a time alone tells of
_NAMED = ("brand", "color", "material", "audience")
_NAMES = frozenset(("type", "line"))
_ARTICLES = frozenset(("a", "an", "the"))
_VERBS: Final = PHRASES.words("word.deal.verbs")  # which name a thing after an article


def without_remarks(text: str, clauses: Sequence[Span]) -> list[Span]:
    """Return what of the clauses of a text in small letters is no remark; all of them where none is a thing's name."""
    said = [text[slice(*clause)] for clause in clauses]
    first = 0 if _is_bare(said[0]) else next((at for at, clause in enumerate(said) if _is_wish(clause)), None)
    if first is None:
        return list(clauses)
    # What is wanted may stand before what is not: "i am after a power saw, just not a chainsaw".
    begins = first if first and _refuses_alone(said[first]) else 0
    rest = enumerate(clauses[begins:], begins)
    return [*clauses[:begins], *(span for at, each in rest for span in _without_remark(text, each, follows=at > first))]


def _is_bare(clause: str) -> bool:
    """Tell whether a clause may be the name of a thing that nobody knows: "corduroy overshirt"."""
    texts = _WORD.findall(clause)
    return 1 < len(texts) < _MOST_WORDS and _BESIDE.isdisjoint(texts) and _TROUBLE.isdisjoint(texts)


def _is_wish(clause: str) -> bool:
    """Tell whether a clause names a thing and says nothing else: "felt bucket hat", "i need a kettle"."""
    texts = _WORD.findall(clause)
    if not (len(texts) <= _MOST_WORDS and any(_kind(text) in _NAMES for text in texts) and _TROUBLE.isdisjoint(texts)):
        return False
    is_said = lists.CONVERSATIONAL.search(clause) and not lists.LEAD_INS.search(clause)
    return not is_said


def _refuses_alone(clause: str) -> bool:
    """Tell whether all things that a clause names are refused: "just not a chainsaw" wants none."""
    refused = [refusal.span for refusal in ENGLISH.phrases(clause).refused]
    return bool(refused) and not any(_kind(text) in _NAMES for text in _WORD.findall(_outside(clause, refused)))


def _kind(text: str) -> str:
    """Return the facet that a word names; no word of a deal names one."""
    return "" if _is_beside(text) else FACETS[text]


def _is_beside(text: str) -> bool:
    """Tell whether a word may stand in a remark: "today", "there's"."""
    return text in _BESIDE or text.partition("'")[0] in _BESIDE


def _without_remark(text: str, clause: Span, *, follows: bool) -> list[Span]:
    """Return what of a clause is no remark; one that `follows` a thing's name need not tell of a deal."""
    start, end = clause
    said = text[start:end]
    phrases = ENGLISH.phrases(said)
    refused = {refusal.span for refusal in phrases.refused if not _refuses_nothing(said, refusal)}
    if refused:
        return [clause]
    spans = sorted(set(phrases.spans).difference(refusal.span for refusal in phrases.refused))
    rest = _outside(said, spans)
    texts = _WORD.findall(rest)
    is_remark = _is_remark(texts, rest, follows=follows) or (bool(spans) and all(map(_is_beside, texts)))
    if len(texts) < _FEWEST or not is_remark:
        return [clause]
    kept = [(start + first, start + last) for first, last in spans]
    says = ENGLISH.phrases(" , ".join(text[slice(*span)] for span in kept))
    return kept if _meaning(says) == _meaning(phrases) else [clause]


def _is_remark(texts: list[str], said: str, *, follows: bool) -> bool:
    """Tell whether words are of a deal alone, some of which tell of one, or a sentence about people."""
    if any(first in _ARTICLES and second in _VERBS for first, second in pairwise(texts)):
        return False  # "i need a saw"
    tells = not _TELLS.isdisjoint(texts) or not (_RETURNS.isdisjoint(texts) or _IF_EVER.isdisjoint(texts))
    if not all(map(_is_beside, texts)):
        return (tells or follows) and _is_about_people(texts, said, tells=tells)
    if tells or not follows:
        return tells
    if len(texts) >= _FEWEST_TIMED and not _TIMES.isdisjoint(texts):
        return True
    return not lists.QUESTION_START.search(said) and (_DESCRIBES.isdisjoint(texts) or not _SHOP.isdisjoint(texts))


def _is_about_people(texts: list[str], said: str, *, tells: bool) -> bool:
    """Tell whether a sentence says who does what, wants nothing, asks of the deal at most, and names no product."""
    if not lists.REMARK.search(said) or lists.WANTED.search(said):
        return False
    if lists.QUESTION_START.search(said) and not tells:
        return False
    words = [text.partition("'")[0] for text in texts if not _is_beside(text)]
    return not any(_kind(text) or not text.isalpha() or not is_known(text) for text in words)


def _refuses_nothing(said: str, refusal: Refusal) -> bool:
    """Tell whether only words of a deal are refused, which are no name: "don't take too long" leaves nothing out."""
    texts = [text for value in refusal.values for text in _WORD.findall(said[slice(*value)])]
    return all(_is_beside(text) and FACETS[text] not in _NAMED for text in texts)


def _outside(said: str, spans: Sequence[Span]) -> str:
    for first, last in reversed(spans):
        said = f"{said[:first]} {said[last:]}"
    return said


def _meaning(phrases: Phrases) -> tuple[object, ...]:
    return (
        phrases.price_min,
        phrases.price_max,
        phrases.currency,
        phrases.rating_min,
        phrases.sort,
        phrases.offers,
        phrases.lifted,
    )
