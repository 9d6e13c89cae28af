"""Drafts are counted as vLLM names them: how many, of how many tokens, how many accepted, and at which position."""

from service.telemetry.metrics import Metrics, Outcome, Reading


def exposed(metrics: Metrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    found = [line.rsplit(" ", 1) for line in lines if line.startswith("peakplan_spec_decode")]
    return {name: float(value) for name, value in found if "_created" not in name}


def planned(drafts: int, tokens: int, *accepted: int) -> Outcome:
    return Outcome(
        source="model",
        milliseconds=10,
        degraded=False,
        drafts=drafts,
        draft_tokens=tokens,
        accepted_by_position=accepted,
    )


def test_the_acceptance_rate_is_told_whole_and_by_position() -> None:
    metrics = Metrics(Reading, 300)
    for outcome in (planned(3, 30, 3, 1), planned(2, 20, 1), planned(1, 10)):
        metrics.planned(outcome)
    metrics.planned(Outcome(source="fallback", milliseconds=1, degraded=True))
    found = exposed(metrics)
    per_position = "peakplan_spec_decode_num_accepted_tokens_per_pos_total"
    assert found["peakplan_spec_decode_num_drafts_total"] == 6
    assert found["peakplan_spec_decode_num_draft_tokens_total"] == 60
    assert found["peakplan_spec_decode_num_accepted_tokens_total"] == 5
    assert found[f'{per_position}{{position="0"}}'] == 4
    assert found[f'{per_position}{{position="1"}}'] == 1
    assert found[f'{per_position}{{position="7"}}'] == 0, "a position that was never accepted shows as 0"
