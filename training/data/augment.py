"""Augmentation: turn labelled queries into other forms of the same request: sentences, prices, typos, follow-ups.

Every function takes a query with gold spans and returns an example whose spans are gold too, so that the model learns
sentences from real labels rather than from templated ones.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import MARK_WORDS
from training.data.examples import Example, MarkedText
from training.data.phrases import expand, misspell, phrases, split_templates, spoken_price, wrap
from training.data.rows import LabelledQuery, Split

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
