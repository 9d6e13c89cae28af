"""What is wanted in a conversation so far, and the plan of it: follow-ups change it, one utterance at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from training.data.behaviour_phrases import Facts
from training.data.behaviour_plans import WIDE, Plan, distinct, empty_plan, facets_of, mode_of
from training.data.behaviour_text import Piece

_AHEAD: Final = ("brand", "color", "material", "feature")  # stand before the thing; other facets after it
NO_PRICE: Final = {"min": None, "max": None, "currency": None}


@dataclass
class Wish:
    """What is wanted so far: pieces in the order in which a query names them, and the closed fields."""

    pieces: list[Piece]
    vertical: str
    refused: list[Piece] = field(default_factory=list)
    price: dict[str, object] = field(default_factory=lambda: dict(NO_PRICE))
    rating: float | None = None
    sort: str = "relevance"
    offers: tuple[str, ...] = ()

    def value(self, facet: str) -> str | None:
        """Return the value of a facet."""
        return next((piece.text for piece in self.pieces if piece.facet == facet), None)

    def set(self, facet: str, value: str) -> None:
        """Replace a facet's value where there is one, and put a new one where people name it."""
        piece = Piece(value, facet, is_queried=True)
        for at, old in enumerate(self.pieces):
            if old.facet == facet:
                self.pieces[at] = piece
                return
        kind = next(at for at, old in enumerate(self.pieces) if old.facet in ("type", "line", "model", "brand"))
        self.pieces.insert(kind if facet in _AHEAD else len(self.pieces), piece)

    def add(self, facet: str, value: str) -> None:
        """Add a value to a facet."""
        if all(piece.text != value for piece in self.pieces):
            self.pieces.insert(0 if facet in _AHEAD else len(self.pieces), Piece(value, facet, is_queried=True))

    def drop(self, facet: str) -> None:
        """Remove a facet."""
        self.pieces = [piece for piece in self.pieces if piece.facet != facet]
        self.refused = [piece for piece in self.refused if piece.facet != facet]

    def refuse(self, facet: str, value: str) -> None:
        """Remove a value where it is wanted, and refuse it."""
        self.pieces = [piece for piece in self.pieces if (piece.facet, piece.text) != (facet, value)]
        self.refused.append(Piece(value, facet, is_refused=True))

    def say(self, facts: Facts) -> None:
        """Apply a closed phrase's meaning; an amount alone is an upper bound."""
        price = facts.get("price") or ((None, *facts["sum"]) if "sum" in facts else None)
        if price is not None:
            self.price = {"min": price[0], "max": price[1], "currency": price[2] or self.price["currency"]}
        self.rating = facts.get("rating", self.rating)
        self.sort = facts.get("sort", self.sort)
        self.offers = tuple(dict.fromkeys((*self.offers, *facts.get("offers", ()))))

    def plan(self, question: str, intent: str = "find_product", sources: Sequence[str] | None = None) -> Plan:
        """Return the plan of the wish."""
        plan = empty_plan(intent, mode_of(question), sources)
        plan["vertical"] = self.vertical
        plan["facets"] = facets_of(self.pieces)[0]
        plan["exclude"] = facets_of(self.refused)[1]
        plan["price"], plan["rating"]["min"], plan["sort"] = dict(self.price), self.rating, self.sort
        plan["offers"] = sorted(self.offers, key=("in_stock", "on_sale", "free_shipping", "fast_delivery").index)
        plan["queries"] = distinct([self.query(), " ".join(p.text for p in self.pieces if p.facet in WIDE)])
        return plan

    def query(self) -> str:
        """Return the whole wish as search text."""
        return " ".join(piece.text for piece in self.pieces if piece.is_queried)
