"""Price bounds from the phrases that name them ("under $50", "between 15 and 37", "200 bucks or less"), by rule."""

import re
from collections.abc import Iterable

from service.planner.numbers import find_numbers
from service.planner.question import Question

# Every repeat is bounded, so that no text makes a search slower than linear.
_DIGITS = r"[$£€¥]?\s?(?:\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(?:\.\d{1,2})?k?(?!\w|[.,]\d)"
_SPELLED_WORD = (
    "a|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|grand"
)
_SPELLED = rf"(?:{_SPELLED_WORD})(?:[\s-](?:{_SPELLED_WORD})){{0,6}}\b"
_AMOUNT = rf"((?:{_DIGITS})|(?:{_SPELLED}))"
_MONEY = r"(?:\s*(?:dollars?|bucks?|usd|eur|euros?|gbp|quid))?"
# Units after a number that show that it is not money.
_NO_UNIT = (
    r"(?!\s*(?:-\s*)?(?:%|\"|'|inch|inches|in\b(?!\s+(?:price|cost|total))|ft|feet|foot|yards?|miles?|mm|cm|m\b|meters?|"
    r"lbs?|pounds?|oz|ounces?|kg|grams?|g\b|mg|gb|gigs?|gigabytes?|tb|mb|years?|yrs?|yo\b|months?|weeks?|days?|hours?|"
    r"minutes?|mins?|mph|watts?|w\b|volts?|v\b|amps?|ml|liters?|litres?|gallons?|quarts?|calories|carbs?|mp\b|hz|"
    r"degrees?|diameter|people|persons?|players?|pieces?|pcs|packs?|count|ct\b|stars?|thread|reviews?)\b)"
)
_LOW_WORD = r"(?:over|above|more than|at least|no less than|starting (?:at|from)|min(?:imum)?(?: of)?|from)"
_HIGH_WORD = (
    r"(?:under|below|less than|lower than|cheaper than|up to|upto|at most|no more than|not more than|not over|"
    r"max(?:imum)?(?: of)?|within|budget(?: (?:of|is|around))?|<)"
)
_PRICED = r"(?:\s+(?:in )?(?:price|cost))?\s*"
_BETWEEN = re.compile(rf"\b(?<!size )between\s+{_AMOUNT}{_MONEY}\s+(?:and|to|-)\s+{_AMOUNT}{_MONEY}{_NO_UNIT}")
_RANGE = re.compile(rf"(?:\bfrom\s+)?(?<![\w.]){_AMOUNT}{_MONEY}\s*(?:-|–|to)\s*{_AMOUNT}{_MONEY}{_NO_UNIT}")
_HIGH = re.compile(rf"(?<!\w){_HIGH_WORD}{_PRICED}{_AMOUNT}(?!\s*-\s*\d){_MONEY}{_NO_UNIT}")
_LOW = re.compile(rf"(?<!\w)(?<!not )(?<!no ){_LOW_WORD}{_PRICED}{_AMOUNT}{_MONEY}{_NO_UNIT}")
_OR_LESS = re.compile(rf"(?<![\w.]){_AMOUNT}{_MONEY}\s+(?:or (?:less|under|below|cheaper)|max(?:imum)?|tops|at most)\b")
_OR_MORE = re.compile(
    rf"(?<![\w.]){_AMOUNT}{_MONEY}\s*(?:or (?:more|above|over|up)|and (?:up|above|over)|\+{_MONEY}|minimum)(?!\w)"
)
_LONE = re.compile(rf"[$£€¥]\s?\d[\d,.]{{0,12}}k?\b|(?<![\w.]){_AMOUNT}\s*(?:dollars?|bucks?|usd|euros?|quid)\b")
_IS_MONEY = re.compile(r"[$£€¥]|dollar|buck|usd|eur|gbp|quid|price|cost|budget|or (?:less|cheaper|under|below)")


def price_bounds(question: Question) -> tuple[float | None, float | None]:
    """Return (lower, upper) from the newest utterance that mentions a price; both are in `question.numbers`."""
    if not question.numbers:
        return None, None
    for utterance in reversed(question.utterances):
        low, high = _bounds_in(utterance.lower())
        low, high = (bound if bound in question.numbers else None for bound in (low, high))
        if low is not None or high is not None:
            return (high, low) if low is not None and high is not None and low > high else (low, high)
    return None, None


def _bounds_in(text: str) -> tuple[float | None, float | None]:
    for pattern, says_price in ((_BETWEEN, True), (_RANGE, False)):
        if (match := pattern.search(text)) and (says_price or _IS_MONEY.search(match.group())):
            return _value(match.group(1)), _value(match.group(2))
    low = _first(text, ((_LOW, True), (_OR_MORE, False)))
    high = _first(text, ((_HIGH, True), (_OR_LESS, False)))
    if low is None and high is None and len(lone := list(_LONE.finditer(text))) == 1:
        high = _value(lone[0].group())  # "$10 candles": a single amount is taken as an upper bound
    return low, high


def _first(text: str, patterns: Iterable[tuple[re.Pattern[str], bool]]) -> float | None:
    """Return the first match's amount. Ambiguous patterns ("9+", "iphone 11 max") must name money."""
    for pattern, says_price in patterns:
        for match in pattern.finditer(text):
            vague = not says_price or match.group().startswith(("from", "within"))
            if not vague or _IS_MONEY.search(match.group()):
                return _value(match.group(1))
    return None


def _value(amount: str) -> float | None:
    numbers = find_numbers(amount)
    return numbers[0] if numbers else None
