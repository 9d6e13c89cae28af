"""Write the word list of the service's spelling: `python -m training.words` (`--check`: is it up to date?).

Words of products come from our own products and queries, with their counts; ordinary English words, which are never
corrected, from the base model's tokenizer, where each frequent word is a token, and from `_ELSEWHERE`.
"""

import argparse
import json
import re
import sys
import textwrap
from collections import Counter, defaultdict
from pathlib import Path

from service.planner.spelling import WORDS_PATH, distance, edits
from training.data.written import labelled_queries, product_names

_DATA = Path(__file__).parent / "data"
_WORD = re.compile(r"[a-z]{2,20}")
_LEAST_COUNT = 2  # of a word that a correction may give
_LEAST_LETTERS = 4
_MOST_SLIPS = 3  # a word that stands more often is no typo
_NEVER_HEADS = ("brand", "color", "material", "audience", "size")
_TIMES = 8
_NEAR = 0.8
# Words of British, Indian and Australian English that American products lack, and that are no misspellings. Ours.
_ELSEWHERE = """
    allotment almirah atta aubergine bauble bindi budgie cattery chook cistern clingfilm courgette dustbin esky fizzy
    geyser hairgrip hosepipe kadhai kurti papad pressie prezzie rawlplug secateurs shinpads snags stubbie telly tinfoil
    trackies tumble welly
"""
_HEADER = "# Written by `python -m training.words`: words of products (count, facet, vertical), other words, slips."


class _Seen:
    """How often and as what each word stands in our products and queries."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.facets: dict[str, Counter[str]] = defaultdict(Counter)
        self.heads: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, words: list[str], facet: str, vertical: str | None) -> None:
        """Count the words of a value; the last word of a type is what names the thing."""
        self.counts.update(words)
        for word in words:
            self.facets[word][facet if facet != "type" or word == words[-1] else "-"] += 1
        if facet == "type" and vertical and words:
            self.heads[words[-1]][vertical] += 1

    def is_slip(self, word: str) -> bool:
        """Tell whether a rare word that is no name is one edit away from a frequent one: our queries have typos too."""
        is_name = self.facets[word].keys() & {"brand", "line", "model", "theme"}
        if self.counts[word] > _MOST_SLIPS or is_name:
            return False
        return any(
            self.counts[edit] > _TIMES * self.counts[word] and distance(word, edit) < _NEAR for edit in edits(word)
        )

    def line(self, word: str) -> str:
        """Return the word's line: its count, the facet that it mostly names, and a vertical where it names a thing."""
        facet, count = (self.facets[word].most_common(1) or [("-", 0)])[0]
        facet = facet if 2 * count > self.facets[word].total() else "-"
        heads = self.heads[word].total()
        is_head = heads > _MOST_SLIPS or 4 * heads >= max(1, self.counts[word])
        facet = "type" if is_head and facet not in _NEVER_HEADS else facet
        vertical, count = (self.heads[word].most_common(1) or [("-", 0)])[0]
        vertical = vertical if 2 * count > self.heads[word].total() else "-"
        return f"{word} {self.counts[word]} {facet} {vertical}"


def word_list(tokenizer: Path) -> str:
    """Return the text of the list. Raises OSError, ValueError."""
    seen = _seen()
    products = sorted(word for word, count in seen.counts.items() if count >= _LEAST_COUNT)
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    english = {token[1:].lower() for token in vocabulary if token[0] == "Ġ" and _WORD.fullmatch(token[1:].lower())}
    slips = {wrong: right for wrong, right in misspellings() if wrong not in english}
    english |= set(_ELSEWHERE.split())
    doubtful = {word for word in seen.counts if word not in english and seen.is_slip(word)} | set(slips)
    products = [word for word in products if word not in doubtful]
    known = {word for word in english | set(seen.counts) if len(word) >= _LEAST_LETTERS}
    known -= {*products, *doubtful, *(word + ending for word in known for ending in ("s", "ly"))}
    return "\n".join(
        (
            _HEADER, "[products]", *map(seen.line, products),
            "[known]", *textwrap.wrap(" ".join(sorted(known)), 118),
            "[slips]", *sorted(f"{wrong} {right}" for wrong, right in slips.items()), "",
        )
    )  # fmt: skip


def misspellings() -> list[tuple[str, str]]:
    """Return words as shoppers misspell them, with what they mean."""
    return [(wrong, right) for wrong, right in (line.split(maxsplit=1) for line in _lines("spelling.txt"))]


def _lines(name: str) -> list[str]:
    """Return the lines of a list of ours that are neither empty nor comments."""
    lines = (_DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _seen() -> _Seen:
    seen = _Seen()
    for name, vertical in product_names():
        seen.add(_WORD.findall(name.lower()), "type", vertical)
    for query in labelled_queries():
        words = query.text.words
        named = {index for span in query.text.spans for index in range(span.first, span.last + 1)}
        for span in query.text.spans:
            value = " ".join(words[span.first : span.last + 1])
            seen.add(_WORD.findall(value), span.facet, query.vertical)
        others = " ".join(text for index, text in enumerate(words) if index not in named)
        seen.counts.update(_WORD.findall(others))
    facet = ""
    for line in _lines("values.txt"):
        if line.startswith("["):
            facet = line.strip("[]").split()[1]
        else:
            for value in line.split(", "):
                seen.add(2 * _WORD.findall(value), facet, None)
    return seen


def main() -> None:
    """Write or check the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json of the base model")
    parser.add_argument("--check", action="store_true", help="fail if the list is not what would be written")
    options = parser.parse_args()
    text = word_list(options.tokenizer)
    if not options.check:
        WORDS_PATH.write_text(text, encoding="ascii")
    elif WORDS_PATH.read_text(encoding="ascii") != text:
        sys.exit(f"{WORDS_PATH.name} is stale: run `python -m training.words {options.tokenizer}`")


if __name__ == "__main__":
    main()
