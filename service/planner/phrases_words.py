"""A question as lower-case tokens, and the closed phrases of `phrases.txt` as tries over them.

It finds phrases; phrases_prices.py, phrases_refused.py and phrases.py interpret them.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

PHRASES_PATH = Path(__file__).with_name("phrases.txt")
# Letters and digits, with what stands inside a number ("1,200.50") or a word ("men's"); other marks are tokens each.
_TOKEN = re.compile(r"[^\W_]+(?:(?:(?<=\d)[.,](?=\d)|['’](?=[^\W\d_]))[^\W_]+)*|[^\w\s]|_")
_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(?:\.\d{1,2})?")
BREAKS: Final = frozenset(",;:.!?()[]|")


class Words:
    """The tokens of a text: `texts` in lower case, and their positions [starts[i], ends[i]).

    Positions are the same in `source` and `lower`, which agree character by character.
    """

    __slots__ = ("ends", "lower", "source", "starts", "texts")

    def __init__(self, source: str) -> None:
        self.source = source
        lower = source.lower()
        if len(lower) != len(source):  # "İ" becomes two characters, and places would shift
            lower = "".join(character.lower() if len(character.lower()) == 1 else character for character in source)
        self.lower = lower.replace("’", "'")
        found = list(_TOKEN.finditer(self.lower))
        self.texts = [match.group() for match in found]
        self.starts = [match.start() for match in found]
        self.ends = [match.end() for match in found]

    def at(self, index: int) -> str:
        """Return the token at an index, empty outside the text."""
        return self.texts[index] if 0 <= index < len(self.texts) else ""

    def touches(self, index: int) -> bool:
        """Tell whether this token and the next one are adjacent."""
        return index + 1 < len(self.texts) and self.ends[index] == self.starts[index + 1]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return the position of tokens [first, end) in the source; (0, 0) for no tokens."""
        return (self.starts[first], self.ends[end - 1]) if end > first else (0, 0)


def is_number(text: str) -> bool:
    """Tell whether a token consists of digits only."""
    return text[:1].isdigit() and _NUMBER.fullmatch(text) is not None


Node = dict[str, object]  # by the next word; under the empty word the label of the phrase that ends here


class Trie:
    """Phrases with labels, matched word by word; a hyphen between two words of the text counts as a space."""

    def __init__(self, phrases: dict[str, str], *, backwards: bool = False) -> None:
        self._root: dict[str, Node] = {}
        self._step = -1 if backwards else 1
        for phrase, label in phrases.items():
            node: Node = self._root  # type: ignore[assignment]
            for word in reversed(phrase.split()) if backwards else phrase.split():
                node = node.setdefault(word, {})  # type: ignore[assignment]
            node[""] = label

    def __contains__(self, word: str) -> bool:
        """Tell whether some phrase begins (backwards: ends) with the word."""
        return word in self._root or (is_number(word) and "#" in self._root)

    def match(self, words: Words, start: int, stop: int | None = None) -> tuple[int, str] | None:
        """Return (number of tokens, label) of the longest phrase that begins (backwards: ends) at a token.

        Tokens from `stop` on belong to no phrase.
        """
        if not 0 <= start < len(words.texts):
            return None
        stop = len(words.texts) if stop is None else stop
        text = words.texts[start]
        found = self._walk(words, start, stop, self._root[text]) if text in self._root else None
        if found is None and "#" in self._root and is_number(text):
            found = self._walk(words, start, stop, self._root["#"])
        return found

    def _walk(self, words: Words, start: int, stop: int, node: Node) -> tuple[int, str] | None:
        texts, step, at = words.texts, self._step, start + self._step
        found = (1, str(node[""])) if "" in node else None
        while 0 <= at < stop:
            text = texts[at]
            below = node.get(text)
            if below is None and is_number(text):
                below = node.get("#")
            at += step
            if below is None:
                if text == "-":
                    continue
                break
            node = below  # type: ignore[assignment]
            if "" in node:
                found = (abs(at - start), str(node[""]))
        return found


def lines_of_sections(path: Path) -> dict[str, list[str]]:
    """Read the lines below each [section]; "# " begins a comment. Raises ValueError that names the line."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("# "):
            if lines is None:
                raise ValueError(f"{path.name}:{number}: a line before the first section")
            lines.append(line)
    return found


@cache
def sections() -> dict[str, tuple[str, ...]]:
    """Return the phrases of each section of `phrases.txt`, in order."""
    return {name: tuple(_phrases(name, lines)) for name, lines in lines_of_sections(PHRASES_PATH).items()}


def _phrases(name: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        if name.startswith("word."):  # single words, parted by spaces; other sections list phrases, parted by commas
            yield from line.replace(", ", " ").split()
        else:
            yield from (" ".join(_TOKEN.findall(part.lower())) for part in line.split(",") if part.strip())


def word_set(name: str) -> frozenset[str]:
    """Return the words of a section [word.name]."""
    return frozenset(sections()[f"word.{name}"])


def trie(*names: str, backwards: bool = False) -> Trie:
    """Build a trie of sections; a phrase's label is its section, the later one if it is in two."""
    return Trie({phrase: name for name in names for phrase in sections()[name]}, backwards=backwards)
