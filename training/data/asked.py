"""Sentences of ours of which the intent alone is known: what a shop is asked, and what is none of its business.

Templates and public sets have few ways to ask for support and few of the things that people ask of any assistant. A
language model wrote these from general knowledge; it saw no dev row and none of the cases that the planner is judged
by. The recipe reads nine tenths of them, and `make eval` asks the others.
"""

from functools import cache
from pathlib import Path

from service.planner.plan_text import PlanDraft
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example
from training.data.rows import Split, held_out, looks_conversational

SENTENCES = Path(__file__).with_name("asked.txt")


@cache
def examples(split: Split) -> list[Example]:
    """Return the sentences of a split: a tenth, by a hash of the words, is dev."""
    return [_example(intent, text) for intent, text in sentences() if held_out(text.lower()) == (split == "dev")]


def sentences(path: Path = SENTENCES) -> list[tuple[str, str]]:
    """Return (intent, sentence) of every line: the intent stands in brackets above. Raises ValueError with the line."""
    found: list[tuple[str, str]] = []
    intent = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("["):
            intent = line.strip("[]")
        elif line and not line.startswith("#"):
            if intent not in shipped_vocabulary().intents:
                raise ValueError(f"{path.name}:{number}: {intent!r} is no intent of the vocabulary")
            found.append((intent, line))
    return found


def _example(intent: str, text: str) -> Example:
    fixed = shipped_vocabulary().intents[intent].sources
    draft = PlanDraft("conversational" if looks_conversational(text) else "keyword", intent, list(fixed or ()))
    return Example(text, draft, knows_sources=fixed is not None, knows_facets=False, origin="asked")
