"""A short hunt from the committed corpus; `peakplan tools fuzz` hunts for an hour."""

import contextlib
import io
import json
import re
import signal

import pytest

from rehearsal.bench.question_cost import CORPUS
from tests.fuzz import search
from tests.fuzz.search import FoundError, check, hunt
from tests.fuzz.targets import BUDGETS, TARGETS


@pytest.mark.parametrize("line", CORPUS.read_text(encoding="utf-8").splitlines())
@pytest.mark.parametrize("name", TARGETS)
def test_what_once_failed_or_cost_most_is_within_the_budget(name: str, line: str) -> None:
    assert 0 < check(name, json.loads(line)) <= BUDGETS[name]


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_hunt_finds_nothing(name: str) -> None:
    assert 0 < hunt(name, examples=20, number=1) <= BUDGETS[name]


def test_a_fault_and_a_cost_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(conversation: object) -> None:
        assert "nike" not in str(conversation)

    def costs(conversation: object) -> None:
        for _ in range(len(str(conversation))):
            pass

    monkeypatch.setitem(BUDGETS, "reading", 1000)
    for target, why in ((breaks, "AssertionError"), (costs, "operations")):
        monkeypatch.setitem(TARGETS, "reading", target)
        with pytest.raises(FoundError, match=why):
            hunt("reading", examples=200, number=1)


def test_what_never_ends_is_found_by_the_processor_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def loops(_: object) -> None:
        while True:
            with contextlib.suppress(Exception):
                re.match("(a*)*b", "a" * 30)

    monkeypatch.setitem(TARGETS, "reading", loops)
    monkeypatch.setattr(search, "MOST_SECONDS", 0.2)
    with pytest.raises(FoundError, match=r"reading: no end after 0.2 s of the processor: \['red shoes'\]"):
        check("reading", ["red shoes"])
    monkeypatch.setitem(TARGETS, "reading", lambda _: None)
    check("reading", ["red shoes"])
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0), "nothing else is stopped by it"


def test_one_conversation_is_tried_again_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """What atheris finds is: the code that it adds takes operations, too, and made four finds of nothing."""
    monkeypatch.setattr("sys.argv", ["search", "grammar", "-"])
    monkeypatch.setattr("sys.stdin", io.StringIO('["red shoes"]'))
    search.main()
    monkeypatch.setitem(BUDGETS, "grammar", 10)
    monkeypatch.setattr("sys.stdin", io.StringIO('["red shoes"]'))
    with pytest.raises(FoundError, match="operations"):
        search.main()
    assert check("grammar", ["red shoes"], 10_000_000) > 10
