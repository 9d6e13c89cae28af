"""Events reach PostgreSQL once each, whatever was away meanwhile: the database, or the process that sends them."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.api import outcome_log
from service.api.outcome_log import OutcomeLogError
from service.events.journal import Journal
from service.events.shipping import Shipper, SinkError
from tests.postgresql_server import postgresql
from tests.processes import PATIENCE, eventually


def line(number: int, **more: Any) -> bytes:
    known = {"caller": "shop", "event_id": f"event-{number:06}", "time": 1.8e9, "action_name": "click", "query_id": "q"}
    return json.dumps({"record": "event"} | known | more).encode() + b"\n"


class Away:
    """A sink that is away at first, and then keeps what it gets."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.got = failures, []  # type: ignore[var-annotated]

    def take(self, lines: Sequence[bytes]) -> None:
        if self.failures:
            self.failures -= 1
            raise SinkError("away")
        self.got += [json.loads(each)["event_id"] for each in lines if each]

    def close(self) -> None:
        pass


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal([tmp_path / "first", tmp_path / "spill"], file_bytes=2000, files=1000)
    yield made
    made.close()


def append(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        assert journal.append(line(number), 1).result(PATIENCE)


def test_events_wait_for_a_sink_that_is_away_through_rotation_and_restart(journal: Journal) -> None:
    append(journal, *range(50))
    first = Away(failures=1)
    shipper = Shipper(journal.paths, first)
    eventually(lambda: len(first.got) == 50, "what waited never arrived")
    journal.listener = shipper.wake
    append(journal, *range(50, 60))
    eventually(lambda: len(first.got) == 60, "the newest never arrived")
    shipper.close()
    append(journal, *range(60, 100))
    second = Away()
    again = Shipper(journal.paths, second)
    eventually(lambda: len(second.got) == 40, "what came meanwhile never arrived")
    again.close()
    assert first.got + second.got == [f"event-{number:06}" for number in range(100)]


def test_postgresql_gets_each_event_once_and_odd_ones_too(journal: Journal) -> None:
    import psycopg

    from service.events.postgres import PostgresSink

    with postgresql() as url:
        with psycopg.connect(url) as connection:  # as releases before made it
            connection.execute(
                "CREATE TABLE peakplan_events (caller text NOT NULL, event_id text NOT NULL, received timestamptz,"
                "action_name text NOT NULL, query_id text NOT NULL, client_id text, event jsonb NOT NULL,"
                "PRIMARY KEY (caller, event_id))"
            )
        sink = PostgresSink(url)
        odd = line(3, user_query="nul \x00 and \\u0000 and ü", client_id=None)
        sink.take([line(1), line(2), line(1), odd])
        sink.take([line(2), line(4), line(4, query_id="another plan")])
        shipper = Shipper(journal.paths, sink)
        journal.listener = shipper.wake
        append(journal, 4, 5)

        def kept() -> list[Any]:
            with psycopg.connect(url) as connection:
                return connection.execute("SELECT event_id, event FROM peakplan_events ORDER BY event_id").fetchall()

        eventually(lambda: len(kept()) == 6, "the journal's events never arrived")
        shipper.close()
        assert [row[0] for row in kept()] == [f"event-{number:06}" for number in (1, 2, 3, 4, 4, 5)]
        assert "ü" in kept()[2][1]["user_query"]
    with pytest.raises(SinkError):
        PostgresSink(url).take([line(9)])


def test_a_database_without_its_library_is_told_before_the_service_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "service.events.postgres", raising=False)
    with pytest.raises(OutcomeLogError, match=r"psycopg, which is not installed: pip install 'peakplan\[postgres\]'"):
        outcome_log._postgres("postgresql:///shop")
