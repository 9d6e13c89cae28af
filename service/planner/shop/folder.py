"""A shop folder, which `peakplan shop learn` wrote, and its lexicon: names with their facets, and words that are right.

A seal has a damaged folder refused by name. The lexicon is in tries (marisa-trie): a million products cost a few
megabytes. They are read and not mapped: a process that has mapped a file dies where somebody shortens it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


SEAL: Final = "shop.json"
VERSION: Final = 1
_READ: Final = (
    ".marisa",
    ".npy",
    ".json",
)  # what the service reads; a folder's other files are for people and importers
_LEARN: Final = "learn it again with `peakplan shop learn`"


class ShopFolderError(ValueError):
    """Raised for a shop folder that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class ShopFolder:
    """A shop folder that is whole; `digest` is another for every other content."""

    lexicon: Lexicon
    digest: str
    summary: dict[str, Any]
    size: int  # bytes that were read

    @classmethod
    def load(cls, folder: Path) -> "ShopFolder":
        """Read the folder's files and check them by its seal. Raises ShopFolderError.

        What was checked is what is used, whatever becomes of the files meanwhile or later.
        """
        path = folder / SEAL
        try:
            text = path.read_text(encoding="utf-8")
            seal = json.loads(text)
            version, files, summary = seal["version"], dict(seal["files"]), dict(seal["summary"])
        except OSError as error:
            raise ShopFolderError(f"{path}: {error.strerror}. {folder} is no whole shop folder: {_LEARN}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ShopFolderError(f"{path} is damaged: {_LEARN}") from error
        if version != VERSION:
            raise ShopFolderError(f"{path} is of version {version}, and this service reads {VERSION}: {_LEARN}")
        content: dict[str, bytes] = {}
        for name, digest in files.items():
            if _sealed(folder / name, content) != digest:
                raise ShopFolderError(f"{folder / name} is missing or not what was sealed: {_LEARN}")
        try:
            whole = hashlib.sha256(text.encode()).hexdigest()[:16]
            return cls(Lexicon(content, whole), whole, summary, sum(map(len, content.values())))
        except KeyError as error:
            raise ShopFolderError(f"{folder / str(error.args[0])} is not sealed, or damaged: {_LEARN}") from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise ShopFolderError(f"{folder} cannot be read ({error}): {_LEARN}") from error


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of the files that the service reads, by name; for who has just written them."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in _READ}


def seal(folder: Path, summary: dict[str, Any]) -> None:
    files = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != SEAL}
    content = {"version": VERSION, "files": files, "summary": summary}
    (folder / SEAL).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _sealed(path: Path, content: dict[str, bytes]) -> str:
    """Return a file's digest, "" where there is none; keep what the service reads."""
    if path.suffix not in _READ:
        return _digest(path)
    try:
        content[path.name] = path.read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(content[path.name]).hexdigest()


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
