"""Searches for conversations that fail a target or cost most: hypothesis, led to more work by each byte."""

import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st

from rehearsal.bench.machine import operations
from rehearsal.bench.question_cost import CORPUS, PIECES
from tests.fuzz.targets import BUDGETS, TARGETS, Conversation

_WORDS = st.sampled_from([*PIECES, *"shoes red nike under over $20 cheapest not or and , find Type Any".split()])
_PIECES = st.one_of(_WORDS, st.text(min_size=1, max_size=6))
_TEXTS = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=60).map(" ".join),
    st.builds(lambda piece, times: piece * times, _PIECES, st.integers(1, 256)),
    st.text(min_size=1, max_size=300),
)
CONVERSATIONS = st.lists(_TEXTS.map(lambda text: text[:512]), min_size=1, max_size=9)


class FoundError(AssertionError):
    """A conversation that failed a target: it belongs into the corpus, and what it found has to be mended."""

    def __init__(self, name: str, conversation: Conversation, why: str) -> None:
        super().__init__(f"{name}: {why}: {conversation!r}")
        self.conversation = list(conversation)


class _EndlessError(BaseException):
    """Raised in the midst of work, where nothing that is ready for faults takes it for one."""


MOST_SECONDS = 60.0  # of the processor, for an input whose operations nobody could count to their end


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise _EndlessError where what is done takes more of the processor.

    The clock on the wall tells how busy the machine is: by it, 3 ms of work were once a find, and no case.
    """

    def stop(*_: object) -> None:
        raise _EndlessError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check(name: str, conversation: Conversation, ceiling: int | None = None) -> int:
    """Return the operations that a target takes, at most its budget or `ceiling`. Raises FoundError."""
    work, most = TARGETS[name], ceiling or BUDGETS[name]
    try:
        with _within(MOST_SECONDS):
            count = operations(lambda: work(conversation))
            if count > most:  # the first time it may have read a list
                count = operations(lambda: work(conversation))
    except _EndlessError as error:
        raise FoundError(name, conversation, f"no end after {MOST_SECONDS:g} s of the processor") from error
    except Exception as error:
        raise FoundError(name, conversation, f"{type(error).__name__}: {error}") from error
    if count > most:
        raise FoundError(name, conversation, f"{count} operations")
    return count


def hunt(name: str, examples: int, number: int) -> int:
    """Try so many conversations, return the most operations of one. Raises FoundError with the smallest that fails."""
    most = 0

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              phases=(Phase.generate, Phase.target, Phase.shrink))  # fmt: skip
    @given(CONVERSATIONS)
    def tries(conversation: list[str]) -> None:
        nonlocal most
        count = check(name, conversation)
        most = max(most, count)
        target(float(count), label="operations")
        target(count / max(1, sum(len(text.encode("utf-8", "replace")) for text in conversation)), label="by byte")

    tries()
    return most


def main() -> None:
    """Hunt one target until the time is up: `python -m tests.fuzz.search TARGET SECONDS`.

    With "-" instead of seconds, try the conversation of standard input.
    """
    if sys.argv[2] == "-":
        check(sys.argv[1], json.load(sys.stdin))
        return
    name, end, number = sys.argv[1], time.monotonic() + float(sys.argv[2]), 0
    first = random.randrange(2**32)  # what an earlier search tried is not for this one
    while time.monotonic() < end:
        try:
            hunt(name, 100, first + number)
        except FoundError as found:
            with CORPUS.open("a", encoding="utf-8") as corpus:
                corpus.write(json.dumps(found.conversation) + "\n")
            raise
        number += 1
    print(f"{100 * number} conversations tried")


if __name__ == "__main__":
    main()
