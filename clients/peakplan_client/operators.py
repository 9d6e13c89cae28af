"""What shoppers write as in a search engine's own language: -nike, !leather, NOT nike, "exact words"."""

import re
from typing import NamedTuple, TypeVar

from peakplan_client.mapping import normal
from peakplan_client.plan import Part

_REFUSED = re.compile(r"""(?:(?<=\s)|^)(?:[-!]|NOT\s+)("[^"]+"|[^\W\d_][\w'’-]*)""")
_Part = TypeVar("_Part", bound=Part)
_EXACT = re.compile(r'(?<!\w)"([^"\s][^"]*)"(?!\w)')


class Operators(NamedTuple):
    """A question without its operators, the words that it refuses, and the phrases that it quotes."""

    question: str
    refused: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


def read_operators(question: str) -> Operators:
    """Return what the operators of a question mean. A dash between words, or before a number, is none."""
    refused = [match.strip('"') for match in _REFUSED.findall(question)]
    rest = _REFUSED.sub(" ", question) if refused else question
    return Operators(rest, tuple(dict.fromkeys(refused)), tuple(dict.fromkeys(_EXACT.findall(rest))))


def without_refused(part: _Part, refused: tuple[str, ...]) -> _Part:
    """Return a plan, or a part of one, that wants nothing of what the question refuses, and excludes it."""
    if not refused:
        return part
    names = {normal(word) for word in refused}
    facets = {facet: [value for value in values if normal(value) not in names] for facet, values in part.facets.items()}
    lone = re.compile("|".join(rf"(?<!\w)[-!]?{re.escape(word)}(?!\w)" for word in refused), re.I)
    queries = [" ".join(lone.sub(" ", query).split()) for query in part.queries]
    known = {normal(value) for values in part.exclude.values() for value in values}
    more = [word for word in refused if normal(word) not in known]
    exclude = {**part.exclude, **({"feature": [*part.exclude.get("feature", []), *more]} if more else {})}
    return part.model_copy(
        update={"facets": {facet: values for facet, values in facets.items() if values}, "exclude": exclude,
                "queries": [query for query in queries if query] or part.queries}
    )  # fmt: skip
