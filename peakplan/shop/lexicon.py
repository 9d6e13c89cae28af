"""The lexicon of a shop: brands, product lines, kinds and values, with how each is spelt and how often it is there."""

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from peakplan.shop.counting import Counts, Path, by_first
from peakplan.shop.fields import NAMED, facet_of_field, words_of_code
from peakplan.shop.texts import key, measure, tokens
from service.planner.spelling import distance, edits, is_known
from service.planner.spelling import words as word_list
from service.planner.text import KIND_OF

_SURE: Final = 0.5  # of the titles that say a word those where it is what the lexicon takes it for
_FEWEST: Final = 3  # titles that say a word that is none of the lexicon's
_OF_A_BRAND: Final = 0.9  # of a line's titles those of its brand
_LINE_PRODUCTS: Final = 5
_SLIP: Final = 50  # times rarer than a word one edit away: a slip in a title, not a word of the shop
_MOST_CATEGORIES: Final = 3
_NO_BRANDS: Final = ("n a", "unknown", "generic", "none", "no brand", "unbranded")


@dataclass(slots=True)
class Entry:
    """A name in the lexicon; `text` in lower case. `sure`: where a question says it, this is most likely meant."""

    text: str
    facet: str
    name: str
    count: int
    sure: bool
    spellings: list[str] = dataclasses.field(default_factory=list)
    unit: str | None = None
    field: str | None = None
    categories: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return it as lexicon.jsonl has it."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, [])}


def category_id(path: Path) -> str:
    """Return the id of a category: the same for the same path, whatever else the shop sells."""
    return hashlib.blake2s("\x1f".join(path).encode(), digest_size=6).hexdigest()


