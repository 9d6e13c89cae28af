"""A shop's lexicon as the service reads it: names with their facets, and words that are right as they stand.

Tries (marisa-trie): a million products cost a few megabytes. They are read and not mapped, because a process that has
mapped a file dies where somebody shortens it. A look-up takes about a microsecond.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from service.planner.shop.kinds import EVIDENCE_FILE, Kinds

NAMES_FILE: Final = "names.marisa"
WORDS_FILE: Final = "words.marisa"
SOUNDS_FILE: Final = "sounds.marisa"
FACETS: Final = (
    "type", "brand", "line", "model", "color", "material", "size", "count", "audience", "shape", "condition",
    "occasion", "theme", "origin", "time", "feature",
)  # fmt: skip
_NAME: Final = "<BBI"  # the number of its facet, whether it is sure, how many products
_WORD: Final = "<I"
_PARTING: Final = "\x1f"  # between a sound and a word
MOST_WORDS: Final = 5  # of a name that a question is searched for
_MOST_SOUNDING: Final = 40  # words of one sound


@cache
def _tries() -> Any:
    """Return the library, which only a service with a shop folder needs."""
    return import_module("marisa_trie")


class Name(NamedTuple):
    """What a name of the shop is; `sure` where a question that says it most likely means that."""

    facet: str
    sure: bool
    products: int


class Lexicon:
    """The names and words of one shop folder. Never changes; look-ups are in lower case."""

    def __init__(self, files: Mapping[str, bytes], digest: str = "") -> None:
        """Take the files of a folder, which has this digest. Raises KeyError, RuntimeError where they are damaged."""
        self.digest = digest
        self._names = _tries().RecordTrie(_NAME).frombytes(files[NAMES_FILE])
        self._words = _tries().RecordTrie(_WORD).frombytes(files[WORDS_FILE])
        self._sounds = _tries().Trie().frombytes(files[SOUNDS_FILE])
        # A folder that was learnt before there were kinds, or of a catalogue without categories, has none.
        self.kinds = Kinds(files) if EVIDENCE_FILE in files else None

    def name(self, text: str) -> Name | None:
        """Return what a text is in this shop, as a whole; None where it is no name."""
        found = self._names.get(text)
        if not found:
            return None
        facet, sure, count = max(found, key=lambda each: (each[1], each[2]))
        return Name(FACETS[facet], bool(sure), count)

    def longest(self, texts: Sequence[str], first: int) -> tuple[int, Name] | None:
        """Return end and meaning of the longest sure name that starts at a word of a question."""
        for end in range(min(len(texts), first + MOST_WORDS), first, -1):
            name = self.name(" ".join(texts[first:end]))
            if name is not None and name.sure:
                return end, name
        return None

    def count(self, word: str) -> int:
        """Return how many products have a word that is right as it stands; 0 where it is no word of the shop."""
        found = self._words.get(word)
        return int(found[0][0]) if found else 0

    def __contains__(self, word: object) -> bool:
        return word in self._words

    def sounding(self, sound: str) -> list[str]:
        """Return words of the shop that sound so."""
        found = self._sounds.keys(f"{sound}{_PARTING}")[:_MOST_SOUNDING]
        return [text.rpartition(_PARTING)[2] for text in found]


def write_lexicon(
    folder: Path, entries: Iterable[Mapping[str, Any]], words: Mapping[str, int], sounds: Mapping[str, str]
) -> None:
    """Write the files that `Lexicon` maps, of rows as lexicon.jsonl has them; `sounds` are those of the words."""
    facets = {facet: number for number, facet in enumerate(FACETS)}
    names: dict[str, tuple[int, int, int]] = {}
    for entry in entries:
        value = (facets[entry["facet"]], int(entry["sure"]), min(int(entry["count"]), 2**32 - 1))
        for spelling in entry["spellings"]:
            if spelling not in names or value[1:] > names[spelling][1:]:
                names[spelling] = value
    _tries().RecordTrie(_NAME, names.items()).save(str(folder / NAMES_FILE))
    _tries().RecordTrie(_WORD, ((word, (count,)) for word, count in words.items())).save(str(folder / WORDS_FILE))
    _tries().Trie(f"{sound}{_PARTING}{word}" for word, sound in sounds.items()).save(str(folder / SOUNDS_FILE))
