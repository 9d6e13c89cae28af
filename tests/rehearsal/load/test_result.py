import json
from pathlib import Path

from rehearsal.load.client import Sample
from rehearsal.load.report import write_report
from rehearsal.load.result import summarise


def sample(at: float, latency: float, source: str = "model", status: int = 200, error: str = "") -> Sample:
    reason = "capacity" if source == "fallback" else None
    body = json.dumps({"source": source, "timing_ms": {"model": 40.0, "queue": 0.5}, "reason": reason}).encode()
    return Sample(at=at, sent=at + 0.001, ended=at + latency, deadline=0.3, status=status, body=body, error=error)


SAMPLES = [
    sample(0.0, 0.1),
    sample(0.5, 0.31),
    sample(1.0, 0.01, "cache"),
    sample(1.2, 0.2, "fallback"),
    sample(1.5, 0.002, status=503),
    sample(1.6, 10.0, status=0, error="no answer"),
    sample(1.7, 0.36, "fallback"),
    sample(1.8, 0.01, status=500),
]


def test_a_run_in_numbers() -> None:
    result = summarise(SAMPLES, 2.0)
    assert next(iter(result)) == "planned_by_rule_share"
    assert result["planned_by_rule_share"] == 0.25
    assert result["planned_by_rule_because"] == {"capacity": 2}
    assert result["offered_per_second"] == 4.0
    assert result["goodput_per_second"] == 1.0
    assert result["sources"] == {"cache": 1, "failed": 2, "fallback": 2, "model": 2, "shed": 1}
    assert result["model_answers_in_deadline"] == 0.5
    assert result["answered_within_deadline_and_allowance"] == 0.625
    assert result["errors"] == {"no answer": 1, "status 500": 1}
    assert result["latency_ms_by_source"]["cache"]["p50"] == 10.0
    assert result["latency_ms"]["max"] == 10_000
    assert result["generator_lag_ms"]["p50"] == 1.0
    json.dumps(result)


def test_the_report_stands_alone_and_shows_every_plot(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, summarise(SAMPLES, 2.0), SAMPLES, "A <title>", "words & more")
    page = path.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    assert "A &lt;title&gt;" in page
    assert "words &amp; more" in page
    assert "http://" not in page.replace("data:", "")
    assert "no answer" in page
    assert "25.0%, capacity 2" in page
