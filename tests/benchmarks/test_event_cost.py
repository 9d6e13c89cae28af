"""What an event costs is measured of events that are answered as they are to be."""

import pytest

from benchmarks import event_cost


@pytest.mark.anyio
async def test_every_kind_of_event_is_answered_as_it_is_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_cost, "_ROUNDS", 1)
    monkeypatch.setattr(event_cost, "_REQUESTS", 20)
    found = await event_cost.measure()
    assert min(found.values()) > 0
    assert {"alone", "in lists of 64"} <= found.keys()


@pytest.mark.anyio
async def test_another_answer_than_was_to_be_ends_the_measurement() -> None:
    async def app(_: object, __: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 503})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"no disk"})  # type: ignore[operator]

    with pytest.raises(RuntimeError, match="answered 503, not 202: b'no disk'"):
        await event_cost.post(app, {}, 202)  # type: ignore[arg-type]
