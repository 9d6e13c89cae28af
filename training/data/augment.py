"""Augmentation: turn labelled queries into other forms of the same request: sentences, prices, typos, follow-ups.

Every function takes a query with gold spans and returns an example whose spans are gold too, so that the model learns
sentences from real labels rather than from templated ones. Phrase templates are in `phrases.json`.

The taxonomy's categories with their attributes and values become questions, too: one for third-party brake pads, or for
fish food for salt water, says much about its category without naming it, and what is learnt of it holds for siblings.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import MARK_WORDS
from training.data.examples import Example, MarkedText
from training.data.rows import LabelledQuery, Split, read_rows, training_categories

_CHOICE = re.compile(r"\{([^{}]*)\}")


@cache
def phrases() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("phrases.json").read_text(encoding="utf-8"))
    return loaded


def expand(template: str, rng: random.Random) -> str:
    """Replace each `{a|b}` by one of its alternatives."""
    return " ".join(_CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), template).split())


def split_templates(templates: list[str], split: str) -> list[str]:
    """Return the templates of a split: every sixth one belongs to dev only."""
    return [template for index, template in enumerate(templates) if (index % 6 == 5) == (split == "dev")]


def wrap(template: str, inner: MarkedText) -> MarkedText:
    """Insert a marked text where the template has X; punctuation that touches X joins its last word."""
    before, after = re.split(r"\bX\b", template, maxsplit=1)
    touching = re.match(r"[?.,!]*", after)
    punctuation = touching.group() if touching else ""
    words = (*inner.words[:-1], inner.words[-1] + punctuation)
    rest = MarkedText.plain(after[len(punctuation) :])
    return MarkedText.plain(before) + MarkedText(words, inner.spans) + rest


_SMALL = "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty".split()
_SMALL_VALUES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 30, 40, 50, 60]
_HUNDREDS = {"a hundred": 100, "one hundred": 100, "two hundred": 200, "five hundred": 500, "a thousand": 1000}
_FORMS = ("${}", "${}", "${}", "{} dollars", "{} bucks", "{}", "{} usd", "£{}", "€{}", "{}$", "{} euros")


def spoken_price(rng: random.Random, at_least: float = 0) -> tuple[str, float]:
    """Return a price as shoppers write it, and its value (above `at_least`)."""
    roll = rng.random()
    if roll < 0.08:
        word, spelled = rng.choice([*zip(_SMALL, _SMALL_VALUES, strict=True), *_HUNDREDS.items()])
        if spelled > max(at_least, 4):
            return rng.choice(("{} dollars", "{} bucks", "{}")).format(word), float(spelled)
    value = float(rng.choice([rng.randint(2, 60), 5 * rng.randint(1, 40), 50 * rng.randint(1, 40)]))
    value += at_least
    if roll > 0.9:
        value += rng.choice([0.99, 0.5, 0.95, 0.49])
    digits = f"{value:.2f}" if value % 1 else f"{value:.0f}"
    if value >= 1000 and rng.random() < 0.4:
        digits = f"{value:,.2f}" if value % 1 else f"{value:,.0f}"
    if value >= 1000 and value % 500 == 0 and rng.random() < 0.2:
        digits = f"{value / 1000:g}k"
    return rng.choice(_FORMS).format(digits), value


_NEIGHBOURS = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "wertyuioplsdfghjklkxcvbnmn", strict=True)  # the neighbouring key on the right
)


def misspell(word: str, rng: random.Random) -> str:
    """Add one typo: two letters swapped, or one dropped, doubled or replaced by its neighbour on the keyboard."""
    at = rng.randrange(1, len(word) - 1)
    slip = rng.randrange(4)
    if slip == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if slip == 1:
        return word[:at] + word[at + 1 :]
    if slip == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + _NEIGHBOURS.get(word[at], "e") + word[at + 1 :]


# Words of a handle and the facet that they imply; the first match counts, and "feature" where none does.
_FACETS = (
    (re.compile(r"colou?r"), "color"),
    (re.compile(r"pattern|theme"), "theme"),
    (re.compile(r"material|fabric"), "material"),
    (re.compile(r"gender|age_group"), "audience"),
    (re.compile(r"size"), "size"),
    (re.compile(r"shape"), "shape"),
    (re.compile(r"condition$"), "condition"),
    (re.compile(r"occasion"), "occasion"),
)
# Intent and sources of each kind of question.
_SEARCH = ("find_product", ("catalog",))
_SPECIFICATION = ("ask_product", ("catalog",))
_REVIEWS = ("ask_product", ("reviews", "qa"))


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property of products, and the facet that its values belong to."""

    name: str
    facet: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Category:
    """A category that no dev row uses, with its attributes (those with values)."""

    name: str
    vertical: str
    attributes: tuple[Attribute, ...]


