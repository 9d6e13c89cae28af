"""What rules look for in English: words of phrases.txt, and the regular expressions of patterns.txt."""

import re
from functools import cache
from pathlib import Path

from service.planner.reading.en.data import PHRASES
from service.planner.reading.phrase_file import lines_of_sections

_PATTERNS = Path(__file__).with_name("patterns.txt")


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Compile the alternatives of each section."""
    sections = lines_of_sections(_PATTERNS)
    parts = dict(line.split(" = ", 1) for line in sections.pop("parts"))
    found = {}
    for name, lines in sections.items():
        alternatives = "|".join(lines)
        for part, pattern in parts.items():
            alternatives = alternatives.replace(f"{{{part}}}", pattern)
        found[name] = re.compile(rf"\b(?:{alternatives})\b")
    return found


COLORS = PHRASES.words("colors")
COLOR_MODIFIERS = PHRASES.words("color.modifiers")
MATERIALS = PHRASES.words("materials")
MATERIAL_MODIFIERS = PHRASES.words("material.modifiers")
SIZES = PHRASES.words("sizes")
SIZE_UNITS = PHRASES.words("size.units")
COUNT_UNITS = PHRASES.words("count.units")
AUDIENCES = PHRASES.words("audiences")
CONDITIONS = PHRASES.words("conditions")
OCCASIONS = PHRASES.words("occasions")
FEATURES = PHRASES.words("features")
NEGATIONS = PHRASES.words("negations")
LINKS = PHRASES.words("links")
ARTICLES = PHRASES.words("articles")
JOINS = PHRASES.words("joins")
COMPARING = PHRASES.words("comparing")
GOVERNORS = PHRASES.words("governors")
SETS = PHRASES.words("sets")
FILLERS = PHRASES.words("fillers")  # words before the product that say nothing about it
QUESTION_VERBS = PHRASES.words("question.verbs")  # words that ask about a product and are not part of its name
TALK = PHRASES.words("talk")  # a whole utterance of these is talk
FOREIGN = PHRASES.words("foreign")
FUNCTION_WORDS = PHRASES.words("function")
UNSEARCHED = FUNCTION_WORDS | PHRASES.words("unsearched")  # name nothing to search for

LEAD_INS = _patterns()["lead ins"]
WISH = _patterns()["wish"]  # for products, though phrased as a question
REVIEW_QUESTION = _patterns()["review question"]
ASKING = _patterns()["asking"]  # about one product, in whatever form
COMPARISON = _patterns()["comparison"]
COMPARED = _patterns()["compared"]  # beyond doubt
TITLES = _patterns()["titles"]  # after "vs" these say that a title is meant: "kramer vs kramer dvd"
ADVICE = _patterns()["advice"]
OUT_OF_SCOPE = _patterns()["out of scope"]
SLOGAN = _patterns()["slogan"]
SUPPORT_WORDS = _patterns()["support words"]
STRONG_SUPPORT = _patterns()["strong support"]  # whatever kind of thing stands at the end of the question
# Tried in order; the first match decides. All other questions are about products.
SUPPORT_INTENTS = [
    (name.removeprefix("support."), pattern) for name, pattern in _patterns().items() if name.startswith("support.")
]
CONVERSATIONAL = re.compile(
    r"\?\s*$"
    r"|^(?:who|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|should|"
    r"has|have|may|might|please|show|find|give|get|tell|help|recommend|suggest|let|looking|searching|buy)\b"
    r"|\b(?:i|i'm|im|i'd|id|i'll|i've|ive|we|we're|my|me|(?<!thank )you|please|need|want|wanna|looking for)\b"
)
QUESTION_START = re.compile(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|but|well),? )*(?:is|are|was|were|does|do|did|can|could|will|would|has|have|"
    r"how|what|what's|whats|which|who|where|when|why|should)\b"
)
FOLLOW_UP = re.compile(
    r"^(?:(?:and|or|but|ok|okay|no|hmm|actually|then|sorry|well|yes|maybe|perhaps|just),? )*(?:(?:what|how) about|"
    r"in|with|without|under|over|below|above|but|and|or|something|anything|any|do (?:you|they) have (?:it|this|that|"
    r"them|one|any)|have it|show me (?:the|ones|some)|make (?:it|that)|only|cheaper|bigger|smaller|larger|instead|for|"
    r"same|the same|size|from|by|switch|change|i(?:'d| would) (?:prefer|rather)|i prefer|is there (?:one|a|something)|"
    r"could it|it should|it's for|it is for|i meant|must be|preferably|not|no|don't|i don't|except|these|those|which|"
    r"are (?:there|any|they)|can (?:it|you|i))\b|\b(?:instead|rather than|only|ones?|please|version)\s*[.!?]?$"
)
GREETING = re.compile(
    r"^(?:(?:hi|hey|hello|um|ok|okay|so|well|there|excuse me|good (?:morning|afternoon|evening))[,!.]* )+"
)
