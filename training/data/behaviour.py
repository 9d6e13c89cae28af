"""Training questions for version 2 of the plan, of every class of its contract, labelled by construction.

Sentences and skeletons of ours (`behaviour/`), filled with our products and labelled queries, in many registers. A
tenth of the sentence families is dev: no sentence, skeleton or misspelling of dev is in training. Other people's texts
are not here, and none is near-identical to the behaviour cases that the planner is judged by.
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.phrases import Phrases
from training.data.behaviour_followups import Conversation, changes
from training.data.behaviour_phrases import Facts, closed_phrase
from training.data.behaviour_plans import (
    ASKED_SOURCES,
    SEARCHLESS,
    Plan,
    distinct,
    empty_plan,
    mode_of,
    problems,
    sentence_plan,
)
from training.data.behaviour_registers import in_register, misspellings, misspelt
from training.data.behaviour_slots import Filler, query_pieces
from training.data.behaviour_text import FOLDER, Line, Piece, read_lines, sections, text_of, with_tail
from training.data.rows import LabelledQuery, Split, held_out
from training.data.written import labelled_queries

COUNTS: Final = {
    "plain_keyword": 1200, "support": 1100, "ask_product": 1100, "vague_find": 700, "price_shape": 1300,
    "number_with_price": 1100, "sort_offers": 1300, "exclusion": 1400, "small_talk": 500, "out_of_scope": 600,
    "multi": 1200, "compare": 1000, "advise": 1100, "followup": 2400, "spelling": 1000, "language": 900,
}  # fmt: skip
_FILES: Final = ("support.txt", "talk.txt", "vague.txt", "ask.txt", "advise.txt", "several.txt", "closed.txt")
_CLOSED_SLOTS: Final = frozenset("max min range around sum money stars sort order offer maxall".split())
_SPELLING_FRAMES: Final = ("{}", "{}", "{}", "looking for {}", "do you have {}", "i need {}", "{} please", "any {}?",
                           "where can i find {}", "show me {}", "{} {max}", "{} {sum} max")  # fmt: skip
_ATTEMPTS: Final = 12  # a row, before a class has no more to give


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation, the plan of its newest question, its class, and the family that says its split."""

    history: tuple[str, ...]
    question: str
    plan: Plan
    kind: str
    family: str

    @property
    def split(self) -> Split:
        return "dev" if held_out(self.family) else "train"

    @property
    def key(self) -> str:
        """The key that identifies the row."""
        return " | ".join((*self.history, self.question)).lower()

    @property
    def digest(self) -> str:
        """The digest of the row in `left_out.txt`."""
        return _digest(self.key)

    @property
    def newest_digest(self) -> str:
        """The digest in `left_out.txt` of every row whose newest utterance is this one's, whatever was said before."""
        return _digest(self.question.lower())


def rows(seed: int = 0) -> list[Row]:
    """Every row, the same for the same seed: distinct questions, each with a plan that keeps the contract.

    A row whose closed phrases are not read as they were meant is left out; `misread` lists those.
    """
    return [row for row in _all_rows(seed) if isinstance(row, Row)]


def misread(seed: int = 0) -> list[str]:
    """Return questions whose closed phrases the rules read differently from how they were made."""
    return [row for row in _all_rows(seed) if isinstance(row, str)]


@cache
def _all_rows(seed: int) -> tuple[Row | str, ...]:
    makers = {"followup": _followups, "spelling": _spellings, "language": _languages, "plain_keyword": _keywords}
    found: list[Row | str] = []
    left_out = frozenset(_left_out())
    seen: set[str] = set()
    for kind, count in COUNTS.items():
        rng = random.Random(f"{kind} {seed}")
        maker = makers.get(kind, _sentences)
        made = 0
        for tried, row in enumerate(maker(kind, rng)):
            if made >= count or tried > _ATTEMPTS * count:
                break
            if isinstance(row, str):
                found.append(row)
                continue
            is_new = row.digest not in seen and left_out.isdisjoint((row.digest, row.newest_digest))
            if is_new and not problems(row.history, row.question, row.plan):
                seen.add(row.digest)
                found.append(row)
                made += 1
    return tuple(found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _left_out() -> list[str]:
    """Return digests of our own rows, or of their newest utterances, that are nearly a text reserved for evaluation."""
    path = FOLDER / "left_out.txt"
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]


@cache
def _lines() -> dict[str, list[Line]]:
    """Return the lines of each class."""
    found: dict[str, list[Line]] = defaultdict(list)
    for name in _FILES:
        for line in read_lines(name):
            kind = line.section[1] if line.section[1] in SEARCHLESS else line.section[0]
            found[kind].append(line)
    return found