def described_categories(data: Path) -> list[Category]:
    """Return every training category that has an attribute. Raises ValueError where none has one with values."""
    attributes = _attributes(data)
    found = []
    for name, vertical, handles in training_categories(data):
        spoken = _spoken(name)
        own = tuple(attributes[key] for key in map(_key, handles) if key in attributes)
        if spoken and own:
            found.append(Category(spoken, vertical, own))
    if not found:
        raise ValueError(f"no category has an attribute with values in {data}/taxonomy_attributes.jsonl.gz")
    return found


def category_question(category: Category, brands: list[str], rng: random.Random) -> Example:
    """Write a question that names one to three of its category's attributes or values."""
    kind = MarkedText.value("type", category.name)
    roll = rng.random()
    if roll < 0.2:
        template = rng.choice(phrases()["ask_attribute_wrappers"])
        asked = wrap(template.replace("A", rng.choice(category.attributes).name), kind)
        return _example(asked, category, *_SPECIFICATION)
    if roll < 0.35:
        attribute = rng.choice(category.attributes)
        asked = wrap(rng.choice(phrases()["ask_value_wrappers"]), kind)
        return _example(
            asked + MarkedText.value(attribute.facet, rng.choice(attribute.values)), category, *_SPECIFICATION
        )
    text = _with_values(kind, category, brands, rng)
    if roll < 0.45:
        return _example(wrap(rng.choice(phrases()["ask_reviews_wrappers"]), text), category, *_REVIEWS)
    if roll < 0.65:
        return _example(wrap(rng.choice(phrases()["find_wrappers"]), text), category, *_SEARCH)
    return _example(text, category, *_SEARCH, mode="keyword")


def _with_values(kind: MarkedText, category: Category, brands: list[str], rng: random.Random) -> MarkedText:
    """Write values and then the name, as in a search box; the user group and the size may come after it."""
    chosen = rng.sample(category.attributes, min(rng.choice((1, 1, 2, 2, 3)), len(category.attributes)))
    parts = [(attribute.facet, rng.choice(attribute.values)) for attribute in chosen]
    if rng.random() < 0.25:
        parts.insert(rng.randint(0, len(parts)), ("brand", rng.choice(brands)))
    front, back = MarkedText(()), MarkedText(())
    for facet, value in parts:
        marked = MarkedText.value(facet, value)
        if facet in ("audience", "size") and rng.random() < 0.6:
            back = back + MarkedText.plain("for" if facet == "audience" else "size") + marked
        else:
            front = front + marked
    return front + kind + back


def _example(
    text: MarkedText, category: Category, intent: str, sources: Sequence[str], mode: str = "conversational"
) -> Example:
    draft = PlanDraft(mode, intent, list(sources), list(text.spans), vertical=category.vertical)
    return Example(str(text), draft, knows_sources=False, knows_facets=False, knows_vertical=True, origin="attribute")


