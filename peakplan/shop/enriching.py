"""What a catalogue lacks or says in another way, as rows of enriched.jsonl: never written into the shop's own data."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from peakplan.shop.fields import facet_of_field
from peakplan.shop.inducing import KIND_FIELD
from peakplan.shop.lexicon import Entry, Learnt
from peakplan.shop.products import Path, Product
from peakplan.shop.roles import Roles
from peakplan.shop.texts import key, measure, singular, tokens

_LONGEST: Final = 4  # words of a value that a title is searched for
_SAME_WORDS: Final = 0.97  # how sure another way of writing is
_SLIP: Final = 0.85  # how sure a misspelling is


class Enricher:
    """Finds what a product's own fields leave out. Every row has `id`, `field`, `value`, `confidence` and `from`."""

    def __init__(self, learnt: Learnt, roles: Roles, guess: Callable[[Product], tuple[Path, float] | None]) -> None:
        self._learnt = learnt
        self._roles = roles
        self._guess = guess
        self._in_titles: dict[str, dict[str, Entry]] = defaultdict(dict)
        for entry in learnt.entries:
            if entry.field and entry.field != "title" and entry.facet != "type":
                for spelling in entry.spellings:
                    self._in_titles[entry.field].setdefault(key(spelling), entry)

    def rows(self, one: Product) -> Iterator[dict[str, Any]]:
        """Yield values that are missing and can be told, and values that most products write differently."""
        keys = [singular(word) for word in tokens(one.title)]
        if self._roles.brand:
            yield from self._brand(one, keys)
        if one.currency and not self._roles.currency and len(self._learnt.counts.currencies) > 1:
            yield _row(one, "price_currency", one.currency, 1.0, "price")
        for field in self._roles.attributes:
            yield from self._attribute(one, field, keys)
        if self._roles.kinds and one.path:
            yield _row(one, KIND_FIELD, one.leaf, 1.0, "title")
        elif self._roles.categories and not one.path and (guessed := self._guess(one)):
            path, confidence = guessed
            yield _row(one, self._roles.categories[-1], " > ".join(path), confidence, "title")

    def _brand(self, one: Product, keys: list[str]) -> Iterator[dict[str, Any]]:
        assert self._roles.brand is not None
        if one.brand:
            yield from self._other_way(one, self._roles.brand, one.brand, self._learnt.brand_of.get(one.brand))
        elif found := self._said("brand", keys):
            yield _row(one, self._roles.brand, found.name, self._confidence("brand", found), "title")

    def _attribute(self, one: Product, field: str, keys: list[str]) -> Iterator[dict[str, Any]]:
        values = one.attributes.get(field)
        if values:
            means = self._learnt.value_of.get(field, {})
            for value in values:
                yield from self._other_way(one, field, value, means.get(value))
        elif facet_of_field(field) not in ("size", "count", "time") and (found := self._said(field, keys)):
            yield _row(one, field, found.name, self._confidence(field, found), "title")

    def _other_way(self, one: Product, field: str, value: str, right: str | None) -> Iterator[dict[str, Any]]:
        if right is None or right == value:
            return
        same = key(value).replace(" ", "") == key(right).replace(" ", "")
        how = "spelling" if same or not measure(value) else "unit"
        yield _row(one, field, right, _SAME_WORDS if same or how == "unit" else _SLIP, how) | {"was": value}

    def _said(self, field: str, keys: list[str]) -> Entry | None:
        """Return the longest sure value of a field that a title says, the first of those."""
        known = self._in_titles.get(field, {})
        for length in range(min(_LONGEST, len(keys)), 0, -1):
            for first in range(len(keys) - length + 1):
                entry = known.get(" ".join(keys[first : first + length]))
                if entry is not None and entry.sure:
                    return entry
        return None

    def _confidence(self, field: str, entry: Entry) -> float:
        """Return of the titles that say a value and of products that have the field the share that agree."""
        agree = self._learnt.counts.named[field, key(entry.name)]
        return round((agree + 1) / (agree + 2), 3)


def _row(one: Product, field: str, value: str, confidence: float, how: str) -> dict[str, Any]:
    return {"id": one.id, "line": one.line, "field": field, "value": value, "confidence": confidence, "from": how}
