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

from service.planner.phrases import Phrases, read_phrases
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
from training.data.behaviour_slots import Filler, query_pieces
from training.data.behaviour_text import FOLDER, Line, Piece, read_lines, sections, text_of, with_tail
from training.data.phrases import misspell
from training.data.rows import LabelledQuery, Split, held_out
from training.data.written import labelled_queries

COUNTS: Final = {
    "plain_keyword": 1200, "support": 1100, "ask_product": 1100, "vague_find": 700, "price_shape": 1300,
    "number_with_price": 1100, "sort_offers": 1300, "exclusion": 1400, "small_talk": 500, "out_of_scope": 600,
    "multi": 1200, "compare": 1000, "advise": 1100, "followup": 2400, "spelling": 1000, "language": 900,
}  # fmt: skip
_FILES: Final = ("support.txt", "talk.txt", "vague.txt", "ask.txt", "advise.txt", "several.txt", "closed.txt")
_CLOSED_SLOTS: Final = frozenset("max min range around sum money stars sort order offer maxall".split())
_GREETINGS: Final = ("hi", "hello", "hey", "hi there,", "good morning,", "ok so", "hi!", "hello,", "um", "excuse me,")
_COURTESY: Final = ("please", "pls", "thanks", "thank you", "please and thank you", "thx")
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
        """What tells it from other rows."""
        return " | ".join((*self.history, self.question)).lower()

    @property
    def digest(self) -> str:
        """What names it in `left_out.txt`."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


def rows(seed: int = 0) -> list[Row]:
    """Every row, the same for the same seed: distinct questions, each with a plan that keeps the contract.

    A row whose closed phrases are not read as they were meant is left out; `misread` lists those.
    """
    return [row for row in _all_rows(seed) if isinstance(row, Row)]


def misread(seed: int = 0) -> list[str]:
    """Questions whose closed phrases the rules read otherwise than they were made."""
    return [row for row in _all_rows(seed) if isinstance(row, str)]


@cache
def _all_rows(seed: int) -> tuple[Row | str, ...]:
    makers = {"followup": _followups, "spelling": _spellings, "language": _languages, "plain_keyword": _keywords}
    found: list[Row | str] = []
    seen = set(_left_out())
    for kind, count in COUNTS.items():
        rng = random.Random(f"{kind} {seed}")
        maker = makers.get(kind, _sentences)
        made = 0
        for tried, row in enumerate(maker(kind, rng)):
            if made >= count or tried > _ATTEMPTS * count:
                break
            key = row.digest if isinstance(row, Row) else ""
            if isinstance(row, str):
                found.append(row)
            elif key not in seen and not problems(row.history, row.question, row.plan):
                seen.add(key)
                found.append(row)
                made += 1
    return tuple(found)


def _left_out() -> list[str]:
    """Digests of our own rows that came out near-identical to a text that is kept for judging."""
    path = FOLDER / "left_out.txt"
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]


@cache
def _lines() -> dict[str, list[Line]]:
    """The lines of each class."""
    found: dict[str, list[Line]] = defaultdict(list)
    for name in _FILES:
        for line in read_lines(name):
            kind = line.section[1] if line.section[1] in SEARCHLESS else line.section[0]
            found[kind].append(line)
    return found


def _sentences(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Each line in turn, as it stands the first time, then in other registers; skeletons come round more often."""
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
    """Whether what the rules read is what the question was made to say."""
    price = plan["price"]
    read = (price["min"], price["max"], price["currency"])
    if "price" not in facts and "sum" in facts:
        value, currency = facts["sum"]
        is_same = value in read[:2] and currency == read[2]
    else:
        is_same = read == facts.get("price", (None, None, None))
    is_same &= plan["rating"]["min"] == facts.get("rating") and plan["sort"] == facts.get("sort", "relevance")
    return is_same and set(plan["offers"]) == set(facts.get("offers", ()))