def _attributes(data: Path) -> Mapping[str, Attribute]:
    """Return attributes by handle, without those that extend another (a dial's colour): their values add nothing."""
    found: dict[str, Attribute] = {}
    for row in read_rows(data / "taxonomy_attributes.jsonl.gz"):
        key, name = _key(row["handle"]), _spoken(row["name"])
        values = tuple(value for value in map(_spoken, row["values"]) if value)
        if name and values:
            facet = next((facet for pattern, facet in _FACETS if pattern.search(key)), "feature")
            found[key] = Attribute(name, facet, values)
    return found


def _key(handle: str) -> str:
    """Normalise a handle: categories and attributes write the same one with different signs."""
    return re.sub(r"[^a-z0-9]+", "_", handle.lower())


def _spoken(name: str) -> str:
    """Return a name as one types it; empty where its words could not be words of a question."""
    text = " ".join(re.sub(r"[,()]", " ", name.lower().replace("&", "and")).split())
    return text if [word.text for word in Question.parse(text).words] == text.split() else ""


Bounds = tuple[float | None, float | None]  # lowest and highest price
_MARKS = {"price_max": "max", "price_min": "min", "price_range": "range"}
_CORRECTABLE = re.compile(r"^[A-Za-z]{1,19}$")


def keyword(query: LabelledQuery) -> Example:
    """Make an example of the query as it was typed."""
    return _product(query.text, "keyword", origin="queryner")


def sentence(query: LabelledQuery, rng: random.Random) -> Example:
    """Put the query inside a request; one in five asks for a recommendation."""
    template = rng.choice(phrases()["recommend_wrappers" if rng.random() < 0.2 else "find_wrappers"])
    text = wrap(template, query.text)
    return _product(text, "conversational", origin="sentence")


def product_question(query: LabelledQuery, rng: random.Random) -> Example:
    """Ask a question about the product: how it does in use (reviews, answers) or what it is (catalogue)."""
    about_use = rng.random() < 0.5
    template = rng.choice(phrases()["ask_reviews_wrappers" if about_use else "ask_spec_wrappers"])
    text = wrap(template, query.text)
    mode = "keyword" if template in ("X reviews", "reviews of X") else "conversational"
    sources = ["reviews", "qa"] if about_use else ["catalog"]
    return _product(text, mode, "ask_product", sources, origin="ask")


def with_price(query: LabelledQuery, rng: random.Random) -> Example:
    """Add a price bound, as keywords or as a sentence; sometimes with a number that is no price."""
    kind = rng.choices(("price_max", "price_min", "price_range", "not_price"), (9, 4, 6, 2))[0]
    template = rng.choice(phrases()[kind])
    low_text, low = spoken_price(rng)
    high_text, high = spoken_price(rng, at_least=low)
    if kind == "price_range" and rng.random() < 0.4:  # "$20-$40", "20 to 40 dollars"
        low_text = low_text.split()[0].strip("$") if "-" not in template else low_text
    phrase = re.sub(r"\bM\b", high_text, re.sub(r"\bN\b", low_text, template))
    text = query.text + (_measure(phrase) if kind == "not_price" else MarkedText.value(_MARKS[kind], phrase))
    mode = "keyword"
    if rng.random() < 0.45:
        mode = "conversational"
        text = wrap(rng.choice(phrases()["find_wrappers"]), text)
    bounds: dict[str, Bounds] = {
        "price_max": (None, low), "price_min": (low, None), "price_range": (low, high), "not_price": (None, None)
    }  # fmt: skip
    return _product(text, mode, price=bounds[kind], origin="price")


def _measure(phrase: str) -> MarkedText:
    """Write a bound on something other than the price."""
    facet = "audience" if re.search(r"kids|50s|years", phrase) else "feature" if "pockets" in phrase else "size"
    return MarkedText.value(facet, phrase)


def with_negation(query: LabelledQuery, facet: str, other: str, rng: random.Random) -> Example:
    """Add "not leather": the bare value is refused."""
    before, after = rng.choice(phrases()["negations"]).split("X")
    value = MarkedText.value(facet, other)
    refused = replace(value, spans=tuple(replace(span, refused=True) for span in value.spans))
    text = query.text + MarkedText.plain(before) + refused + MarkedText.plain(after)
    if rng.random() < 0.5:
        return _product(wrap(rng.choice(phrases()["find_wrappers"]), text), "conversational", origin="negation")
    return _product(text, "keyword", origin="negation")


