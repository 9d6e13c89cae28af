"""The closed vocabularies of a plan, and the one word that stands for each entry in plan text.

They belong to a model, which learnt these words: `vocabulary.json` of its folder is their only source. The words stand
where a model decides, so each should be a single token of its tokenizer when it follows a space: then naming an intent
or a facet costs one decoding decision.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from service.planner.plan import Mode
from service.settings.choices import SHIPPED_MODEL

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE_NAME = "vocabulary.json"
NO_VERTICAL_WORD = "Any"
FOREIGN_WORD = "Foreign"  # in place of a vertical: the question is in a language that the model does not read
PART_WORDS = ("One", "Two", "Three", "Four")  # what follows is about this one of several things
SHARED_WORD = "All"  # what follows holds for all of them
REFUSED_WORD = "Not"  # the next span is what the shopper does not want
# What marked words say: bounds of a price, the least rating, and what a wish that names no thing is for.
MARK_WORDS = {"max": "Max", "min": "Min", "range": "Range", "about": "About", "rating": "Stars", "need": "Need"}
SORT_WORDS = {"price_asc": "Low", "price_desc": "High", "rating": "Best", "newest": "New", "best_selling": "Popular"}
OFFER_WORDS = {"in_stock": "Stock", "on_sale": "Sale", "free_shipping": "Free", "fast_delivery": "Fast"}
DEFAULT_INTENT = "find_product"  # of a plan about which nothing is known
NAMING_FACETS = ("type", "brand", "line", "model")  # facets that name a thing; the others only describe it
# Intents that ask about products: words of refusal state facts there ("does it work without wifi").
QUESTIONS = ("ask_product", "advise")
_OWN_WORDS = (
    *(NO_VERTICAL_WORD, FOREIGN_WORD, *PART_WORDS, SHARED_WORD, REFUSED_WORD),
    *(*MARK_WORDS.values(), *SORT_WORDS.values(), *OFFER_WORDS.values()),
)
_GRAMMAR_RULES = ("start", "facet", "end")  # names of rules in a grammar, where each source is a rule too

_FROZEN = ConfigDict(frozen=True, extra="forbid")
_LOWER = "must be one lower-case word: a question's intent is capitalised where it is conversational"
_CAPITAL = "must be one word with a capital first letter: a question's own words never have one"
Key = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]+$")]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=40)]


class VocabularyError(ValueError):
    """Raised for a vocabulary that cannot be used; the message names file, key and what to do."""


class Intent(BaseModel):
    """What a shopper may mean. One about `products` has facets and a vertical.

    `sources` are asked for its answer, best first; None: the model chooses them.
    """

    model_config = _FROZEN

    word: Word
    products: bool = False
    sources: tuple[str, ...] | None = None
    description: str = ""


class Vertical(BaseModel):
    """A department of the shop."""

    model_config = _FROZEN

    word: Word
    name: str
    description: str = ""


class Facet(BaseModel):
    """A kind of thing that shoppers say about a product."""

    model_config = _FROZEN

    word: Word
    description: str = ""


class Source(BaseModel):
    """What can be asked. One without a `word` is never the model's choice."""

    model_config = _FROZEN

    word: Word | None = None
    description: str = ""


