"""What a siege says of bystanders and of stops, and a real stop while everything attacks."""

import asyncio
import json
import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rehearsal.client import Sample
from rehearsal.siege import attacks, bystanders, crossfire, probes
from service.settings.groups import OutcomeSettings
from tests.api.client import talking_to
from tests.fake_engines import FakeEngine
from tests.faults.under_load import MODULE
from tests.processes import eventually


def found(p99: float, by_rule: int, unanswered: int = 0) -> dict[str, Any]:
    alone = {"asked": 100, "p50_ms": 40.0, "p99_ms": 80.0, "by_rule": 1, "unanswered": 0}
    beside = {"asked": 100, "p50_ms": 50.0, "p99_ms": p99, "by_rule": by_rule, "unanswered": unanswered}
    return {"callers": 4, "rate": 4.0, "memory_mib": [100.0], "alone": alone, "beside": beside}


@pytest.mark.parametrize(
    ("beside", "shared", "lost"),
    [
        (found(160.0, 1), False, []),
        (found(161.0, 2), False,
         ["bystanders' p99 went from 80.0 to 161.0 ms", "bystanders' plans by the reader went from 1 to 2"]),
        (found(500.0, 90), True, []),
        (found(500.0, 90, unanswered=3), True, ["bystanders: 3 without a plan"]),
    ],
)  # fmt: skip
def test_bystanders_give_way_where_their_p99_doubles_or_rules_plan_for_them(
    beside: dict[str, Any], shared: bool, lost: list[str]
) -> None:
    assert bystanders.given_way(beside, shared=shared) == lost


def answered(source: str, milliseconds: float) -> Sample:
    body = json.dumps({"source": source, "reason": None, "timing_ms": {"model": 20, "queue": 1}}).encode()
    return Sample(1.0, 1.0, 1.0 + milliseconds / 1000, 0.3, 200, body)


def test_what_rules_plan_by_choice_is_not_lost_to_an_attack() -> None:
    samples = [answered("model", 40), answered("rules", 2), answered("rules", 2), answered("fallback", 100)]
    assert bystanders.told([*samples, Sample(1.0, 1.0, 1.3, 0.3, error="reset")]) == {
        "asked": 5,
        "p50_ms": 40.0,
        "p99_ms": pytest.approx(292, abs=1),
        "by_rule": 1,
        "by_choice": 2,
        "unanswered": 1,
    }


def test_whatever_honest_callers_lose_to_hostile_ones_is_told() -> None:
    quiet = {"asked": 100, "changed": 0, "refused": 0, "forgotten": 0, "p99_ms": 40.0}
    rounds = {"by address": {"quiet": quiet, "beside": quiet | {"p99_ms": 81.0}, "exit_code": 0}}
    assert crossfire.given_way(rounds, shared=True) == []
    assert crossfire.given_way(rounds, shared=False) == ["callers by address: p99 went from 40.0 to 81.0 ms"]
    rounds["by address"] |= {"beside": quiet | {"changed": 1, "refused": 2, "forgotten": 3}, "exit_code": -7}
    assert crossfire.given_way(rounds, shared=True) == [
        "callers by address: changed 1 of 100",
        "callers by address: refused 2 of 100",
        "callers by address: forgotten 3 of 100",
        "callers by address: it ended with -7",
    ]


@pytest.mark.anyio
async def test_an_honest_caller_loses_nothing_to_a_hostile_one_and_would_tell(tmp_path: Path) -> None:
    notes, rng = crossfire.Notes(), random.Random(1)
    engine = FakeEngine()
    async with talking_to(engine, outcomes=OutcomeSettings(dir=tmp_path / "kept")) as client:
        attacking = asyncio.create_task(crossfire.hostile(client, rng, notes))
        for _ in range(3):
            await crossfire.honest(client, rng, notes)
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    assert notes.counts["asked"] == 9
    assert notes.counts["changed"] == notes.counts["forgotten"] == 0
    async with talking_to(engine) as client:  # which keeps no events
        await crossfire.honest(client, rng, notes)
    assert notes.told()["refused"] >= 1


