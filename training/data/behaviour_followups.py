"""Follow-ups: a wish told in one to four utterances, a change to it, and the plan that then holds, by construction."""

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from training.data.behaviour_phrases import Facts, closed_phrase
from training.data.behaviour_plans import (
    ASKED_SOURCES,
    INTENT_SOURCES,
    Plan,
    content,
    distinct,
    empty_plan,
    facets_of,
    mode_of,
)
from training.data.behaviour_slots import Filler, attributes
from training.data.behaviour_text import Line, Piece, read_lines, text_of
from training.data.behaviour_wish import NO_PRICE, Wish
from training.data.rows import VERTICAL_CODES

_STARTS: Final = (
    "{}", "{}", "{}", "i need {}", "looking for {}", "do you have {}", "show me {}", "i want {}", "can you find {}",
    "any {}?", "hi, {}", "im after {}", "searching for {}", "need {} please",
)  # fmt: skip
_SET_LATER: Final = {
    "color": ("in {}", "{}", "{} please", "in {} if possible"), "size": ("size {}", "in size {}", "{}"),
    "brand": ("{}", "from {}", "{} please", "only {}"), "material": ("in {}", "{}", "made of {}"),
    "audience": ("for {}", "it's for {}"), "feature": ("{}", "must be {}", "preferably {}"),
}  # fmt: skip
_REFUSED_LATER: Final = ("not {}", "no {}", "but not {}", "i don't want {}")
_CHATTER: Final = ("hi", "hello", "thanks!", "ok", "hey there")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A conversation and the plan of its newest utterance."""

    history: tuple[str, ...]
    question: str
    plan: Plan
    family: str


@cache
def changes() -> tuple[Line, ...]:
    """Return every line of followups.txt."""
    return tuple(read_lines("followups.txt"))


_SLOTS: Final = {name: Line((), None, (Piece("", slot=name),), "", "") for name in ("type", "thing", "branded")}


class Conversation:
    """Makes one conversation at a time."""

    def __init__(self, rng: random.Random, filler: Filler) -> None:
        self._rng = rng
        self._filler = filler

    def make(self, line: Line) -> FollowUp | None:
        """Return a conversation that ends with the line; None where this wish has nothing that it could change."""
        kind, what = line.section[0], line.section[1] if len(line.section) > 1 else ""
        needed = {piece.slot for piece in line.pieces} & {"brand", "color", "material", "size", "audience", "feature"}
        needed |= {what} & {"brand", "color", "material", "size", "audience", "feature"}
        shopped = [vertical for vertical in VERTICAL_CODES.values() if vertical != "business-industrial"]
        known = attributes()
        choices = [v for v in shopped if (v, "type") in known and all((v, facet) in known for facet in needed)]
        vertical = self._rng.choice(choices)
        wish, history = self._start(vertical, kind, what)
        if wish is None:
            return None
        return self._end(line, kind, what, wish, history)

    def _start(self, vertical: str, kind: str, what: str) -> tuple[Wish | None, list[str]]:
        """Return a wish, with what the change needs, and the utterances that expressed it."""
        rng = self._rng
        slot = _SLOTS["type" if rng.random() < 0.6 or kind in ("set", "lift") else "thing"]
        wish = Wish(list(self._filler.fill(slot, vertical).pieces), vertical)
        if wish.value("type") is None:
            return None, []
        must = [what] if what in ("color", "brand", "size", "material", "audience") and kind in ("set", "lift") else []
        must = must if kind == "lift" or rng.random() < 0.8 else []
        others = [
            f for f in ("color", "brand", "size", "material", "audience", "feature") if (vertical, f) in attributes()
        ]
        rng.shuffle(others)
        later: list[str] = []
        later_facets: set[str] = set()
        for facet in dict.fromkeys([*must, *others[: rng.choice((0, 0, 1, 1, 2))]]):
            if wish.value(facet) is not None:
                continue
            value = self._new_value(vertical, facet, wish)
            if value is None:
                continue
            wish.set(facet, value)
            if rng.random() < 0.45:
                later.append(rng.choice(_SET_LATER[facet]).format(value))
                later_facets.add(facet)
        history = [rng.choice(_STARTS).format(self._first(wish, later_facets))]
        if kind != "exclude" and rng.random() < 0.12 and (value := self._new_value(vertical, "brand", wish)):
            wish.refuse("brand", value)
            later.append(rng.choice(_REFUSED_LATER).format(value))
        if (kind, what) == ("lift", "price") or kind == "reprice" or rng.random() < 0.25:
            text, facts = closed_phrase(rng.choice(("max", "max", "max", "range")), rng, {})
            wish.say(facts)
            if rng.random() < 0.5:
                history[0] += f" {text}"
            else:
                later.append(text)
        if kind not in ("sort", "offer") and rng.random() < 0.08:
            text, facts = closed_phrase(rng.choice(("order", "offer", "stars")), rng, {})
            wish.say(facts)
            later.append(text)
        if rng.random() < 0.06:
            history.insert(0, rng.choice(_CHATTER))
        return wish, [*history, *later]

    def _first(self, wish: Wish, later_facets: set[str]) -> str:
        """Return the words of the wish that no later utterance says."""
        kept = [piece for piece in wish.pieces if piece.facet not in later_facets]
        is_last = {id(kept[-1])} if kept[-1].facet == "audience" else set()
        return " ".join(f"for {piece.text}" if id(piece) in is_last else _worn(piece) for piece in kept)

    def _new_value(self, vertical: str, facet: str, wish: Wish) -> str | None:
        """Return a value that shares no word with what is wanted or refused already."""
        used = {word for piece in (*wish.pieces, *wish.refused) for word in piece.text.split()}
        values = [value for value in attributes().get((vertical, facet), ()) if not used & set(value.split())]
        return self._rng.choice(values) if values else None

    def _end(self, line: Line, kind: str, what: str, wish: Wish, history: list[str]) -> FollowUp | None:
        if kind in ("new", "only"):
            return self._afresh(line, kind, wish, history)
        if kind == "compare":
            return self._compared(line, wish, history)
        pieces: list[Piece] = []
        known = Facts()
        old = wish.value(what)
        for piece in line.pieces:
            if piece.slot == "old":
                if old is None:
                    return None
                pieces.append(Piece(old, tail=piece.tail))
            elif piece.slot in ("brand", "color", "material", "size", "audience", "feature"):
                value = self._changed(kind, piece.slot, wish)
                if value is None:
                    return None
                pieces.append(Piece(value, piece.slot, tail=piece.tail))
            elif piece.slot:
                text, facts = closed_phrase(piece.slot, self._rng, known)
                known.update(facts)
                wish.say(facts)
                pieces.append(Piece(text, tail=piece.tail))
            else:
                pieces.append(piece)
        question = text_of(pieces)
        if kind == "lift":
            if what == "price":
                wish.price = dict(NO_PRICE)
            else:
                wish.drop(what)
        if kind == "sort":
            wish.sort = _sorted(line, question, wish)
        return self._done(line, kind, what, wish, history, question, pieces)

    def _done(
        self, line: Line, kind: str, what: str, wish: Wish, history: list[str], question: str, pieces: list[Piece]
    ) -> FollowUp:
        if kind == "thanks":
            plan = empty_plan("small_talk", mode_of(question))
        elif kind == "support":
            plan = empty_plan(what, mode_of(question), INTENT_SOURCES[what])
            plan["queries"] = [content(question)]
        elif kind == "ask":
            asked = replace(wish, pieces=[*wish.pieces, *(p for p in pieces if p.is_queried)])
            plan = asked.plan(question, "ask_product", ASKED_SOURCES["qa"])
        else:
            plan = wish.plan(question)
        return FollowUp(tuple(history), question, plan, line.family)

    def _changed(self, kind: str, facet: str, wish: Wish) -> str | None:
        """Put a new value into the wish; half of the refusals are of a wanted value."""
        current = wish.value(facet)
        if kind == "exclude":
            value = current if current and self._rng.random() < 0.5 else self._new_value(wish.vertical, facet, wish)
            if value is not None:
                wish.refuse(facet, value)
            return value
        value = self._new_value(wish.vertical, facet, wish)
        if value is not None:
            (wish.add if kind == "add" else wish.set)(facet, value)
        return value

    def _afresh(self, line: Line, kind: str, wish: Wish, history: list[str]) -> FollowUp | None:
        if kind == "only":
            thing = next(piece for piece in wish.pieces if piece.facet == "type")
            pieces = [thing if piece.slot else piece for piece in line.pieces]
            fresh = Wish([thing], wish.vertical)
        else:
            filled = self._filler.fill(line)
            pieces = filled.pieces
            fresh = Wish([piece for piece in pieces if piece.is_queried], filled.vertical or wish.vertical)
        question = text_of(pieces)
        return FollowUp(tuple(history), question, fresh.plan(question), line.family)

    def _compared(self, line: Line, wish: Wish, history: list[str]) -> FollowUp:
        filled = self._filler.fill(line, wish.vertical)
        other = [piece for piece in filled.pieces if piece.is_queried]
        question = text_of(filled.pieces)
        plan = empty_plan("compare_products", mode_of(question))
        plan["vertical"] = wish.vertical
        for pieces, price in ((wish.pieces, wish.price), (other, NO_PRICE)):
            query = " ".join(piece.text for piece in pieces)
            part = {"facets": facets_of(pieces)[0], "exclude": {}, "price": dict(price), "queries": distinct([query])}
            plan["parts"].append(part)
        plan["queries"] = distinct([query for part in plan["parts"] for query in part["queries"]])
        return FollowUp(tuple(history), question, plan, line.family)


def _worn(piece: Piece) -> str:
    is_number = piece.facet == "size" and piece.text[:1].isdigit() and piece.text.replace(".", "").isdigit()
    return f"size {piece.text}" if is_number else piece.text


def _sorted(line: Line, question: str, wish: Wish) -> str:
    if any(piece.slot in ("sort", "order") for piece in line.pieces):
        return wish.sort
    for word, sort in (("cheap", "price_asc"), ("price", "price_asc"), ("rat", "rating"), ("new", "newest")):
        if word in question:
            return sort
    return "best_selling"
