"""What a sample of a catalogue's rows holds in each field."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from peakplan.shop.notation import Notation, cell
from peakplan.shop.texts import amounts, is_number, tokens

URL: Final = re.compile(r"^(?:https?:)?//|^/[\w/.-]+\.\w+$|^www\.")
MOST_DISTINCT: Final = 20_000
READ: Final = 200  # distinct values that tell whether a field holds money
SAME_ID: Final = 0.9  # distinct ids, of rows
_DETERMINED: Final = 0.95  # of a field's rows whose value tells the value of another
_FEW: Final = 0.2  # distinct values of an attribute or a category, of rows
_LONGEST: Final = 60  # characters of a price
_SIGNED: Final = re.compile(r"[^\w\s.,'’-]|(?<![^\W\d_])[^\W\d_]{2,4}(?![^\W\d_])")  # "R0" is a code


@dataclass
class FieldProfile:
    """What a sample's rows hold in one field."""

    filled: int = 0
    numbers: int = 0
    urls: int = 0
    words: int = 0
    values: Counter[str] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        self.filled += 1
        text = cell(value)
        self.numbers += isinstance(value, bool) or is_number(text)
        self.urls += bool(URL.match(text))
        self.words += len(text.split())
        if len(self.values) < MOST_DISTINCT or text in self.values:
            self.values[text] += 1

    @property
    def is_text(self) -> bool:
        return self.numbers < 0.5 * self.filled and self.urls < 0.5 * self.filled

    def is_closed(self, notation: Notation) -> bool:
        """Tell whether its values repeat, as those of a category or an attribute do."""
        parts = {part for value in self.values for part in notation.parts(value)}
        is_each_own = self.filled >= 10 and len(self.values) > SAME_ID * self.filled and len(parts) > 0.5 * self.filled
        return len(parts) <= max(30, _FEW * self.filled) and self.words <= 12 * self.filled and not is_each_own

    @cached_property
    def money(self) -> tuple[float, float]:
        """The shares of values that say an amount, and a currency with it."""
        told = [amounts(text) for text in list(self.values)[:READ] if len(text) <= _LONGEST and not URL.match(text)]
        read = [each for each in told if each]
        seen = min(READ, len(self.values)) or 1
        signed = sum(bool(_SIGNED.search(text)) for text in list(self.values)[:READ])
        return len(read) / seen, min(signed, sum(each[0].currency is not None for each in read)) / seen


Profiles = Mapping[str, FieldProfile]


def tells(name: str, other: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sample:
        if name in row and other in row:
            together[str(row[name])][str(row[other])] += 1
    both = sum(sum(counts.values()) for counts in together.values())
    return sum(counts.most_common(1)[0][1] for counts in together.values()) >= _DETERMINED * both > 0


def is_said(name: str, title: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether titles often say the field's values, as they do what a thing is."""
    told = [row for row in sample if name in row and title in row]
    said = sum(not set(tokens(str(row[name]))).isdisjoint(tokens(str(row[title]))) for row in told)
    return said > 0.15 * len(told)
