"""What rules look for in English: words of phrases.txt, and the regular expressions of patterns.txt."""

import re

from service.planner.fallback.reading.en.data import PHRASES

_PATTERNS = dict(PHRASES.patterns(""))

COLORS = frozenset(PHRASES.phrases("facet.color"))
COLOR_MODIFIERS = PHRASES.words("word.color.modifiers")
MATERIALS = frozenset(PHRASES.phrases("facet.material"))
MATERIAL_MODIFIERS = PHRASES.words("word.material.modifiers")
SIZES = PHRASES.words("word.sizes")
SIZE_UNITS = PHRASES.words("word.size.units")
COUNT_UNITS = PHRASES.words("word.count.units")
AUDIENCES = frozenset(PHRASES.phrases("facet.audience"))
CONDITIONS = frozenset(PHRASES.phrases("facet.condition"))
OCCASIONS = PHRASES.words("word.occasions")
FEATURES = frozenset(PHRASES.phrases("facet.feature"))
NEGATIONS = PHRASES.words("word.negations")
ANSWERS = frozenset(("no", "nope", "nah"))  # which answer what was shown, before a mark
_DENIES = PHRASES.words("word.denies")
LINKS = PHRASES.words("word.links")
ARTICLES = PHRASES.words("word.articles")
JOINS = PHRASES.words("word.joins")
COMPARING = PHRASES.words("word.comparing")
GOVERNORS = PHRASES.words("word.governors")
SETS = PHRASES.words("word.sets")
FILLERS = PHRASES.words("word.fillers")  # words before the product that say nothing about it
QUESTION_VERBS = PHRASES.words("word.question.verbs")  # words that ask about a product and are not part of its name
TALK = PHRASES.words("word.talk")  # a whole utterance of these is talk
FOREIGN = PHRASES.spelt("word.foreign")
FUNCTION_WORDS = PHRASES.words("word.function")
UNSEARCHED = FUNCTION_WORDS | PHRASES.words("word.unsearched")  # name nothing to search for

LEAD_INS = _PATTERNS["lead ins"]
WISH = _PATTERNS["wish"]  # for products, though phrased as a question
REVIEW_QUESTION = _PATTERNS["review question"]
ASKING = _PATTERNS["asking"]  # about one product, in whatever form
COMPARISON = _PATTERNS["comparison"]
COMPARED = _PATTERNS["compared"]  # beyond doubt
ADVICE = _PATTERNS["advice"]
OUT_OF_SCOPE = _PATTERNS["out of scope"]
ORDERS = (_PATTERNS["aside.order"], _PATTERNS["aside.order.weak"])  # to a language model; the weak need more beside
SUPPORT_WORDS = _PATTERNS["support words"]
STRONG_SUPPORT = _PATTERNS["strong support"]  # whatever kind of thing stands at the end of the question
# Tried in order; the first match decides. All other questions are about products.
SUPPORT_INTENTS = [*PHRASES.patterns("support.")]
CONVERSATIONAL = re.compile(
    r"\?\s*$"
    r"|^(?:who|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|should|"
    r"has|have|may|might|please|show|find|give|get|tell|help|recommend|suggest|let|looking|searching|buy)\b"
    r"|\b(?:i|i'm|im|i'd|id|i'll|i've|ive|we|we're|my|me|(?<!thank )you|please|need|want|wanna|looking for)\b"
)
STATEMENT = re.compile(
    r"^(?:(?:and|but|so|because|since|cause),? )*(?:i|we|you|he|she|it|they|this|that|these|those|there|my \S+|our \S+)"
    r"(?:'s|'re|'m|'ve|'d|'ll)?\b"
)
REMARK = _PATTERNS["remark"]  # a sentence about people, not about a thing
WANTED = _PATTERNS["wanted"]  # what says that more is wanted
QUESTION_START = re.compile(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|but|well),? )*(?:is|are|was|were|does|do|did|can|could|will|would|has|have|"
    r"how|what|what's|whats|which|who|where|when|why|should)\b"
)
QUESTION = re.compile(rf"\?|{QUESTION_START.pattern}")
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


def denies(word: str) -> bool:
    """Tell whether a word can refuse another one near it: "not", "isn't", "hate"."""
    return word in _DENIES or word.endswith(("n't", "n’t"))
