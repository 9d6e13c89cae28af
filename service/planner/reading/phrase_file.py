"""A language's closed phrases and words as data: a file of sections, its phrases as tries over tokens.

It finds phrases; what they mean is for the modules of the language's folder to say.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from service.planner.question import TOKEN
from service.planner.reading.tokens import Words, is_number

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
        self.starts: Final = frozenset(self._root)  # words with which a phrase begins (backwards: ends); "#": a number

    def match(self, words: Words, start: int, stop: int | None = None) -> tuple[int, str] | None:
        """Return (number of tokens, label) of the longest phrase that begins (backwards: ends) at a token.

        Tokens from `stop` on belong to no phrase.
        """
        if not 0 <= start < len(words.texts):
            return None
        stop = len(words.texts) if stop is None else stop
        text = words.texts[start]
        found = self._walk(words, start, stop, self._root[text]) if text in self._root else None
        if found is None and text[0].isdigit() and "#" in self._root and is_number(text):
            found = self._walk(words, start, stop, self._root["#"])
        return found

    def _walk(self, words: Words, start: int, stop: int, node: Node) -> tuple[int, str] | None:
        texts, step, at = words.texts, self._step, start + self._step
        found = (1, str(node[""])) if "" in node else None
        while 0 <= at < stop:
            text = texts[at]
            below = node.get(text)
            if below is None and "#" in node and text[0].isdigit() and is_number(text):
                below = node["#"]
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


class PhraseFile:
    """The sections of a `phrases.txt`, read on first use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def sections(self) -> dict[str, tuple[str, ...]]:
        """The phrases of each section, in order. Raises OSError, ValueError."""
        return {name: tuple(_phrases(name, lines)) for name, lines in lines_of_sections(self._path).items()}

    def words(self, name: str) -> frozenset[str]:
        """Return the words of a section [word.name]."""
        return frozenset(self.sections[f"word.{name}"])

    def table(self, name: str) -> dict[str, str]:
        """Return the entries `key=value` of a section [word.name]."""
        return dict(entry.split("=") for entry in self.sections[f"word.{name}"])

    def trie(self, *names: str, backwards: bool = False) -> Trie:
        """Build a trie of sections; a phrase's label is its section, the later one if it is in two."""
        return Trie({phrase: name for name in names for phrase in self.sections[name]}, backwards=backwards)


def _phrases(name: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        if name.startswith("word."):  # single words, parted by spaces; other sections list phrases, parted by commas
            yield from line.replace(", ", " ").split()
        else:
            yield from (" ".join(TOKEN.findall(part.lower())) for part in line.split(",") if part.strip())
