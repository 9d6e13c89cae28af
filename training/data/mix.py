"""The training mix: the examples of an epoch, drawn anew each time, and the dev sets that measure quality."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.text import FUNCTION_WORDS
from service.planner.vocabulary import shipped_vocabulary
from training.data import augment, conversations, rows, substitution, written
from training.data.augment import phrases, wrap
from training.data.examples import Example, MarkedText

Dialogue = tuple[Example, ...]  # the turns of one conversation, oldest first
SUPPORT_INTENTS = tuple(
    key for key, intent in shipped_vocabulary().intents.items() if intent.sources and not intent.products
)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many examples of each kind an epoch holds; a real query also appears as it was typed."""

    labelled: float = 0.75  # of the labelled queries, as they were typed; the next are shares of these
    sentence: float = 0.25
    product_question: float = 0.07
    price: float = 0.1
    slip: float = 0.15
    mention: float = 0.5
    negation: float = 0.04
    webshop: int = 100  # counts
    pqa: int = 500
    bitext: int = 400
    bitext_keywords: int = 200
    clinc: int = 800
    clinc_keywords: int = 250
    taxonomy: int = 1500
    categories: int = 4500
    attributes: int = 10_000  # categories with their attributes; a category may be drawn several times
    products: int = 12_000  # kinds of product from our own list
    written: float = 0.6  # of our own queries
    retail: int = 200
    support: int = 500
    out_of_scope: int = 500
    asked: int = 8000  # our own sentences with an intent alone: all of them
    conversations: float = 1.0  # of the conversations that people of no rule labelled, every turn of each


# What an adapter that knows products already is reminded of while it learns conversations.
REFRESHING = Shares(
    labelled=0.165, pqa=110, bitext=88, clinc=176, taxonomy=132, categories=330, attributes=660, products=880,
    written=0.132, support=110, out_of_scope=110, asked=1760,
)  # fmt: skip


class Source(Protocol):
    """What epochs are drawn from, and what is measured with."""

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        """Return the shuffled conversations of one epoch, most of one turn; the same for the same state of `rng`."""
        ...

    def dev(self) -> dict[str, list[Example]]:
        """Return examples by origin that no epoch has in any form."""
        ...


