"""Read the data folder's rows as examples, split into train and dev.

QueryNER, WebShop and the taxonomy rows come with a split. The others do not: a tenth is held out by a stable hash, for
CLINC by whole intents, so that out-of-scope recall is measured on kinds of question that training never saw.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example, MarkedText

Split = Literal["train", "dev"]
Row = dict[str, Any]
_SENTENCE = re.compile(
    r"\b(i|i'm|im|my|me|you|your|u|we|can|could|how|what|whats|what's|where|when|why|who|do|does|is|are|please|need|"
    r"want|help|would|there|tell|have)\b",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"[iy]?[es]*$")  # matches the endings in which plurals differ, and somewhat more
# The data's codes for verticals: the taxonomy's, whose roots they are.
VERTICAL_CODES = {
    "aa": "apparel-accessories", "ae": "arts-entertainment", "ap": "animals-pet-supplies", "bi": "business-industrial",
    "bt": "baby-toddler", "co": "cameras-optics", "el": "electronics", "fb": "food-beverages-tobacco",
    "fr": "furniture", "gc": "gift-cards", "ha": "hardware", "hb": "health-beauty", "hg": "home-garden",
    "lb": "luggage-bags", "me": "media", "os": "office-supplies", "rc": "religious-ceremonial",
    "sg": "sporting-goods", "so": "software", "tg": "toys-games", "vp": "vehicles-parts",
}  # fmt: skip
# Departments of the small retail catalogue all of whose products belong to one vertical.
_RETAIL_VERTICALS = {
    "apparel": "aa", "footwear": "aa", "jewelry": "aa", "furniture": "fr", "housewares": "hg", "homedecor": "hg",
    "groceries": "fb", "salty snacks": "fb", "food service": "fb", "instruments": "ae", "electronics": "el",
    "beauty": "hb", "tools": "ha",
}  # fmt: skip
QUERYNER_FACETS = {
    "core_product_type": "type", "creator": "brand", "product_name": "line", "product_number": "model",
    "color": "color", "material": "material", "UoM": "size", "quantity": "count", "department": "audience",
    "shape": "shape", "condition": "condition", "occasion": "occasion", "content": "theme", "origin": "origin",
    "time": "time", "modifier": "feature",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A real search query with its spans, the source of most augmentation."""

    text: MarkedText
    vertical: str | None = None  # where it was labelled

    def values(self, facet: str) -> list[str]:
        """Return the words of each span of a facet."""
        spans = [span for span in self.text.spans if span.facet == facet]
        return [" ".join(self.text.words[span.first : span.last + 1]) for span in spans]


def read_rows(path: Path) -> list[Row]:
    """Return the JSON lines of a gzip file. Raises FileNotFoundError with the folder that was expected."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; DATA= must name the folder with the training data")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def held_out(text: str, share: int = 10) -> bool:
    """Tell, by a stable hash, whether a text is one of the held-out `share`."""
    return zlib.crc32(text.encode()) % share == 0


def looks_conversational(text: str) -> bool:
    """Guess the mode of a support row, which has no label: a sentence to somebody, or bare keywords."""
    return bool(_SENTENCE.search(text)) or text.endswith("?")


# CLINC150 calls these out of scope; to a shop's assistant they are talk.
_ABOUT_THE_ASSISTANT = frozenset(
    "are_you_a_bot what_is_your_name who_made_you who_do_you_work_for how_old_are_you where_are_you_from "
    "what_are_your_hobbies do_you_have_pets what_can_i_ask_you".split()
)


def queryner(data: Path, split: Split) -> list[LabelledQuery]:
    """Return real queries with their spans."""
    labelled = []
    for row in read_rows(data / f"queryner_{split}.jsonl.gz"):
        words = tuple(row["query"].split())
        spans = tuple(
            FacetSpan(QUERYNER_FACETS[kind], first, end - 1)
            for kind, _, first, end in row["spans"]
            if kind in QUERYNER_FACETS
        )
        if any(kind == "price" for kind, _, _, _ in row["spans"]):
            continue  # whether it is the least or the most is not labelled
        labelled.append(LabelledQuery(MarkedText(words, spans)))
    return labelled


def real_rows(data: Path, split: Split) -> Iterator[Example]:
    """Yield WebShop, PQA and Bitext rows: intent, mode and sources are known, facets are not."""
    for row in read_rows(data / "plan_real_partial.jsonl.gz"):
        origin, plan, text = row["origin"], row["plan"], row["text"]
        if origin in ("queryner", "clinc") or "sources" not in row["supervised"]:
            continue
        if _split_of(row) != split:
            continue
        mode = (
            plan["mode"] if "mode" in row["supervised"] else ("keyword", "conversational")[looks_conversational(text)]
        )
        draft = PlanDraft(mode, plan["intent"], _sources(plan))
        yield Example(text, draft, knows_facets=False, origin=origin.split("_")[0])


def clinc_rows(data: Path, split: Split) -> Iterator[Example]:
    """Yield out-of-scope and order-status utterances; dev holds whole intents that train does not have."""
    for row in read_rows(data / "clinc_train_sample.jsonl.gz"):
        if ("dev" if _clinc_is_dev(row) else "train") == split:
            mode = ("keyword", "conversational")[looks_conversational(row["text"])]
            intent = "small_talk" if row["clinc_intent"] in _ABOUT_THE_ASSISTANT else row["label"]
            yield Example(row["text"], PlanDraft(mode, intent), origin="clinc")


def taxonomy_rows(data: Path, split: Split) -> Iterator[Example]:
    """Yield template-generated rows: vertical and prices are trusted, facets are only context."""
    for row in read_rows(data / "plan_synth_taxonomy.jsonl.gz"):
        if row["split"] == split:
            yield synthetic_example(row)


def synthetic_example(row: Row) -> Example:
    """Convert one such row. Facets outside the vocabulary become features; those that are no span are dropped."""
    plan = row["plan"]
    facets = plan["facets"]
    question = Question.parse(row["text"])
    spans: list[FacetSpan] = []
    for key, values in facets.items():
        facet = key if key in shipped_vocabulary().facets else "feature" if key.startswith("attr:") else None
        for value in values if facet and isinstance(values, list) else ():
            first = find_words(question, str(value).lower().split())
            if first is not None and facet is not None:
                spans.append(FacetSpan(facet, first, first + len(str(value).split()) - 1))
    vertical = plan["vertical"] and VERTICAL_CODES[plan["vertical"]]
    draft = PlanDraft(plan["mode"], plan["intent"], _sources(plan), _apart(spans), vertical=vertical)
    price = (facets.get("price_min"), facets.get("price_max"))
    return Example(row["text"], draft, knows_facets=False, knows_vertical=True, price=price, origin=row["origin"])


def training_categories(data: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (leaf name, vertical, handles of its attributes) of every taxonomy category that no dev row uses."""
    dev = _dev_categories(data)
    for row in read_rows(data / "taxonomy_categories.jsonl.gz"):
        vertical = VERTICAL_CODES.get(row["id"].split("-")[0])
        if row["path"] not in dev and " > " in row["path"] and vertical is not None:
            yield row["path"].rsplit(" > ", 1)[1].lower(), vertical, row["attrs"]