class Learnt:
    """What the counts of a catalogue say."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    @cached_property
    def brand_of(self) -> dict[str, str]:
        """The right name of each brand as written."""
        return canonical(self.counts.brands)

    @cached_property
    def value_of(self) -> dict[str, dict[str, str]]:
        """By field: the value that each value as written means."""
        return {name: canonical(values) for name, values in by_first(self.counts.values).items()}

    @cached_property
    def entries(self) -> list[Entry]:
        """The lexicon; of two names with one text the surer and more frequent first."""
        found = [*self._brands(), *self._values(), *self._kinds()]
        taken = {entry.text for entry in found}
        found += [entry for entry in self._lines() if entry.text not in taken]
        return sorted(found, key=lambda entry: (entry.text, not entry.sure, -entry.count))

    @cached_property
    def words(self) -> dict[str, int]:
        """Words that are right as the shop writes them, with how many titles or products have each."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            for spelling in entry.spellings:
                for word in spelling.split():
                    found[word] = max(found[word], entry.count)
        frequent = {word: count for word, count in self.counts.words.items() if count >= _FEWEST}
        for word, count in frequent.items():
            if word not in found and word.isalpha() and not self._is_slip(word, count, frequent):
                found[word] = count
        return {word: count for word, count in found.items() if any(letter.isalpha() for letter in word)}

    def _is_slip(self, word: str, count: int, frequent: dict[str, int]) -> bool:
        if len(word) < 5 or is_known(word) or not word.isascii():
            return False
        return any(frequent.get(edit, 0) >= _SLIP * count for edit in edits(word))

    @cached_property
    def _fill(self) -> dict[str, float]:
        """The share of products that have each field."""
        filled = by_first(self.counts.filled)
        return {name: paths.total() / self.counts.products["all"] for name, paths in filled.items()}

    def _share(self, kind: str, short: str, count: int) -> float:
        """Return the share of titles naming a value whose product has that value; 1 if no title names it."""
        total: float = self.counts.phrases[short] if len(short.split()) <= 3 else 0
        if kind == "brand":  # a title that says it tells nothing of a product whose brand is not known
            total -= self.counts.unbranded[short]
        else:
            total *= self._fill[kind]
        if total <= 0:
            ordinary = " " not in short and (is_known(short) or short in KIND_OF)
            return 0.0 if ordinary and count < 20 else 1.0
        return min(1.0, self.counts.named[kind, short] / total)

    def _brands(self) -> Iterator[Entry]:
        paths = by_first(self.counts.brand_paths)
        for name, written in _grouped(self.brand_of).items():
            count = sum(self.counts.brands[one] for one in written)
            short = key(name)
            if short in _NO_BRANDS or not any(letter.isalpha() for letter in short):
                continue
            sure = self._share("brand", short, count) >= _SURE and short not in KIND_OF and len(short) > 1
            where = _places(paths[one] for one in written if one in paths)
            yield _entry("brand", name, written, count, sure, where, "brand")

    def _values(self) -> Iterator[Entry]:
        paths = by_first(self.counts.value_paths)
        for name, value_of in self.value_of.items():
            facet = facet_of_field(name)
            of_field = paths.get(name, Counter())
            where: dict[str, Counter[Path]] = defaultdict(Counter)
            for (value, path), count in of_field.items():
                where[value_of.get(value, value)][path] += count
            for value, written in _grouped(value_of).items():
                count = sum(self.counts.values[name, one] for one in written)
                short = key(value)
                if not short or (value.replace(".", "").isdigit() and facet != "size"):
                    continue
                worded = any(letter.isalpha() for letter in short) and not any(letter.isdigit() for letter in short)
                sure = worded and count >= _FEWEST and len(short) > 2 and self._share(name, short, count) >= _SURE
                one = _entry(facet, value, written, count, sure, _places([where[value]]), name)
                one.unit = value.split()[-1] if measure(value) and " " in value else None
                one.spellings = list(dict.fromkeys((*one.spellings, *words_of_code(facet, value))))
                yield one

    def _kinds(self) -> Iterator[Entry]:
        """Yield the categories by their last names, and what titles call the things in them."""
        places: dict[str, Counter[Path]] = defaultdict(Counter)
        names: dict[str, str] = {}
        for path, count in self.counts.paths.items():
            for level in (path[-1], *path[:-1]):
                places[key(level)][path] += count
                names.setdefault(key(level), level)
        for head, path in self.counts.heads:
            if head not in names and self.counts.heads[head, path] >= _FEWEST:
                places[head][path] += self.counts.heads[head, path]
        for short, where in places.items():
            if not short or len(short) < 3:
                continue
            name = names.get(short, short)
            count = where.total()
            known = word_list().facets.get(short, "type") if " " not in short else "type"
            sure = short not in KIND_OF and known == "type" and not any(letter.isdigit() for letter in short)
            sure = sure and (short in names or where.total() >= 0.3 * max(1, self.counts.phrases[short]))
            yield _entry("type", name, [name], count, sure, _places([where]), "category")

    def _lines(self) -> Iterator[Entry]:
        """Yield words that stand in titles of one brand alone, after it: its product lines."""
        kinds = {head for head, _ in self.counts.heads}
        by_brand: Counter[str] = Counter()
        for name, count in self.counts.brands.items():
            by_brand[key(self.brand_of[name])] += count
        for (brand, words), count in self.counts.lines.items():
            parts = words.split()
            if count < _LINE_PRODUCTS or count > 0.8 * by_brand[brand] or words in kinds or parts[-1] in kinds:
                continue
            if all(is_known(part) and part in word_list().facets for part in parts) or words in KIND_OF:
                continue
            if any(part.isdigit() or len(part) < 2 or part in KIND_OF for part in parts):
                continue
            if count >= _OF_A_BRAND * self.counts.phrases[words] and not set(parts) & set(brand.split()):
                yield Entry(words, "line", words, count, True, [words], field="title")