class Vocabulary(BaseModel):
    """Every intent, vertical, facet and source by its key."""

    model_config = _FROZEN

    intents: dict[Key, Intent] = Field(min_length=1)
    verticals: dict[Slug, Vertical]
    facets: dict[Key, Facet] = Field(min_length=1)
    sources: dict[Key, Source]

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a file, or the file of a model folder. Raises VocabularyError."""
        path = vocabulary_file(path)
        try:
            return _vocabulary(path.read_text(encoding="utf-8"))
        except OSError as error:
            shipped = SHIPPED_MODEL / FILE_NAME
            raise VocabularyError(
                f"{path}: {error.strerror}. Every model folder holds the vocabulary that its model learnt; "
                f"models/{shipped.parent.name}/{shipped.name} is that of the shipped one"
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(key) for key in first["loc"] if key != "[key]")
            raise VocabularyError(
                f"{path}: {where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
            ) from error
        except ValueError as error:  # JSON's errors too
            raise VocabularyError(f"{path}: {error}") from error

    @model_validator(mode="after")
    def _words_are_apart(self) -> Self:
        for key, intent in self.intents.items():
            _require(intent.word.isalpha() and intent.word.islower(), f"intents.{key}.word", intent.word, _LOWER)
        for key, source in self.sources.items():
            if source.word is not None:
                _require(source.word.isalpha() and source.word.islower(), f"sources.{key}.word", source.word, _LOWER)
            _require(key not in _GRAMMAR_RULES, f"sources.{key}", key, "is a name of the grammar; choose another")
        for place, word in [*_named("verticals", self.verticals), *_named("facets", self.facets)]:
            _require(word.isalpha() and word[0].isupper(), place, word, _CAPITAL)
        places: dict[str, str] = {}
        for place, word in self.words():
            _require(word not in places, place, word, f"is already {places.get(word)}; each word may stand once")
            places[word] = place
        return self

    @model_validator(mode="after")
    def _sources_are_known(self) -> Self:
        for key, intent in self.intents.items():
            for source in intent.sources or ():
                known = f"is no key of sources: {', '.join(self.sources)}"
                _require(source in self.sources, f"intents.{key}.sources", source, known)
            repeated = [source for source, count in Counter(intent.sources or ()).items() if count > 1]
            _require(not repeated, f"intents.{key}.sources", ", ".join(repeated), "stands twice")
            chooses = intent.sources is None
            _require(
                intent.products or not chooses,
                f"intents.{key}.sources",
                "null",
                "is for intents about products alone; name this one's sources, or [] where there are none",
            )
            _require(
                not chooses or bool(self.source_of_word),
                f"intents.{key}.sources",
                "null",
                "lets the model choose, and no source has a word",
            )
        rules = f"intents.{DEFAULT_INTENT}"
        known_default = DEFAULT_INTENT in self.intents and self.intents[DEFAULT_INTENT].products
        _require(known_default, rules, "products", "must be true: a plan about which nothing is known has it")
        return self

    def __hash__(self) -> int:  # of what a grammar is compiled and kept for
        return hash((*self.intents, *self.verticals, *self.facets))

    def words(self) -> Iterator[tuple[str, str]]:
        """Yield (place in the file, word) of every word that plan text may have, intents in both modes."""
        yield from (("a word of plan text itself", word) for word in _OWN_WORDS)
        for key, intent in self.intents.items():
            yield f"intents.{key}.word", intent.word
            yield f"intents.{key}.word, capitalised", intent.word.capitalize()
        yield from _named("verticals", self.verticals)
        yield from _named("facets", self.facets)
        yield from ((f"sources.{key}.word", source.word) for key, source in self.sources.items() if source.word)

    def check_tokens(self, tokenizer: "Tokenizer", path: Path = Path(FILE_NAME)) -> None:
        """Raise VocabularyError unless every word is a single token after a space; `path` is for its message."""
        for place, word in self.words():
            if (count := len(tokenizer.encode(f" {word}", add_special_tokens=False).ids)) != 1:
                raise VocabularyError(
                    f"{path}: {place}: {word!r} is {count} tokens of this tokenizer; choose a word that is one"
                )

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=16).hexdigest()

    @cached_property
    def intent_of_word(self) -> dict[str, tuple[Mode, str]]:
        """Mode and intent by the first word of plan text."""
        found: dict[str, tuple[Mode, str]] = {}
        for key, intent in self.intents.items():
            found[intent.word] = ("keyword", key)
            found[intent.word.capitalize()] = ("conversational", key)
        return found

    @cached_property
    def facet_of_word(self) -> dict[str, str]:
        return {facet.word: key for key, facet in self.facets.items()}

    @cached_property
    def vertical_of_word(self) -> dict[str, str | None]:
        """What may stand last in plan text, by word; None for no vertical."""
        return {item.word: key for key, item in self.verticals.items()} | {NO_VERTICAL_WORD: None, FOREIGN_WORD: None}

    @cached_property
    def source_of_word(self) -> dict[str, str]:
        """The sources that a model may choose, by their words."""
        return {source.word: key for key, source in self.sources.items() if source.word}

    @cached_property
    def section_words(self) -> frozenset[str]:
        """The words that end a facet's value."""
        return frozenset((*self.facet_of_word, *self.vertical_of_word, *_OWN_WORDS))


@lru_cache(maxsize=8)
def _vocabulary(text: str) -> Vocabulary:
    """Return one object for one text: equal ones were compared field by field at every question's grammar."""
    return Vocabulary.model_validate(json.loads(text, object_pairs_hook=_without_repeats))


def vocabulary_file(path: Path) -> Path:
    """Return the file that a path names, itself or as its model folder."""
    return path / FILE_NAME if path.is_dir() else path


@cache
def shipped_vocabulary() -> Vocabulary:
    """Return the vocabulary of the shipped model, in whose terms our training data is labelled."""
    return Vocabulary.load(SHIPPED_MODEL)


def _named(table: str, entries: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"{table}.{key}.word", entry.word) for key, entry in entries.items()]


def _require(holds: bool, place: str, value: str, otherwise: str) -> None:
    if not holds:
        raise ValueError(f"{place}: {value!r} {otherwise}")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"{', '.join(repeated)}: stands twice in one table; each key may stand once")
    return dict(pairs)
