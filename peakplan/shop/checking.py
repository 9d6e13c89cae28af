"""`peakplan shop check`: does a mapping fit the planner's vocabulary and the catalogue? What fits nothing is named."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from peakplan_client.mapping import CatalogueMapping, Value

from peakplan.shop.inducing import KIND_FIELD
from peakplan.shop.merging import BadRow
from peakplan.shop.products import flat, paths_of
from peakplan.shop.roles import READ, FieldProfile, Profiles
from peakplan.shop.sources import rows
from peakplan.shop.texts import LISTED, is_amount, notation_of, plain
from service.planner.vocabulary import Vocabulary

_MOST_VALUES: Final = 200_000  # distinct ones of a field
_SHOWN: Final = 5
_UNMAPPED: Final = 0.01  # of a field's products those with a value: less is not worth a name


def _holds_numbers(one: FieldProfile) -> bool:
    seen = list(one.values)[:READ]
    return sum(is_amount(text.split(LISTED)[0]) for text in seen) >= 0.9 * len(seen)


def _values(one: FieldProfile, *, is_path: bool, facet: str = "") -> Counter[str]:
    """Return the values of a field, as the learner takes several out of one cell."""
    notation = notation_of(one.values, is_path=is_path, facet=facet)
    found: Counter[str] = Counter()
    for text, count in one.values.items():
        parts = [leaf for _, leaf in paths_of(text, notation)] if is_path else notation.parts(text)
        found.update(dict.fromkeys(map(_text, parts), count))
    return found


def misfits(mapping: CatalogueMapping, vocabulary: Vocabulary, source: Path, table: str | None = None) -> list[str]:
    """Return one sentence for everything that fits nothing, none where all does. Raises SourceError."""
    fields: dict[str, FieldProfile] = defaultdict(lambda: FieldProfile(most=_MOST_VALUES))
    for found in rows(source, table=table):
        if not isinstance(found, BadRow):
            for name, value in flat(found[1]):
                fields[name].add(value)
    return [*_of_vocabulary(mapping, vocabulary), *_of_fields(mapping, fields), *_of_values(mapping, fields)]


def _of_vocabulary(mapping: CatalogueMapping, vocabulary: Vocabulary) -> Iterator[str]:
    for facet in mapping.facets:
        if facet not in vocabulary.facets:
            yield f"facets.{facet}: no plan has this facet, only {', '.join(vocabulary.facets)}"
    for vertical in mapping.vertical.values if mapping.vertical else ():
        if vertical not in vocabulary.verticals:
            yield f"vertical.values.{vertical}: no plan has this vertical, only {', '.join(vocabulary.verticals)}"


def _of_fields(mapping: CatalogueMapping, fields: Profiles) -> Iterator[str]:
    numeric = {
        f"{name}.field": one.field for name, one in (("price", mapping.price), ("rating", mapping.rating)) if one
    }
    numeric |= {f"offers.{name}.field": offer.field for name, offer in mapping.offers.items() if offer.min is not None}
    others = {f"text.{name}": name for name in mapping.text}
    others |= {f"facets.{name}.field": facet.field for name, facet in mapping.facets.items() if facet.field}
    others |= {"vertical.field": mapping.vertical.field} if mapping.vertical else {}
    others |= {f"sort.{name}.field": sort.field for name, sort in mapping.sort.items() if sort.field}
    others |= {f"offers.{name}.field": offer.field for name, offer in mapping.offers.items() if offer.min is None}
    for key, name in (numeric | others).items():
        if name and name not in fields and name != KIND_FIELD:  # which is told by titles
            yield f"{key}: no product has the field {name}; there are {', '.join(sorted(fields))}"
    for key, name in numeric.items():
        if name in fields and not _holds_numbers(fields[name]):
            yield f"{key}: most of what {name} holds is no number"


def _of_values(mapping: CatalogueMapping, fields: Profiles) -> Iterator[str]:
    for facet, each in mapping.facets.items():
        if each.field and each.field in fields and each.values is not None:
            there = _values(fields[each.field], is_path=facet == "type", facet=facet)
            yield from _absent(f"facets.{facet}.values", each.values, there)
            known = {_text(value) for value in each.values}
            left = [value for value, _ in there.most_common() if value not in known]
            left = [value for value in left if there[value] >= _UNMAPPED * fields[each.field].filled]
            if left:
                yield f"facets.{facet}.values: products have {_listed(left)}, and no name leads there"
    if mapping.vertical and mapping.vertical.field in fields:
        for vertical, values in mapping.vertical.values.items():
            there = _values(fields[mapping.vertical.field], is_path=True)
            yield from _absent(f"vertical.values.{vertical}", values, there)
    for offer, wanted in mapping.offers.items():
        if wanted.field in fields and wanted.values is not None:
            there = _values(fields[wanted.field], is_path=False)
            yield from _absent(f"offers.{offer}.values", wanted.values, there)


def _absent(key: str, values: Iterable[Value], there: Counter[str]) -> Iterator[str]:
    absent = [str(value) for value in values if _text(value) not in there]
    if absent:
        yield f"{key}: no product has {_listed(absent)}"


def _text(value: Any) -> str:
    return plain(value).casefold()


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(islice(values, _SHOWN)) + more