def _sentences(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Yield each line in turn, first unchanged, then in other registers; skeletons are repeated more often."""
    filler = Filler(rng)
    first = True
    while True:
        lines = list(_lines()[kind])
        rng.shuffle(lines)
        for line in lines:
            has_slot = any(piece.slot for piece in line.pieces)
            for _ in range(3 if has_slot and not first else 1):
                yield _sentence(kind, line, filler, rng, is_plain=first and not has_slot)
        first = False


def _sentence(kind: str, line: Line, filler: Filler, rng: random.Random, *, is_plain: bool) -> Row | str:
    filled = filler.fill(line)
    closed = any(piece.slot in _CLOSED_SLOTS for piece in line.pieces)
    closed |= any(piece.is_refused for piece in filled.pieces)
    intent = line.section[1]
    pieces = filled.pieces if is_plain else in_register(filled.pieces, rng, intent, may_slip=not closed)
    sources = ASKED_SOURCES[line.section[2]] if intent == "ask_product" and len(line.section) > 2 else None
    plan = sentence_plan(pieces, intent, filled.vertical, sources)
    question = text_of(pieces)
    if any(piece.slot for piece in line.pieces) and not plan["parts"] and not _agrees(plan, filled.facts):
        return question
    return Row((), question, plan, kind, line.family)


def _agrees(plan: Plan, facts: Facts) -> bool:
    """Tell whether the rules read the question's closed phrases as they were made."""
    price = plan["price"]
    read = (price["min"], price["max"], price["currency"])
    if "price" not in facts and "sum" in facts:
        value, currency = facts["sum"]
        is_same = value in read[:2] and currency == read[2]
    else:
        is_same = read == facts.get("price", (None, None, None))
    is_same &= plan["rating"]["min"] == facts.get("rating") and plan["sort"] == facts.get("sort", "relevance")
    return is_same and set(plan["offers"]) == set(facts.get("offers", ()))


@cache
def _plain_queries() -> tuple[LabelledQuery, ...]:
    """Return our labelled queries without closed phrases."""
    queries = (query for query in labelled_queries() if ENGLISH.phrases(" ".join(query.text.words)) == Phrases())
    return tuple(query for query in queries if len(query.text.words) > 1)


def _keywords(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Yield search queries as they are typed, the traps among our lines first."""
    for line in _lines()[kind]:
        plan = sentence_plan(line.pieces, "find_product", line.vertical, mode="keyword")
        yield Row((), text_of(line.pieces), plan, kind, line.family)
    while True:
        query = rng.choice(_plain_queries())
        pieces = query_pieces(query)
        text = text_of(pieces)
        if rng.random() < 0.12:
            pieces = [
                replace(piece, text=piece.text.upper() if len(text) % 2 else piece.text.title()) for piece in pieces
            ]
        plan = sentence_plan(pieces, "find_product", query.vertical, mode="keyword")
        yield Row((), text_of(pieces), plan, kind, f"query: {text}")


def _followups(kind: str, rng: random.Random) -> Iterator[Row | str]:
    conversation = Conversation(rng, Filler(rng))
    while True:
        lines = list(changes())
        rng.shuffle(lines)
        for line in lines:
            made = conversation.make(line)
            if made is not None:
                yield Row(made.history, made.question, made.plan, kind, made.family)


def _spellings(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Yield labelled queries with one or two words misspelt; the misspelling is the family."""
    by_word: dict[str, list[LabelledQuery]] = defaultdict(list)
    for query in _plain_queries():
        for word in query.text.words:
            if word in misspellings() and len(query.text.words) <= 6:
                by_word[word].append(query)
    words = sorted(by_word)
    while True:
        word = rng.choice(words)
        wrong = rng.choice(misspellings()[word])
        slips = {word: wrong}
        query = rng.choice(by_word[word])
        for other in query.text.words:
            known = [
                w for w in misspellings().get(other, ()) if held_out(_slip_family(w)) == held_out(_slip_family(wrong))
            ]
            if known and other != word and rng.random() < 0.6:
                slips[other] = rng.choice(known)
        pieces = [misspelt(piece, slips) for piece in query_pieces(query)]
        yield _spelling_row(pieces, query, wrong, kind, rng)


def _slip_family(wrong: str) -> str:
    return f"spelling: {wrong}"


def _spelling_row(pieces: list[Piece], query: LabelledQuery, wrong: str, kind: str, rng: random.Random) -> Row | str:
    before, _, after = rng.choice(_SPELLING_FRAMES).partition("{}")
    for slot in ("max", "sum"):
        if f"{{{slot}}}" in after:
            after = after.replace(f"{{{slot}}}", closed_phrase(slot, rng, {})[0])
    sentence = [*(Piece(word) for word in before.split()), *pieces]
    tail = after if after.startswith("?") else ""
    sentence = with_tail(sentence, tail) + [Piece(word) for word in after.removeprefix(tail).split()]
    plan = sentence_plan(sentence, "find_product", query.vertical)
    return Row((), text_of(sentence), plan, kind, _slip_family(wrong))


def _languages(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Yield whole questions in other languages, then skeletons with products and their attributes."""
    lists: dict[str, list[str]] = defaultdict(list)
    for section, line, _ in sections("language.txt"):
        lists[section] += line.split(", ") if section.endswith((" n", " m")) else [line]
    for section in [name for name in lists if len(name) == 2]:
        for text in lists[section]:
            yield _language_row(text, kind, f"{section}: {text}")
    framed = [name.split()[0] for name in lists if name.endswith("frame")]
    while True:
        code = rng.choice(framed)
        frame, said = rng.choice(lists[f"{code} frame"]), rng.choice(lists[f"{code} m"])
        text = frame.replace("{n}", rng.choice(lists[f"{code} n"])).replace("{m}", said)
        yield _language_row(text, kind, f"{code}: {frame} {said if '{m}' in frame else ''}")


def _language_row(text: str, kind: str, family: str) -> Row:
    plan = empty_plan("find_product", mode_of(text), ["catalog"])
    plan["queries"] = distinct([text])
    return Row((), text, plan, kind, family)