def with_slip(query: LabelledQuery, rng: random.Random) -> Example:
    """Misspell one word."""
    candidates = [i for i, word in enumerate(query.text.words) if len(word) >= 5 and _CORRECTABLE.match(word)]
    if not candidates:
        return keyword(query)
    at = rng.choice(candidates)
    words = list(query.text.words)
    words[at] = misspell(words[at], rng)
    wrapped = wrap(rng.choice(phrases()["find_wrappers"]), query.text) if rng.random() < 0.3 else None
    if wrapped is None:
        meant = keyword(query)
        slipped = replace(meant, query=" ".join(words))
    else:
        meant = _product(wrapped, "conversational")
        slipped = replace(meant, query=str(wrapped).replace(query.text.words[at], words[at], 1))
    if slipped.query == meant.query:
        return meant
    return replace(slipped, slip=(words[at].lower(), query.text.words[at].lower()), origin="slip")


def with_other_values(query: LabelledQuery, values: dict[str, list[str]], rng: random.Random) -> LabelledQuery:
    """Replace some values by those of other queries ("mention replacement", Dai & Adel, arXiv 2010.11683)."""
    words: list[str] = []
    spans: list[FacetSpan] = []
    position = 0
    for span in sorted(query.text.spans, key=lambda span: span.first):
        words += query.text.words[position : span.first]
        value = list(query.text.words[span.first : span.last + 1])
        if rng.random() < 0.5:
            value = rng.choice(values[span.facet]).split()
        spans.append(FacetSpan(span.facet, len(words), len(words) + len(value) - 1))
        words += value
        position = span.last + 1
    words += query.text.words[position:]
    return replace(query, text=MarkedText(tuple(words), tuple(spans)))


def cut_otherwise(example: Example, rng: random.Random) -> Example:
    """Return a row whose facets are only context, half the time with its type cut as a model might cut it.

    The vertical that comes after them has to be right in either case.
    """
    spans: list[FacetSpan] = []
    for span in example.draft.spans:
        if span.facet == "type" and span.last > span.first and rng.random() < 0.5:
            cut = rng.randrange(span.first, span.last)
            front = rng.choice(("feature", "feature", "type", "line", "brand", "theme", "material"))
            spans += [FacetSpan(front, span.first, cut), replace(span, first=cut + 1)]
        else:
            spans.append(span)
    return replace(example, draft=replace(example.draft, spans=spans))


def _product(
    text: MarkedText,
    mode: str,
    intent: str = "find_product",
    sources: Sequence[str] = ("catalog",),
    *,
    price: Bounds = (None, None),
    origin: str = "",
) -> Example:
    spans = [span for span in text.spans if span.facet not in MARK_WORDS]
    marks = [span for span in text.spans if span.facet in MARK_WORDS]
    draft = PlanDraft(mode, intent, list(sources), spans, marks=marks)
    return Example(str(text), draft, price=price, origin=origin)


def support(intent: str, mode: str, rng: random.Random, split: Split = "train") -> Example:
    """Write a support question from our templates, as keywords or a sentence; every sixth template is for dev."""
    template = rng.choice(split_templates(phrases()[f"support_{mode}"][intent], split))
    return Example(expand(template, rng), PlanDraft(mode, intent), origin=f"support_{mode}")


def out_of_scope(rng: random.Random, split: Split = "train") -> Example:
    """Write a question that no shop answers, from our templates."""
    text = expand(rng.choice(split_templates(phrases()["out_of_scope"], split)), rng)
    mode = "conversational" if re.search(r"\b(i|me|you|my|what|how|who|is|do|write|help)\b", text) else "keyword"
    return Example(text, PlanDraft(mode, "out_of_scope"), origin="out_of_scope")
