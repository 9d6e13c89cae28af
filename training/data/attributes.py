"""Questions from the taxonomy's categories with their attributes and values.

A question for third-party brake pads, or for fish food for salt water, says much about its category without naming it.
Siblings share attributes, so what is learnt here holds for categories that no row named.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.planner.plan_text import PlanDraft
from service.planner.question import Question
from training.data.examples import Example, MarkedText
from training.data.phrases import phrases, wrap
from training.data.rows import read_rows, training_categories

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


def categories(data: Path) -> list[Category]:
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


def question(category: Category, brands: list[str], rng: random.Random) -> Example:
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
