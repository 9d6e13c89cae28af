"""The arithmetic of benchmarks, that no way is favoured by the order, and what a figure says of its machine."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rehearsal.bench import decoding
from rehearsal.bench.decoding import Series, compare, interleave, measure_breakdown
from rehearsal.bench.machine import machine_name, processor_name, processor_time, read_machines, write_machine
from rehearsal.bench.peers.limits import Limits, layer_weights
from rehearsal.server import serving
from rehearsal.triton import WARM_UP, Generate, side_by_side
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch_engine import load
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from service.weights.model_folder import LoadedModel, load_model
from tests.fake_models import result


def test_every_strategy_is_first_equally_often() -> None:
    order: list[str] = []

    def strategy(name: str) -> Callable[[Question], GenerationResult]:
        def plan(_: Question) -> GenerationResult:
            order.append(name)
            return result(seconds=0.0)

        return plan

    interleave({name: strategy(name) for name in "abc"}, [Question.parse(f"lamp {index}") for index in range(9)])
    firsts = order[5 * 3 :: 3]  # after the warm-up
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


def test_callers_share_the_questions_and_every_answer_counts() -> None:
    with serving({}, "tests.fake_server") as server:
        found = decoding._asked(server.url, [Question.parse(f"lamp {number}") for number in range(5)], 2)

    assert 0 < found["p50_ms"] <= found["p99_ms"] == found["max_ms"]
    assert found["answered_by_model"] == 1.0


@pytest.mark.parametrize(
    ("content", "expected"),
    [("cpu  10 2 3 80 1 0 1 3 0 0\ncpu0 5 1 1 40 0 0 0 1 0 0\n", (3, 100)), ("cpu 1 2 3 4\n", (0, 0)), ("", (0, 0))],
    ids=["Linux", "a sandbox's", "empty"],
)
def test_what_the_hypervisor_took_is_read_where_somebody_counts_it(
    tmp_path: Path, content: str, expected: tuple[int, int]
) -> None:
    (tmp_path / "stat").write_text(content, encoding="ascii")

    assert processor_time(tmp_path / "stat") == expected
    assert processor_time(tmp_path / "missing") == (0, 0)


@pytest.fixture(scope="module")
def loaded(tiny_model_dir: Path) -> LoadedModel:
    return load_model(tiny_model_dir, tiny_model_dir)


def test_a_forward_takes_the_longer_of_reading_and_multiplying() -> None:
    limits = Limits(106_000_000, 20.0, 64.0, "a ruler")

    assert limits.forward_ms(1) == pytest.approx(5.3)  # 106 MB at 20 GB/s
    assert limits.forward_ms(16) == pytest.approx(26.5)  # 1.7e9 multiplies at 64e9 a second
    assert limits.figure((1, 16))["forward_ms"] == {"1": 5.3, "16": 26.5}


def test_the_weights_of_the_layers_are_all_their_matrices(loaded: LoadedModel) -> None:
    matrices = [one for name, one in loaded.weights.items() if name.startswith("model.layers") and one.ndim == 2]
    assert layer_weights(loaded.config) == sum(one.numel() for one in matrices)


def test_a_run_replaces_its_own_machines_figures_alone(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "peers.json"
    assert read_machines(path) == {}
    write_machine(path, "Ryzen, avx2", {"p50": 1})
    write_machine(path, "EPYC, avx512vnni", {"p50": 2})
    write_machine(path, "Ryzen, avx2", {"p50": 3})

    assert read_machines(path) == {"EPYC, avx512vnni": {"p50": 2}, "Ryzen, avx2": {"p50": 3}}


@pytest.mark.parametrize(
    ("vendor", "name", "family", "model", "flags", "expected"),
    [
        ("AuthenticAMD", "AMD EPYC", 26, 2, "avx512f", "AMD EPYC Zen 5"),
        ("AuthenticAMD", "AMD EPYC", 25, 1, "avx2", "AMD EPYC Zen 3"),
        ("AuthenticAMD", "AMD EPYC", 25, 17, "avx512f", "AMD EPYC Zen 4"),
        ("AuthenticAMD", "AMD EPYC", 23, 49, "avx2", "AMD EPYC Zen 2"),
        ("AuthenticAMD", "AMD EPYC 7763 64-Core Processor", 25, 1, "avx2", "AMD EPYC 7763 64-Core Processor"),
        ("GenuineIntel", "Intel Xeon Processor", 6, 143, "avx512f", "Intel Xeon Processor"),
    ],
)
def test_a_processor_whose_name_says_little_is_named_by_its_generation(
    tmp_path: Path, vendor: str, name: str, family: int, model: int, flags: str, expected: str
) -> None:
    path = tmp_path / "cpuinfo"
    lines = f"vendor_id : {vendor}\ncpu family : {family}\nmodel : {model}\nmodel name : {name}\nflags : {flags}\n"
    path.write_text(lines, encoding="ascii")
    assert processor_name(path) == expected


def test_a_forced_kernel_is_a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEAKPLAN_KERNEL", raising=False)
    plain = machine_name("avx2")
    monkeypatch.setenv("PEAKPLAN_KERNEL", "avx2")
    assert machine_name("avx2") == f"{plain} (forced)"


def test_every_way_around_triton_is_asked_every_question_and_compared() -> None:
    asked: dict[str, list[str]] = {"in_process": [], "pipe": [], "triton": []}

    def way(name: str, *, wrong: str = "") -> Generate:
        async def generate(request: GenerationRequest) -> GenerationResult:
            asked[name].append(request.prompt)
            return replace(result(seconds=0.0), tokens=[0] if request.prompt == wrong else [int(request.prompt)])

        return generate

    requests = [GenerationRequest(prompt=str(number), grammar="") for number in range(12)]
    ways = {"in_process": way("in_process"), "pipe": way("pipe"), "triton": way("triton", wrong="7")}
    measured = asyncio.run(side_by_side(ways, requests))
    prompts = [request.prompt for request in requests]
    assert all(one == prompts[:WARM_UP] + prompts for one in asked.values())
    assert measured["identical_tokens"] == len(requests) - 1
