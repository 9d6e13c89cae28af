"""What shoppers write as in a search engine's own language: -nike, !leather, NOT nike, "exact words"."""

import re
from typing import Any, NamedTuple, TypeVar

from peakplan_client.mapping import normal

_REFUSED = re.compile(r"""(?:(?<=\s)|^)(?:[-!]|NOT\s+)("[^"]+"|[^\W\d_][\w'’-]*)""")
_Part = TypeVar("_Part")  # a plan or a part of one, the service's or the client's
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


def without_refused(plan: _Part, refused: tuple[str, ...]) -> _Part:
    """Return a plan, or a part of one, that wants nothing of what the question refuses, and excludes it."""
    if not refused:
        return plan
    part: Any = plan
    names = {normal(word) for word in refused}
    lone = re.compile("|".join(rf"(?<!\w)[-!]?{re.escape(word)}(?!\w)" for word in refused), re.I)
    facets = {facet: [value for value in values if normal(value) not in names] for facet, values in part.facets.items()}
    queries = [" ".join(lone.sub(" ", query).split()) for query in part.queries]
    known = {normal(value) for values in part.exclude.values() for value in values}
    more = [word for word in refused if normal(word) not in known]
    exclude = {**part.exclude, **({"feature": [*part.exclude.get("feature", []), *more]} if more else {})}
    found: _Part = part.model_copy(
        update={"facets": {facet: values for facet, values in facets.items() if values}, "exclude": exclude,
                "queries": list(dict.fromkeys(query for query in queries if query)) or part.queries}
    )  # fmt: skip
    return found


def without_operators(plan: _Part, question: str) -> _Part:
    """Return the plan, and its parts, with exclusions for the question's search operators."""
    refused = read_operators(question).refused
    if not refused:
        return plan

    def cleaned(part: Any) -> Any:
        """Return a part whose wanted values end before a refused word: "running shoes -nike" is running shoes."""
        facets = {facet: [kept for value in values if (kept := " ".join(_REFUSED.sub(" ", value).split()))]
                  for facet, values in part.facets.items()}  # fmt: skip
        return without_refused(part.model_copy(update={"facets": facets}), refused)

    whole: Any = plan
    found: _Part = cleaned(whole).model_copy(update={"parts": [cleaned(part) for part in whole.parts]})
    return found