def in_register(pieces: list[Piece], rng: random.Random, intent: str, *, may_slip: bool = True) -> list[Piece]:
    """The same said otherwise: with capitals, a greeting, a courtesy, punctuation, or a slip in a word of no facet."""
    roll = rng.random()
    is_sentence = mode_of(text_of(pieces)) == "conversational"
    is_shopping = intent not in SEARCHLESS
    if roll < 0.42:
        return pieces
    if roll < 0.5:
        return [replace(pieces[0], text=pieces[0].text[:1].upper() + pieces[0].text[1:]), *pieces[1:]]
    if roll < 0.53:
        return [replace(piece, text=piece.text.upper()) for piece in pieces]
    if roll < 0.64 and not pieces[-1].tail:
        return with_tail(pieces, rng.choice(("?", "??", "?", "!", ".") if is_sentence else (".", "!")))
    if roll < 0.74 and is_sentence and is_shopping:
        return [Piece(rng.choice(_GREETINGS)), *pieces]
    if roll < 0.82 and is_shopping and not pieces[-1].tail:
        return [*pieces, Piece(rng.choice(_COURTESY))]
    if roll < 0.9:
        return [replace(piece, text=_without_apostrophe(piece, may_slip=may_slip)) for piece in pieces]
    return _with_slip(pieces, rng) if may_slip else pieces


def _without_apostrophe(piece: Piece, *, may_slip: bool) -> str:
    return piece.text.replace("'", "") if may_slip and not piece.facet else piece.text


def _with_slip(pieces: list[Piece], rng: random.Random) -> list[Piece]:
    free = [
        at for at, piece in enumerate(pieces) if not piece.is_queried and len(piece.text) > 5 and piece.text.isalpha()
    ]
    if not free or len(pieces) < 3:
        return pieces
    at = rng.choice(free)
    return [replace(p, text=misspell(p.text, rng)) if index == at else p for index, p in enumerate(pieces)]


@cache
def _plain_queries() -> tuple[LabelledQuery, ...]:
    """Our labelled queries that say nothing closed."""
    queries = (query for query in labelled_queries() if read_phrases(" ".join(query.text.words)) == Phrases())
    return tuple(query for query in queries if len(query.text.words) > 1)


def _keywords(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Search queries as they are typed, the traps among our lines first."""
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


@cache
def _misspellings() -> dict[str, list[str]]:
    """How each word is misspelt."""
    found: dict[str, list[str]] = defaultdict(list)
    for _, line, where in sections("spelling.txt"):
        wrong, *right = line.split()
        if len(right) != 1 or wrong == right[0]:
            raise ValueError(f"{where}: {line!r} is not a wrong word and the right one")
        found[right[0]].append(wrong)
    return found


def _spellings(kind: str, rng: random.Random) -> Iterator[Row | str]:
    """Labelled queries with one or two words misspelt; the misspelling is the family."""
    by_word: dict[str, list[LabelledQuery]] = defaultdict(list)
    for query in _plain_queries():
        for word in query.text.words:
            if word in _misspellings() and len(query.text.words) <= 6:
                by_word[word].append(query)
    words = sorted(by_word)
    while True:
        word = rng.choice(words)
        wrong = rng.choice(_misspellings()[word])
        slips = {word: wrong}
        query = rng.choice(by_word[word])
        for other in query.text.words:
            known = [
                w for w in _misspellings().get(other, ()) if held_out(_slip_family(w)) == held_out(_slip_family(wrong))
            ]
            if known and other != word and rng.random() < 0.6:
                slips[other] = rng.choice(known)
        pieces = [_misspelt(piece, slips) for piece in query_pieces(query)]
        yield _spelling_row(pieces, query, wrong, kind, rng)


def _slip_family(wrong: str) -> str:
    return f"spelling: {wrong}"


def _misspelt(piece: Piece, slips: dict[str, str]) -> Piece:
    words = piece.text.split()
    text = " ".join(slips.get(word, word) for word in words)
    return replace(piece, text=text, correct=piece.text) if text != piece.text else piece


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
    """Whole questions in other languages, then skeletons with things and what is said of them."""
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
