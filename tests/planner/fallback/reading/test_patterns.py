"""No pattern of the rules backtracks for long: what one search costs, no operation of the interpreter counts.

Each is searched in texts that are made of its own words, again and again, beside a pattern that never backtracks.
"""

import json
import random
import re
import subprocess
import sys
import time

import pytest

_CHARACTERS = 512
_ROUNDS = 150
_MOST_TIMES = 120  # what the plain pattern takes; the dearest takes 25 to 60, one with two nested repeats 250
_PLAIN = re.compile(r"(?<!x)(?:[abc]z|[def]z|[ghi]z|[jkl]z)")
_WORD = re.compile(r"[a-zà-ÿ']{1,12}|[,.?!$€:/&-]")
_SYNTAX = re.compile(r"\\[a-zA-Z]|\(\?P?<?[a-z!=:<>]*")
# Notes every pattern that the service compiles while it reads questions in each of its languages.
_NOTED = """
import json, re, sys
found, real = {}, re.compile
def noted(pattern, flags=0):
    made = real(pattern, flags)
    if isinstance(made.pattern, str) and sys._getframe(1).f_globals["__name__"].startswith("service."):
        found[made.pattern] = made.flags
    return made
re.compile = noted
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.fallback.reading import readers
from service.planner.vocabulary import shipped_vocabulary
readers.prepare()
questions = ["shoes with 4 stars", "zapatos rojos de menos de 50 euros", "rote schuhe bitte", "chaussures rouges"]
for text in questions:
    plan_by_rule(PlanTask(Question.parse(text, ["hello"]), shipped_vocabulary()).conversation, shipped_vocabulary())
print(json.dumps([[pattern, int(flags)] for pattern, flags in found.items() if len(pattern) > 40]))
"""


def _seconds(pattern: re.Pattern[str], text: str) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        pattern.search(text)
        times.append(time.thread_time() - started)
    return min(times)


def _texts(pattern: re.Pattern[str], rng: random.Random) -> list[str]:
    """Return texts of the pattern's own words, repeated up to the allowed length."""
    words = _WORD.findall(_SYNTAX.sub("|", pattern.pattern)) or ["x"]
    texts = []
    for _ in range(_ROUNDS):
        piece = "".join(rng.choice(words) + rng.choice((" ", " ", "")) for _ in range(rng.choice((1, 1, 2, 2, 3, 5))))
        texts.append((piece * _CHARACTERS)[:_CHARACTERS])
    return texts


def _most_times(pattern: re.Pattern[str]) -> float:
    """Return how many times as long as the plain pattern this one takes at worst."""
    rng = random.Random(1)
    dearest = max(_texts(pattern, rng), key=lambda text: _seconds(pattern, text))
    return _seconds(pattern, dearest) / max(_seconds(_PLAIN, dearest), 1e-6)


@pytest.fixture(scope="module")
def patterns() -> list[re.Pattern[str]]:
    """Every longer pattern that reading compiles."""
    done = subprocess.run([sys.executable, "-c", _NOTED], capture_output=True, text=True, check=True)
    return [re.compile(pattern, flags) for pattern, flags in json.loads(done.stdout)]


def test_no_pattern_backtracks_for_long(patterns: list[re.Pattern[str]]) -> None:
    assert len(patterns) > 40
    costs = {pattern.pattern[:60]: _most_times(pattern) for pattern in patterns}
    assert {name: cost for name, cost in costs.items() if cost > _MOST_TIMES} == {}


def test_a_pattern_that_does_would_be_found() -> None:
    assert _most_times(re.compile(r"\b(?:.{3,60} or .{2,60}[,?] ?which.*)\b")) > _MOST_TIMES
