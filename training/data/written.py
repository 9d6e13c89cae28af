"""Our own training material: kinds of product by vertical, search queries with their spans, sentences with an intent.

The taxonomy's ten thousand names and 7,816 labelled queries cover little of the world's products, brands and titles,
and a small model knows few of them. The files were written by a language model that saw the training rows and no dev
row; names of a dev row's category are left out when the files are read. Of sentences (`asked.txt`) the intent alone is
known, and a tenth of them is for dev.
"""

from functools import cache
from pathlib import Path

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example, MarkedText
from training.data.rows import VERTICAL_CODES, LabelledQuery, Split, held_out, looks_conversational

SENTENCES = Path(__file__).with_name("asked.txt")


@cache
def asked_examples(split: Split) -> list[Example]:
    """Return the sentences of a split: a tenth, by a hash of the words, is dev."""
    return [_example(intent, text) for intent, text in asked_sentences() if held_out(text.lower()) == (split == "dev")]


def asked_sentences(path: Path = SENTENCES) -> list[tuple[str, str]]:
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


_FOLDER = Path(__file__).parent
PRODUCTS = _FOLDER / "products.txt"
QUERIES = _FOLDER / "queries.txt"
FACET_LETTERS = {
    "t": "type", "b": "brand", "l": "line", "m": "model", "f": "feature", "c": "color", "x": "material", "s": "size",
    "h": "shape", "a": "audience", "o": "occasion", "k": "theme", "q": "count", "d": "condition", "g": "origin",
    "y": "time",
}  # fmt: skip


def product_names(path: Path = PRODUCTS) -> list[tuple[str, str]]:
    """Return (name, vertical) of every kind of product: one per line, under its vertical in brackets."""
    found: list[tuple[str, str]] = []
    vertical = None
    for number, line in _lines(path):
        if line.startswith("["):
            vertical = VERTICAL_CODES.get(line.strip("[]"))
        elif vertical is None:
            raise ValueError(f"{path.name}:{number}: {line!r} is under no vertical")
        else:
            found.append((line, vertical))
    return found


def labelled_queries(path: Path = QUERIES) -> list[LabelledQuery]:
    """Return every query: its vertical, then its words; `phone_case/t` is a two-word span and `best` has no label."""
    return [_labelled(line, f"{path.name}:{number}") for number, line in _lines(path)]


def _labelled(line: str, where: str) -> LabelledQuery:
    code, *runs = line.split()
    if code not in VERTICAL_CODES or not runs:
        raise ValueError(f"{where}: {line!r} does not begin with a vertical and go on with words")
    words: list[str] = []
    spans: list[FacetSpan] = []
    for run in runs:
        text, marked, letter = run.rpartition("/")
        value = (text if marked else run).split("_")
        if marked:
            if letter not in FACET_LETTERS:
                raise ValueError(f"{where}: {run!r} names no facet; the letters are {' '.join(FACET_LETTERS)}")
            spans.append(FacetSpan(FACET_LETTERS[letter], len(words), len(words) + len(value) - 1))
        words += value
    return LabelledQuery(MarkedText(tuple(words), tuple(spans)), vertical=VERTICAL_CODES[code])


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the numbered lines that are neither empty nor comments."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [(number, line.strip()) for number, line in lines if line.strip() and not line.startswith("#")]