def category_names(data: Path) -> list[tuple[str, str]]:
    """Return (leaf name, vertical) of each of them."""
    return [(name, vertical) for name, vertical, _ in training_categories(data)]


def _dev_categories(data: Path) -> set[str]:
    """Return the paths of the categories that dev rows use."""
    return {
        row["plan"]["category"] for row in read_rows(data / "plan_synth_taxonomy.jsonl.gz") if row["split"] == "dev"
    }


class DevCategories:
    """The names of the dev rows' categories, which no other source may teach."""

    def __init__(self, data: Path) -> None:
        keys = {_name_key(path.rsplit(" > ", 1)[-1]) for path in _dev_categories(data)}
        self._single = {key for key in keys if len(key) == 1}
        self._longer: dict[str, list[frozenset[str]]] = {}  # indexed by one of their words
        for key in keys - self._single:
            self._longer.setdefault(min(key, default=""), []).append(key)

    def names(self, name: str) -> bool:
        """Tell whether a name is one of theirs, or holds all words of a longer one, in any number and order."""
        key = _name_key(name)
        return key in self._single or any(longer <= key for word in key for longer in self._longer.get(word, ()))


def _name_key(name: str) -> frozenset[str]:
    words = (_PLURAL.sub("", word) for word in re.findall(r"[a-z0-9]+", name.lower()))
    return frozenset(word for word in words if word not in ("and", "for", "of"))


def retail_products(data: Path) -> list[tuple[str, str]]:
    """Return (product name, vertical) from the retail catalogue, where the department implies the vertical."""
    return [
        (row["name"].lower(), VERTICAL_CODES[_RETAIL_VERTICALS[row["category"]]])
        for row in read_rows(data / "aws_retail_products.jsonl.gz")
        if row["category"] in _RETAIL_VERTICALS
    ]


def find_words(question: Question, value: list[str], start: int = 0) -> int | None:
    """Return the index of the first run of the question's words that equals `value`."""
    texts = [word.text for word in question.words]
    for first in range(start, len(texts) - len(value) + 1):
        if value and texts[first : first + len(value)] == value:
            return first
    return None


def _apart(spans: list[FacetSpan]) -> list[FacetSpan]:
    """Return the spans in question order; of two that overlap the later one is dropped."""
    kept: list[FacetSpan] = []
    for span in sorted(spans, key=lambda span: span.first):
        if not kept or span.first > kept[-1].last:
            kept.append(span)
    return kept


def _split_of(row: Row) -> Split:
    if row["origin"] == "webshop":
        return "dev" if row["split"] == "dev" else "train"
    return "dev" if held_out(row["text"]) else "train"


def _clinc_is_dev(row: Row) -> bool:
    """Hold out a seventh of the intents, and a seventh of the rows of the mixed "oos" and "order_status"."""
    mixed = row["clinc_intent"] in ("oos", "order_status")
    return held_out(row["text"] if mixed else row["clinc_intent"], 7)


def _sources(plan: Row) -> list[str]:
    return [] if shipped_vocabulary().intents[plan["intent"]].sources is not None else list(plan["sources"])
