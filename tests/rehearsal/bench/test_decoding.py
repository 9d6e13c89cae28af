"""The arithmetic of the benchmark, and that no strategy is favoured by the order."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.bench import decoding
from rehearsal.bench.decoding import Series, compare, interleave, measure_breakdown
from rehearsal.bench.machine import quantile
from rehearsal.server import serving
from service.engines.protocol import GenerationResult
from service.engines.torch_engine import load
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig


def _result(*tokens: int, forwards: int) -> GenerationResult:
    return GenerationResult(
        text="",
        tokens=list(tokens),
        stop_reason="finished",
        prompt_tokens=1,
        plan_tokens=len(tokens),
        forwards=forwards,
        decisions=forwards,
        forced_tokens=0,
        seconds=0.0,
    )


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_quantiles_are_nearest_rank(share: float, expected: int) -> None:
    assert quantile(range(1, 101), share) == expected


def test_every_strategy_is_first_equally_often() -> None:
    order: list[str] = []

    def strategy(name: str) -> Callable[[Question], GenerationResult]:
        def plan(_: Question) -> GenerationResult:
            order.append(name)
            return _result(1, forwards=1)

        return plan

    questions = [Question.parse(f"lamp {index}") for index in range(9)]
    interleave({name: strategy(name) for name in "abc"}, questions)
    measured = order[5 * 3 :]  # after the warm-up
    firsts = measured[::3]
    assert [firsts.count(name) for name in "abc"] == [3, 3, 3]


def test_tokens_a_forward_are_of_all_questions() -> None:
    series = Series([10.0, 20.0], [2, 3], [(1, 2), (3, 4, 5)])

    assert (series.summary()["forwards"], series.summary()["tokens_per_forward"]) == (2.5, 1.0)


def test_comparison_counts_forwards_and_equal_tokens() -> None:
    medusa = Series([10.0, 20.0], [2, 3], [(1, 2), (3,)])
    greedy = Series([30.0, 40.0], [5, 5], [(1, 2), (4,)])
    figures = compare({"greedy with fast-forward": greedy, "medusa": medusa})

    assert figures["identical_to_greedy"] == 0.5
    assert figures["forwards_share_of_greedy"] == 0.5
    assert figures["speedup_p50"] == {"greedy with fast-forward": round(35 / 15, 2)}


def test_the_breakdown_accounts_for_the_whole_of_a_plan(tiny_model_dir: Path) -> None:
    model = load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))
    measured = measure_breakdown(
        model, shipped_vocabulary(), None, [Question.parse("red shoes under $40"), Question.parse("blue duvet cover")]
    )
    assert set(measured) == {"greedy with fast-forward", "medusa"}
    for row in measured.values():
        parts = ("prompt_forward_ms", "other_forwards_ms", "drafting_ms", "verifying_ms", "grammar_and_rest_ms")
        assert sum(row[part] for part in parts) == pytest.approx(row["whole_ms"], abs=0.1)
    assert measured["medusa"]["rows_an_other_forward"] > measured["greedy with fast-forward"]["rows_an_other_forward"]


def test_its_figure_is_printed_as_json_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series = {"greedy": Series([10.0, 20.0], [2, 3], [(1, 2), (3, 4, 5)])}
    row = series["greedy"].summary()
    figure = {
        "kernel": "avx2",
        "forced": False,
        "strategies": {"greedy": row},
        "medusa": {},
        "service": {"p50_ms": 15.0},
    }
    monkeypatch.setattr(decoding, "measured", lambda *_: (figure, series))
    monkeypatch.setattr(decoding, "plot_decoding", lambda *_: None)
    monkeypatch.setattr(decoding, "turns_of", lambda _: {"turns": []})
    output = tmp_path / "decoding.json"
    for words in (["--json"], []):
        command = ["peakplan bench", "--model", "x", "--output", str(output), *words]
        monkeypatch.setattr("sys.argv", command)
        decoding.main()
        said = capsys.readouterr().out
        assert (json.loads(said) == figure) if words else (str(row["p50_ms"]) in said)
    (kept,) = json.loads(output.read_text(encoding="utf-8"))["machines"].values()
    assert kept["strategies"] == figure["strategies"]


def test_callers_share_the_questions_and_every_answer_counts() -> None:
    with serving({}, "tests.fake_server") as server:
        found = decoding._asked(server.url, [Question.parse(f"lamp {number}") for number in range(5)], 2)

    assert 0 < found["p50_ms"] <= found["p99_ms"] == found["max_ms"]
    assert found["answered_by_model"] == 1.0