class Mix:
    """The data folder, read once, from which epochs are drawn."""

    def __init__(self, data: Path, shares: Shares | None = None) -> None:
        self.shares = shares or Shares()
        self._data = data
        self.queries = rows.queryner(data, "train")
        real = list(rows.real_rows(data, "train"))
        self.by_origin = {
            origin: [example for example in real if example.origin == origin] for origin in ("webshop", "pqa", "bitext")
        }
        self.clinc = list(rows.clinc_rows(data, "train"))
        self.taxonomy = list(rows.taxonomy_rows(data, "train"))
        self.categories = rows.category_names(data)
        self.described = augment.described_categories(data)
        self.retail = rows.retail_products(data)
        self._read_written(data)
        self.values = facet_values([*self.queries, *self.written])
        self.conversations = conversations.conversations("train")
        self._names = substitution.pools_of([conversation for _, conversation in self.conversations], self.products)
        self.asked = written.asked_examples("train")

    def _read_written(self, data: Path) -> None:
        """Read our own product names and queries, without any that name a dev category or repeat a dev query."""
        dev_categories = rows.DevCategories(data)
        dev_queries = {frozenset(query.text.words) for query in rows.queryner(data, "dev")}
        self.products = [known for known in written.product_names() if not dev_categories.names(known[0])]
        self.written: list[rows.LabelledQuery] = []
        for query in written.labelled_queries():
            if frozenset(query.text.words) not in dev_queries:
                names_one = any(map(dev_categories.names, query.values("type")))
                self.written.append(replace(query, vertical=None) if names_one else query)

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        """Draw one shuffled epoch. The same generator state gives the same epoch."""
        examples = [*self._labelled(rng), *self._written(rng), *self._support(rng), *self._taxonomy(rng)]
        examples += rng.sample(self.asked, min(self.shares.asked, len(self.asked)))
        count = round(self.shares.conversations * len(self.conversations))
        drawn: list[Dialogue] = [(example,) for example in examples]
        for writer, conversation in rng.sample(self.conversations, count):
            changed = substitution.substituted(conversation, self._names, rng)
            drawn += conversations.dialogues(changed, f"writer_{writer}")
        rng.shuffle(drawn)
        return drawn

    def dev(self) -> dict[str, list[Example]]:
        return dev_sets(self._data)

    def _labelled(self, rng: random.Random) -> Iterator[Example]:
        shares = self.shares
        forms: tuple[tuple[float, Callable[[rows.LabelledQuery], Example]], ...] = (
            (shares.sentence, lambda query: augment.sentence(query, rng)),
            (shares.product_question, lambda query: augment.product_question(query, rng)),
            (shares.price, lambda query: augment.with_price(query, rng)),
            (shares.slip, lambda query: augment.with_slip(query, rng)),
            (shares.mention, lambda query: augment.keyword(query)),
            (shares.negation, lambda query: augment.with_negation(query, *self._negated(rng), rng)),
        )
        for query in rng.sample(self.queries, round(shares.labelled * len(self.queries))):
            yield augment.keyword(query)
            for share, make in forms:
                if rng.random() < share:  # mostly from new values: the same few thousand would be memorised otherwise
                    yield make(augment.with_other_values(query, self.values, rng) if rng.random() < 0.7 else query)

    def _written(self, rng: random.Random) -> Iterator[Example]:
        count = round(self.shares.written * len(self.written))
        yield from written_examples(rng.sample(self.written, count), rng)

    def _support(self, rng: random.Random) -> Iterator[Example]:
        shares = self.shares
        for origin, count in (("webshop", shares.webshop), ("pqa", shares.pqa), ("bitext", shares.bitext)):
            yield from rng.sample(self.by_origin[origin], min(count, len(self.by_origin[origin])))
        yield from rng.sample(self.clinc, min(shares.clinc, len(self.clinc)))
        yield from self._keywords(self.by_origin["bitext"], shares.bitext_keywords, rng)
        yield from self._keywords(self.clinc, shares.clinc_keywords, rng)
        for index in range(shares.support):
            mode = "keyword" if rng.random() < 0.6 else "conversational"
            yield augment.support(SUPPORT_INTENTS[index % len(SUPPORT_INTENTS)], mode, rng)
        for _ in range(shares.out_of_scope):
            yield augment.out_of_scope(rng)

    def _taxonomy(self, rng: random.Random) -> Iterator[Example]:
        for example in rng.sample(self.taxonomy, min(self.shares.taxonomy, len(self.taxonomy))):
            yield augment.cut_otherwise(example, rng)
        for name, vertical in rng.sample(self.categories, min(self.shares.categories, len(self.categories))):
            yield augment.cut_otherwise(_category_query(name, vertical, self.values, rng), rng)
        for category in rng.choices(self.described, k=self.shares.attributes):
            yield augment.cut_otherwise(augment.category_question(category, self.values["brand"], rng), rng)
        for name, vertical in rng.sample(self.products, min(self.shares.products, len(self.products))):
            yield product_example(name, vertical, self.values, rng)
        for name, vertical in rng.sample(self.retail, min(self.shares.retail, len(self.retail))):
            yield _product_name(name, vertical)

    def _keywords(self, examples: list[Example], count: int, rng: random.Random) -> Iterator[Example]:
        for example in rng.sample(examples, min(count, len(examples))):
            short = keyword_form(example)
            if short is not None:
                yield short

    def _negated(self, rng: random.Random) -> tuple[str, str]:
        facet = rng.choice(("material", "material", "color", "brand", "feature", "shape"))
        return facet, rng.choice(self.values[facet])


def written_examples(queries: Sequence[rows.LabelledQuery], rng: random.Random) -> Iterator[Example]:
    """Yield our own queries, as they are and half as often in another form; most have a known vertical."""
    forms = (augment.sentence, augment.sentence, augment.with_price, augment.with_slip, augment.product_question)
    for query in queries:
        examples = [augment.keyword(query)]
        if rng.random() < 0.5:
            examples.append(rng.choice(forms)(query, rng))
        for example in examples:
            draft = replace(example.draft, vertical=query.vertical)
            yield replace(example, draft=draft, knows_vertical=query.vertical is not None, origin="written")


def product_example(name: str, vertical: str, values: dict[str, list[str]], rng: random.Random) -> Example:
    """Return a question about one of our kinds of product, in which the vertical alone is a target."""
    example = augment.cut_otherwise(_category_query(name, vertical, values, rng), rng)
    return replace(example, origin="product")