def test_an_attack_that_breaks_is_no_attack() -> None:
    """Stops were once measured beside callers whose process had ended with an error: nothing attacked."""
    with (
        pytest.raises(bystanders.NoAttackError, match="ended with 1"),
        bystanders.attacked(1, broken_attack, 1, bystanders.Pace(1, until_answered=False)) as attackers,
    ):
        eventually(lambda: not attackers.is_alive, "it goes on")


async def broken_attack(_port: int, _rng: random.Random, _tally: attacks.Tally) -> None:
    raise ZeroDivisionError


def test_the_controls_server_answers_every_head_and_whatever_else_comes() -> None:
    async def ask(port: int) -> tuple[bytes, bytes]:
        heads = [b"GET / HTTP/1.1\r\n\r\n" * 3, b"\x16\x03"]
        return tuple([await attacks.exchange(port, [each]) for each in heads])  # type: ignore[return-value]

    with bystanders.control_server() as port:
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in asyncio.run(ask(port)))
        found = asyncio.run(probes.fresh_connections(port, 0.2, 1))
    assert found["asked"] > 50
    assert found["refused"] == 0
    assert probes.fresh_given_way({**found, "in_time": 1.0}) == []
    assert probes.fresh_given_way({**found, "in_time": 0.9}) == ["fresh connections: 90.000% in time"]


def test_beside_callers_who_never_came_nothing_is_measured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    began = False
    with (
        pytest.raises(bystanders.NoAttackError, match=r"not all of 4 callers were answered within 0\.2 s"),
        bystanders.attacked(port, attacks.short_deadlines, seed=1, patience=0.2),
    ):
        began = True
    assert not began


def test_a_stop_that_is_killed_or_takes_longer_than_promised_gives_way() -> None:
    most = bystanders.most_seconds()
    assert bystanders.stops_given_way({"traces": {"seconds": most, "exit_code": 0}}) == []
    late = {"traces": {"seconds": most + 0.1, "exit_code": 0}, "outcomes": {"seconds": 60.0, "exit_code": None}}
    assert [line.partition(":")[0] for line in bystanders.stops_given_way(late)] == [
        "a stop during traces",
        "a stop during outcomes",
    ]


def test_an_answer_counts_though_the_service_resets_the_connection_before_all_is_sent() -> None:
    async def answer_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 413 Content Too Large\r\n\r\n")
        await writer.drain()
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    async def ask() -> bytes:
        async with await asyncio.start_server(answer_and_reset, "127.0.0.1", 0) as server:
            return await attacks.exchange(server.sockets[0].getsockname()[1], [b"x" * 1000] * 20, pause=0.001)

    assert uvloop.run(ask()).startswith(b"HTTP/1.1 413")
    assert asyncio.run(ask()).startswith(b"HTTP/1.1 413")


def test_only_a_sender_that_was_in_time_has_lost_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def tried() -> attacks.Tally:
        tally = attacks.Tally()
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            await attacks.attempt(tally, "a shape", server.sockets[0].getsockname()[1], [b"x"] * 3, {400}, pause=0.001)
        return tally

    tally = asyncio.run(tried())
    assert (tally.lost, tally.late, tally.wrong) == (1, 0, {"a shape: closed without an answer": 1})
    monkeypatch.setattr(attacks, "_SENDING_SECONDS", 0.0)
    tally = asyncio.run(tried())
    assert (tally.lost, tally.late, tally.wrong) == (0, 1, {})


@pytest.mark.slow
def test_it_stops_in_order_while_everything_attacks() -> None:
    stops = bystanders.stop_during_attacks({}, MODULE, each=False)
    assert {name: stop["exit_code"] for name, stop in stops.items()} == {bystanders.EVERYTHING: 0}
