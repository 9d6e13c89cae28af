"""vLLM beside ours: how it is installed, started and judged. `tests/engines/openai/test_real_vllm.py` runs it."""

import json
import sys
from pathlib import Path

import pytest

from infra.fleet.vllm import on_processors
from rehearsal.bench.neuron_day.day import free_port
from rehearsal.bench.vllm import drafts, name_as_vllm, requirement, serving, summary

EXPORT = Path("/exported")


def test_its_build_for_processors_is_found_under_its_source_s_name(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    name_as_vllm(tmp_path)
    (described,) = packages.glob("vllm-*.dist-info/METADATA")
    number = requirement().partition("==")[2]
    assert f"Name: vllm\nVersion: {number}+cpu\n" in described.read_text(encoding="utf-8"), (
        "so it takes the CPU platform"
    )


def test_it_tells_nobody_of_this_machine_and_reads_our_grammars() -> None:
    way = drafts(EXPORT)["itself as a draft model"]
    server = on_processors("/exported", "planner", 8100, cores=(2, 3), length=512, speculation=way)
    assert server.environment["VLLM_NO_USAGE_STATS"] == server.environment["HF_HUB_OFFLINE"] == "1"
    assert server.environment["VLLM_CPU_OMP_THREADS_BIND"] == "2-3"
    named = dict(zip(server.arguments[4::2], server.arguments[5::2], strict=True))
    assert (named["--host"], named["--port"], named["--max-model-len"]) == ("127.0.0.1", "8100", "512")
    assert json.loads(named["--structured-outputs-config"]) == {"backend": "guidance"}
    assert json.loads(named["--speculative-config"])["method"] == "draft_model"


def test_an_eagle_head_is_tried_where_the_export_has_one(tmp_path: Path) -> None:
    assert "EAGLE-3" not in drafts(tmp_path)
    (tmp_path / "eagle").mkdir()
    assert drafts(tmp_path)["EAGLE-3"] == {
        "method": "eagle3", "model": str(tmp_path / "eagle"), "num_speculative_tokens": 4,
    }  # fmt: skip


def test_a_refused_plan_is_no_identical_one() -> None:
    found = summary(
        {"tokens": [(1, 2), None, (3,)], "ms": [10.0, 30.0, 20.0], "grammar_as": None}, [(1, 2), (4,), (5,)]
    )
    assert (found["plans"], found["refused"], found["identical_to_our_float32"]) == (3, 1, 1)
    assert (found["p50_ms"], found["plans_a_second"]) == (20.0, 50.0)


def program(folder: Path, does: str) -> Path:
    """A `vllm` of the test's own beside a Python."""
    vllm = folder / "vllm"
    vllm.write_text(f"#!/bin/bash\n{does}\n", encoding="utf-8")
    vllm.chmod(0o755)
    return folder / "python"


def test_one_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    python = program(tmp_path, "echo loading; echo no memory >&2; exit 3")
    with (
        pytest.raises(RuntimeError, match="loading / no memory"),
        serving(EXPORT, python, tmp_path / "log", port=free_port(), length=512),
    ):
        pytest.fail("it has not started")


def test_it_is_gone_after_the_block(tmp_path: Path) -> None:
    (tmp_path / "health").touch()
    port = free_port()
    python = program(tmp_path, f"cd {tmp_path}; exec {sys.executable} -m http.server {port} --bind 127.0.0.1")
    with serving(EXPORT, python, tmp_path / "log", port=port, length=512) as url:
        assert url == f"http://127.0.0.1:{port}/v1"
    with (
        pytest.raises(RuntimeError, match="it said nothing"),
        serving(EXPORT, program(tmp_path, "exit 1"), tmp_path / "log", port=port, length=512),
    ):
        pytest.fail("the first one still answers")