def _grouped(means: dict[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for written, right in means.items():
        groups[right].append(written)
    return groups


def _entry(
    facet: str, name: str, written: Sequence[str], count: int, sure: bool, where: list[tuple[str, int]], of: str
) -> Entry:
    right = [one for one in written if key(one).replace(" ", "") == key(name).replace(" ", "")]
    texts = dict.fromkeys(" ".join(tokens(one)) for one in [name, *right])
    texts |= dict.fromkeys([key(name)] if facet not in NAMED - {"type"} else [])
    spellings = [text for text in texts if text]
    return Entry(" ".join(tokens(name)), facet, name, count, sure, spellings, field=of, categories=where)


def _places(counters: Iterable[Counter[Path]]) -> list[tuple[str, int]]:
    """Return the categories that have most, with how many."""
    total: Counter[Path] = Counter()
    for counter in counters:
        total.update(counter)
    return [(category_id(path), count) for path, count in total.most_common(_MOST_CATEGORIES) if path]


def tree(counts: Counts) -> list[dict[str, Any]]:
    """Return the category tree, parents first: id, parent, name, path, and how many products are in and under each."""
    under: Counter[Path] = Counter()
    for path, count in counts.paths.items():
        for length in range(1, len(path) + 1):
            under[path[:length]] += count
    return [
        {
            "id": category_id(path),
            "parent": category_id(path[:-1]) if len(path) > 1 else None,
            "name": path[-1],
            "path": list(path),
            "products": count,
        }
        for path, count in sorted(under.items())
    ]


_RARER: Final = 8  # times rarer than the right spelling, at least
_RARER_THAN_A_WORD: Final = 2  # where the right spelling is a word, and the other is none
_LEAST_LETTERS: Final = 5
_NEAR: Final = 1.3  # as `spelling.distance` counts
_SAME: Final = 0.015  # of a size: "10 in" is "25 cm"


def canonical(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the value that each value is a variant of: itself, for one that is as it should be."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for value, count in counts.items():
        groups[_joined(value)][value] += count
    best = {short: values.most_common(1)[0][0] for short, values in groups.items()}
    totals = {short: values.total() for short, values in groups.items()}
    means = _units(best, totals)
    means |= {wrong: right for wrong, right in _slips(totals, best).items() if wrong not in means}
    return {value: best[_end(short, means)] for short, values in groups.items() for value in values}


def _joined(value: str) -> str:
    return key(value).replace(" ", "") or value


def _end(short: str, means: Mapping[str, str]) -> str:
    seen = {short}
    while short in means and means[short] not in seen:
        short = means[short]
        seen.add(short)
    return short


def _units(best: Mapping[str, str], totals: Mapping[str, int]) -> dict[str, str]:
    """Return the most frequent of the measures that say the same size in other units."""
    sizes = [(size, short) for short, value in best.items() if (size := measure(value)) is not None]
    means: dict[str, str] = {}
    group: list[tuple[tuple[str, float], str]] = []
    for one in [*sorted(sizes), (("", -1.0), "")]:
        if group and (one[0][0] != group[0][0][0] or one[0][1] > group[0][0][1] * (1 + _SAME)):
            shorts = [short for _, short in group]
            frequent = max(shorts, key=lambda short: totals[short])
            means |= {short: frequent for short in shorts if short != frequent}
            group = []
        group.append(one)
    return means


def _rarer(best: Mapping[str, str], short: str) -> int:
    is_word = short in best and all(is_known(word) for word in best[short].casefold().split())
    return _RARER_THAN_A_WORD if is_word else _RARER


def _slips(totals: Mapping[str, int], best: Mapping[str, str]) -> dict[str, str]:
    """Return the right spelling of rare values that are one edit from a frequent one."""
    means: dict[str, str] = {}
    for short, count in totals.items():
        if len(short) < _LEAST_LETTERS or any(letter.isdigit() for letter in short):
            continue
        if all(is_known(word) for word in best[short].casefold().split()):
            continue  # words that are right as they stand: "tan" is no slip of "teal"
        near = {edit for edit in edits(short) if edit != short and totals.get(edit, 0) >= _rarer(best, edit) * count}
        near = {edit for edit in near if distance(short, edit) <= _NEAR}
        if near:
            means[short] = max(near, key=lambda edit: totals[edit])
    return means
