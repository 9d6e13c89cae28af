"""Events reach PostgreSQL once each, and a stream's bucket, whatever is away meanwhile or left out of a batch."""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pydantic import ValidationError

from peakplan.value.reading import sums
from service.api import outcome_log
from service.api.outcome_log import OutcomeLogError
from service.events.firehose import MOST_BYTES, MOST_RECORD_BYTES, MOST_RECORDS, FirehoseSink, batches, records
from service.events.journal import Journal
from service.events.shipping import Shipper, SinkError
from service.settings.groups import OutcomeSettings
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


ARN = "arn:aws:firehose:us-east-1:123456789012:deliverystream/peakplan-test-events"


class Stream:
    """A client whose answers leave out what `leaves_out` says, call by call; and then nothing."""

    def __init__(self, *leaves_out: set[int]) -> None:
        self._leaves_out, self.got, self.calls = list(leaves_out), [], 0  # type: ignore[var-annotated]

    def put_record_batch(self, DeliveryStreamName: str, Records: list[dict[str, bytes]]) -> dict[str, Any]:  # noqa: N803
        assert DeliveryStreamName == "peakplan-test-events"
        self.calls += 1
        out = self._leaves_out.pop(0) if self._leaves_out else set()
        self.got += [each["Data"] for place, each in enumerate(Records) if place not in out]
        told = [
            {"ErrorCode": "ServiceUnavailableException"} if place in out else {"RecordId": str(place)}
            for place in range(len(Records))
        ]
        return {"FailedPutCount": len(out), "RequestResponses": told}

    def close(self) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The bucket of a stream in moto."""
    for name, value in (("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        made = boto3.resource("s3", region_name="us-east-1").create_bucket(Bucket="peakplan-events")
        boto3.client("firehose", region_name="us-east-1").create_delivery_stream(
            DeliveryStreamName="peakplan-test-events",
            ExtendedS3DestinationConfiguration={
                "BucketARN": "arn:aws:s3:::peakplan-events",
                "RoleARN": "arn:aws:iam::123456789012:role/x",
                "Prefix": "events/",
            },
        )
        yield made


def content(bucket: Any) -> bytes:
    return b"".join(each.get()["Body"].read() for each in bucket.objects.all())


def test_events_and_plans_reach_the_bucket_as_lines_that_reports_read(bucket: Any, tmp_path: Path) -> None:
    plan = {"record": "plan", "request_id": "q", "caller": "shop", "time": 1.8e9, "release": "ami-1"}
    (tmp_path / "plans.jsonl").write_text(json.dumps(plan) + "\n", encoding="utf-8")
    journal = Journal([tmp_path], file_bytes=1_000_000, files=1)
    append(journal, *range(40))
    shipper = Shipper([*journal.paths, tmp_path / "plans.jsonl"], FirehoseSink(ARN))
    eventually(lambda: len(list(bucket.objects.all())) == 2, "what waited never arrived")
    shipper.close(PATIENCE)
    journal.close()
    kept = tmp_path / "peakplan-test-events-1-2026-11-23.gz"  # as Firehose names what it compresses
    kept.write_bytes(gzip.compress(content(bucket)))
    assert {json.loads(each).get("event_id") for each in content(bucket).splitlines()} == {
        None, *(f"event-{number:06}" for number in range(40)),
    }  # fmt: skip
    (release,) = sums([kept]).releases
    assert (release["name"], release["clicks"]) == ("ami-1", 0)  # clicks without a position are not in front


def test_what_the_stream_leaves_out_is_sent_again_alone() -> None:
    lines = [line(number, user_query="x" * 60_000) for number in range(6)]
    stream = Stream({1}, {0})
    FirehoseSink(ARN, stream, sleep=lambda _: None).take([each.rstrip(b"\n") for each in lines])
    assert sorted(b"".join(stream.got).splitlines(keepends=True)) == sorted(lines)
    assert stream.calls == 3


def test_a_stream_that_goes_on_refusing_or_is_not_there_is_away(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkError, match="ServiceUnavailableException"):
        FirehoseSink(ARN, Stream(*[{0}] * 9), sleep=lambda _: None).take([line(1)])
    with pytest.raises(SinkError, match="ResourceNotFoundException"):
        FirehoseSink(ARN.replace("test", "other")).take([line(1)])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SinkError, match="Firehose: "):
        FirehoseSink(ARN).take([line(1)])
    del bucket


def test_calls_stay_within_the_limits_of_the_interface() -> None:
    made = list(records([b"x" * 999 for _ in range(3000)] + [b""]))
    assert b"".join(made).count(b"\n") == 3000
    assert max(map(len, made)) <= MOST_RECORD_BYTES
    assert all(record.endswith(b"\n") for record in made)
    for given in (made * 9, [b"y\n"] * 1201):
        cut = list(batches(given))
        assert [record for batch in cut for record in batch] == given
        assert all(len(batch) <= MOST_RECORDS and sum(map(len, batch)) <= MOST_BYTES for batch in cut)


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    assert OutcomeSettings(dir=tmp_path, firehose=ARN).firehose == ARN
    for wrong in (
        {"firehose": ARN},
        {"dir": tmp_path, "firehose": "events"},
        {"firehose": ARN, "postgres": "x", "dir": tmp_path},
    ):
        with pytest.raises(ValidationError):
            OutcomeSettings(**wrong)  # type: ignore[arg-type]


def test_botocore_is_not_loaded_where_no_stream_is_set() -> None:
    """It takes a fifth of a second and 20 MB, which most services have no use for."""
    import subprocess
    import sys

    code = "import sys, service.api.outcome_log; sys.exit('botocore' in sys.modules or 'psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