def keyword_form(example: Example) -> Example | None:
    """Turn a sentence into the keywords that one would type into a search box; None where too few are left."""
    words = [word.text for word in example.question().words if word.text not in FUNCTION_WORDS]
    if not 2 <= len(words) <= 5:
        return None
    return replace(
        example,
        query=" ".join(words),
        draft=replace(example.draft, mode="keyword"),
        origin=f"{example.origin}_keyword",
    )


def dev_sets(data: Path, seed: int = 0) -> dict[str, list[Example]]:
    """Return dev examples by origin; training sees none of them in any form."""
    rng = random.Random(seed)
    real = list(rows.real_rows(data, "dev"))
    queries = rows.queryner(data, "dev")
    clinc = list(rows.clinc_rows(data, "dev"))
    seen = {(name, vertical) for name, vertical in rows.category_names(data)}
    taxonomy = [example for example in rows.taxonomy_rows(data, "dev") if not _leaf_is_known(example, seen)]
    bitext = [example for example in real if example.origin == "bitext"]
    short = [form for form in map(keyword_form, [*bitext, *clinc]) if form is not None]
    support = [
        augment.support(intent, mode, rng, "dev")
        for intent in SUPPORT_INTENTS
        for mode in ("keyword", "conversational")
        if any(index % 6 == 5 for index in range(len(phrases()[f"support_{mode}"][intent])))
        for _ in range(8)
    ]
    return {
        "queryner": [augment.keyword(query) for query in queries],
        "sentence": [augment.sentence(query, rng) for query in queries],
        "price": [augment.with_price(query, rng) for query in queries],
        "slip": [augment.with_slip(query, rng) for query in queries],
        "taxonomy": taxonomy,
        "webshop": [example for example in real if example.origin == "webshop"],
        "pqa": [example for example in real if example.origin == "pqa"],
        "bitext": bitext,
        "clinc": clinc,
        "keywords": short,
        "support": list({example.query: example for example in support}.values()),
        "out_of_scope": list({e.query: e for e in (augment.out_of_scope(rng, "dev") for _ in range(60))}.values()),
        "asked": written.asked_examples("dev"),
        "conversation": [turn for turns in conversations.examples("dev") for turn in turns],
    }


def _leaf_is_known(example: Example, seen: set[tuple[str, str]]) -> bool:
    types = [span for span in example.draft.spans if span.facet == "type"]
    words = example.question().words
    return any((" ".join(w.text for w in words[s.first : s.last + 1]), example.draft.vertical) in seen for s in types)


def facet_values(queries: Sequence[rows.LabelledQuery]) -> dict[str, list[str]]:
    """Return every value of each facet, as often as it was labelled."""
    values: dict[str, list[str]] = {}
    for query in queries:
        for span in query.text.spans:
            values.setdefault(span.facet, []).append(" ".join(query.text.words[span.first : span.last + 1]))
    return values


def _category_query(name: str, vertical: str, values: dict[str, list[str]], rng: random.Random) -> Example:
    """Make a query of a category name, alone or after a colour, brand or material."""
    text = MarkedText.value("type", name.replace(",", "").replace("&", "and"))
    if rng.random() < 0.4:
        facet = rng.choice(("color", "brand", "material", "audience"))
        text = MarkedText.value(facet, rng.choice(values[facet])) + text
    mode, intent, sources = "keyword", "find_product", ["catalog"]
    roll = rng.random()
    if roll < 0.25:
        mode, text = "conversational", wrap(rng.choice(phrases()["find_wrappers"]), text)
    elif roll < 0.4:
        mode, intent = "conversational", "ask_product"
        about, sources = rng.choice((("reviews", ["reviews", "qa"]), ("spec", ["catalog"])))
        text = wrap(rng.choice(phrases()[f"ask_{about}_wrappers"]), text)
    draft = PlanDraft(mode, intent, sources, list(text.spans), vertical=vertical)
    return Example(str(text), draft, knows_sources=False, knows_facets=False, knows_vertical=True, origin="category")


def _product_name(name: str, vertical: str) -> Example:
    """Make a query of a retail product's name, in which only the kind of product at the end has a label."""
    text = MarkedText.plain(name)
    text = replace(text, spans=(FacetSpan("type", len(text.words) - 1, len(text.words) - 1),))
    draft = PlanDraft("keyword", "find_product", ["catalog"], list(text.spans), vertical=vertical)
    return Example(name, draft, knows_facets=False, knows_vertical=True, origin="retail")
