"""The closed vocabularies of a plan, and the one word that stands for each entry in plan text.

`vocabulary.json` is their only source. Every word is a single token of the default model's tokenizer when it follows a
space, so that naming an intent or a facet costs one decoding decision (`tests/planner/test_vocabulary.py` proves it).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

VOCABULARY_PATH = Path(__file__).with_name("vocabulary.json")
NO_VERTICAL_WORD = "Any"
FOREIGN_WORD = "Foreign"  # in place of a vertical: the question is in a language that the model does not read
PART_WORD = "And"  # one of several things begins
SHARED_WORD = "All"  # what follows holds for all of them
REFUSED_WORD = "Not"  # the next span is what the shopper does not want


@cache
def _vocabulary() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(VOCABULARY_PATH.read_text(encoding="utf-8"))
    return loaded


MODES: tuple[str, ...] = tuple(_vocabulary()["modes"])
INTENTS: tuple[str, ...] = tuple(_vocabulary()["intents"])
VERTICALS: dict[str, str] = {key: entry["name"] for key, entry in _vocabulary()["verticals"].items()}
FACETS: tuple[str, ...] = tuple(_vocabulary()["facets"])
SOURCES: tuple[str, ...] = tuple(_vocabulary()["sources"])

INTENT_WORDS: dict[str, str] = {key: entry["word"] for key, entry in _vocabulary()["intents"].items()}
VERTICAL_WORDS: dict[str, str] = {key: entry["word"] for key, entry in _vocabulary()["verticals"].items()}
FACET_WORDS: dict[str, str] = {key: entry["word"] for key, entry in _vocabulary()["facets"].items()}
SOURCE_WORDS: dict[str, str] = {
    key: entry["word"] for key, entry in _vocabulary()["sources"].items() if "word" in entry
}

# Intents about products have facets and a vertical; the model chooses the sources of those that name none.
PRODUCT_INTENTS: tuple[str, ...] = tuple(key for key, entry in _vocabulary()["intents"].items() if "products" in entry)
INTENT_SOURCES: dict[str, tuple[str, ...]] = {
    key: tuple(entry["sources"]) for key, entry in _vocabulary()["intents"].items() if "sources" in entry
}
