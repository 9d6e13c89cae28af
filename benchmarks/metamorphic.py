"""Do a question's own things stay in its plan when something unrelated is said around them?

20 wishes, each alone and changed in ways that no shopper would want to matter: five tails about other things, the same
in front, another order, capitals, a plural, politeness, punctuation, a typo, and words that try to give orders to a
language model. A plan's head is its intent, vertical, facets and exclusions; its price, sort, offers and rating are the
tail's own business.

    python -m benchmarks.metamorphic            # counts by kind, and the heads that changed; a minute
    python -m benchmarks.metamorphic --rules    # plans by rule
    python -m benchmarks.metamorphic --remarks  # tails about the deal, by what they say; writes nothing

`around/first.json` and `around/fresh.json` were worked on. `around/unseen.json`, other wishes, tails and orders, was
written before what it asks about was mended, by the same hand, and no rule was made from it. `around/another.json` is
by a hand that had seen neither those sets nor what reads them: at first sight 6 of 100 tails and 4 of 40 orders changed
a head with the model, 20 and 1 by rule; it was worked on since. None of any has been exchanged since.

`around/plain.json` and `around/chatty.json` are by two further hands that saw the contract alone, and nothing was made
from them. At first sight plain tails changed 18 of 100 heads with the model and 20 by rule: all follow "it's
for my uncle", whose audience the contract asks for. Chatty ones ("saw somebody raving about it on a podcast") change
most: 339 of 400 with the model and 196 by rule before `reading/en/remarks.py`, 230 and 122 with it.

`around/remarks.json` has 224 tails about bringing, wrapping, paying, hearing of it, returning or thanking, in
four lots by the hand that wrote `reading/en/remarks.py`: two before that was written, two meanwhile. Without it
0.26 to 0.36 of a lot's tails change a head by rule; of the later two 0.19 and 0.31 did at first sight.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.model_texts import generator
from service.planner.completion import plan_from_text
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.plan import Plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL

FIGURE = Path("docs/figures/metamorphic.json")
_AROUND = Path(__file__).with_name("around")
REMARKS = "remarks"
SETS = ("first", "fresh", "unseen", "another", "plain", "chatty")
_ORDERED = 40  # wishes with an order around them


class Pair(NamedTuple):
    """A wish said in another way."""

    kind: str
    wish: str
    said: str


class Head(NamedTuple):
    """What a plan is about, in small letters."""

    intent: str
    vertical: str | None
    facets: frozenset[tuple[str, str]]
    exclude: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, plan: Plan, *, singular: bool = False) -> "Head":
        def spans(named: dict[str, list[str]]) -> frozenset[tuple[str, str]]:
            values = ((name, value.lower()) for name, each in named.items() for value in each)
            return frozenset((name, _singular(value) if singular else value) for name, value in values)

        return cls(plan.intent, plan.vertical, spans(plan.facets), spans(plan.exclude))


def _singular(value: str) -> str:
    """Return a value without its last word's ending, whichever it has."""
    for ending in ("ves", "s", "f"):
        if value.endswith(ending):
            return value.removesuffix(ending)
    return value


def pairs(name: str) -> Iterator[Pair]:
    """Yield every wish of a set in every way."""
    around = json.loads((_AROUND / f"{name}.json").read_text(encoding="utf-8"))
    wishes, tails, orders = around["wishes"], around["tails"], around.get("orders")
    if name == REMARKS:
        said = [(kind, tail) for kind, each in tails.items() for tail in each]
        yield from (Pair(kind, wish, f"{wish}, {tail}") for wish in wishes for kind, tail in said)
        return
    for wish, plural, reordered in wishes:
        yield from (Pair("tails", wish, f"{wish}, {tail}") for tail in tails)
        yield from (Pair("in front", wish, f"{tail}: {wish}") for tail in tails)
        yield Pair("order", wish, reordered)
        yield from (Pair("case", wish, said) for said in (wish.upper(), wish.title()))
        if plural != wish:
            yield Pair("plural", wish, plural)
        yield from (
            Pair("politeness", wish, said) for said in (f"could you show me {wish}, please?", f"hi! {wish} thanks")
        )
        yield from (Pair("punctuation", wish, said) for said in (f"{wish}!!", f"({wish})", f"{wish} ..."))
        yield Pair("typos", wish, wish.replace(*_slip(wish)))
    for at in range(_ORDERED):
        wish = wishes[at % len(wishes)][0]
        yield Pair("orders", wish, orders[(at + at // len(wishes)) % len(orders)].replace("{}", wish))


def _slip(wish: str) -> tuple[str, str]:
    """Return a wish's longest word, and it with two letters exchanged."""
    word = max(wish.split(), key=len)
    return word, word[:2] + word[3] + word[2] + word[4:]


def changed(name: str, plan: Callable[[str], Plan]) -> Iterator[tuple[Pair, Head, Head]]:
    """Yield the pairs of a set whose heads differ.

    An order around a wish may add what it says; the wish must be there. A typo stands in the facets as it was typed.
    """
    alone: dict[str, Plan] = {}
    for pair in pairs(name):
        if pair.wish not in alone:
            alone[pair.wish] = plan(pair.wish)
        singular = pair.kind == "plural"
        one, other = Head.of(alone[pair.wish], singular=singular), Head.of(plan(pair.said), singular=singular)
        if pair.kind == "typos":
            meant, typed = _slip(pair.wish)
            one = one._replace(facets=frozenset((facet, value.replace(meant, typed)) for facet, value in one.facets))
        kept = pair.kind == "orders" and one.intent == other.intent and one.facets <= other.facets
        if one != other and not kept:
            yield pair, one, other


def planner(model_dir: Path, *, by_rule: bool) -> Callable[[str], Plan]:
    """Return what plans a question, with the model of a folder or by rule."""
    vocabulary, generate = Vocabulary.load(model_dir), generator(model_dir)

    def plan(query: str) -> Plan:
        task = PlanTask(Question.parse(query), vocabulary)
        if by_rule:
            return plan_by_rule(task.conversation, vocabulary)
        return plan_from_text(generate(task), task.question, vocabulary)

    return plan


def counts(name: str, plan: Callable[[str], Plan]) -> dict[str, str]:
    """Print the heads of a set that change, and return how many do by kind."""
    found = list(changed(name, plan))
    for pair, one, other in found:
        print(f"{pair.kind}: {pair.said!r}")
        for field, before, after in zip(Head._fields, one, other, strict=True):
            if before != after:
                shown = [sorted(each) if isinstance(each, frozenset) else each for each in (before, after)]
                print(f"    {field}: {shown[0]} -> {shown[1]}")
    differ = Counter(pair.kind for pair, _, _ in found)
    return {kind: f"{differ[kind]} of {number}" for kind, number in Counter(pair.kind for pair in pairs(name)).items()}


def main() -> int:
    """Write how many heads change, by kind, and print which."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="model folder")
    parser.add_argument("--rules", action="store_true", help="plan by rule, and write nothing")
    parser.add_argument("--remarks", action="store_true", help="tails about the deal alone; writes nothing")
    arguments = parser.parse_args()
    plan = planner(arguments.model, by_rule=arguments.rules)
    sets = (REMARKS,) if arguments.remarks else SETS
    figure = {"command": "make eval", "heads that change": {name: counts(name, plan) for name in sets}}
    text = json.dumps(figure, indent=1)
    print(text)
    if not (arguments.rules or arguments.remarks):
        FIGURE.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
