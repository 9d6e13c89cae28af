"""Peers are measured in turns, in processes of their own, one that fails stops no other; vLLM is started and judged.

`tests/engines/openai/test_real_servers.py` runs vLLM itself.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from infra.fleet.vllm import on_processors
from rehearsal.bench.neuron_day.day import free_port
from rehearsal.bench.peers.__main__ import (
    AGREEMENT_QUESTIONS,
    OURS,
    Answered,
    Asked,
    Ours,
    PeerError,
    PeerProcess,
    compare,
    measure,
)
from rehearsal.bench.peers.checkpoint import prepare, write_gguf
from rehearsal.bench.peers.engines import token_names
from rehearsal.bench.peers.environment import PEERS, requirements, why_not_installed
from rehearsal.bench.peers.worker import PEERS as WORKER_PEERS
from rehearsal.bench.peers.worker import Worker, greedy, to_gbnf
from rehearsal.bench.vllm import drafts, serving, summary
from service.decoding.constraint import GrammarCompiler
from service.decoding.llama import Llama
from service.planner.grammar import plan_grammar
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.weights.gguf_base import convert_gguf
from service.weights.model_folder import load_model

ASKED = [Asked([1, index], "", 8) for index in range(6)]
# Answers like worker.py, as the environment variable FAKE says: it may die, hang, or refuse a plan.
_FAKE_WORKER = """
import base64, json, os, sys, time
how = os.environ["FAKE"]
for line in sys.stdin:
    request = json.loads(line)
    if how == "dies":
        sys.exit("no such file: weights")
    if how == "hangs":
        time.sleep(60)
    if how == "refuses plans" and request["do"] == "plan":
        answer = {"error": "ValueError: no grammars here"}
    elif request["do"] == "load":
        answer = {"package": "fake 1", "note": "", "plans": ["our grammar"]}
    elif request["do"] == "forward":
        answer = {"ms": [float(request["rows"])] * request["times"]}
    elif request["do"] == "logits":
        count = int(os.environ["VOCABULARY"])  # zeros and ones by turns
        logits = (b"\\0\\0\\0\\0\\0\\0\\x80\\x3f" * (count // 2 + 1))[: 4 * count]
        answer = {"logits": base64.b64encode(logits).decode(), "token": 1}
    else:
        answer = {"ms": 5.0, "tokens": [7], "forwards": 2}
    print(json.dumps(answer), flush=True)
"""


def _worker(how: str) -> PeerProcess:
    return PeerProcess([sys.executable, "-c", _FAKE_WORKER], {"FAKE": how})


class _Engine:
    """An engine that records its calls and fails from a given call on."""

    plans: Sequence[str] = ("our grammar",)

    def __init__(self, name: str, log: list[tuple[str, str]], fails_at: int = 10**9) -> None:
        self._name, self._log, self._fails_at = name, log, fails_at

    def forwards(self, rows: int, times: int) -> list[float]:
        self._note("forward")
        return [float(rows)] * times

    def plan(self, how: str, asked: Asked) -> Answered:
        assert how in self.plans
        self._note("plan")
        return Answered(float(asked.prompt[1]), (asked.prompt[1],), 1)

    def _note(self, what: str) -> None:
        self._log.append((what, self._name))
        if sum(name == self._name for _, name in self._log) > self._fails_at:
            raise PeerError("its process ended with 9")


def test_engines_take_turns_and_each_is_first_as_often_and_one_that_fails_stops_no_other() -> None:
    log: list[tuple[str, str]] = []
    found = compare({name: _Engine(name, log) for name in "abc"}, ASKED, turns=3, rows=(1, 4))

    names = [name for _, name in log]
    rounds = [names[start : start + 3] for start in range(0, len(names), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert [rounds[:6][index][0] for index in range(6)] == ["a", "a", "b", "b", "c", "c"]  # two counts of rows a turn
    assert found.forward_ms("a") == {"1": 1.0, "4": 4.0}
    assert found.plan_ms("b", "our grammar", found.plans["a", "our grammar"])["identical_to_ours"] == 1.0
    assert len(found.plans["a", "our grammar"]) == len(ASKED)  # the warm-up does not count

    log.clear()
    found = compare({"a": _Engine("a", log), "b": _Engine("b", log, fails_at=2)}, ASKED, turns=2, rows=(1, 4))
    assert found.failed == {"b": "its process ended with 9"}
    assert len(found.plans["a", "our grammar"]) == len(ASKED)
    assert sum(name == "b" for _, name in log) == 3  # never asked again


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "its process ended with 1: no such file: weights"),
        ("hangs", "no answer within 0.5 s"),
        ("refuses plans", "ValueError: no grammars here"),
    ],
)
def test_a_process_that_gives_no_answer_says_why(how: str, reason: str) -> None:
    with pytest.raises(PeerError, match="cannot be started"):
        PeerProcess(["/nowhere/python"])
    with _worker(how) as process, pytest.raises(PeerError, match=reason):
        process.ask({"do": "plan"}, seconds=0.5 if how == "hangs" else 30)


def test_without_the_peers_environment_all_peers_are_listed_with_the_reason(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    ours = Ours(tiny_model_dir, Settings(model_dir=tiny_model_dir, cache_dir=tmp_path, dtype="float32", kernel="auto"))
    asked = [ours.ask(Question.parse("red shoes under $40"))]
    figures = measure(ours, tmp_path, tmp_path / "bin" / "python", asked, turns=1, threads=1)

    assert {name for name, one in figures.items() if "failed" in one} == {peer.name for peer in PEERS}
    assert all("peakplan bench peers" in figures[peer.name]["failed"] for peer in PEERS)
    assert set(figures[OURS]["forward_ms"]) == {"1", "2", "4", "8", "12", "16"}
    assert figures[OURS]["plans"]["Medusa"]["identical_to_ours"] == 1.0
    assert len(asked) < AGREEMENT_QUESTIONS  # fewer questions than wanted are no error


@pytest.mark.parametrize(
    ("vocabulary", "reason"), [(665, "void: its logits are not ours"), (0, "void: it has 0 logits")]
)
def test_a_peer_with_other_logits_is_void(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocabulary: int, reason: str
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "$FAKE_WORKER"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("FAKE_WORKER", _FAKE_WORKER)
    monkeypatch.setenv("FAKE", "well")
    monkeypatch.setenv("VOCABULARY", str(vocabulary))
    ours = Ours(tiny_model_dir, Settings(model_dir=tiny_model_dir, cache_dir=tmp_path, dtype="float32", kernel="auto"))
    figures = measure(ours, tmp_path, python, [ours.ask(Question.parse("red shoes"))], turns=1, threads=1)

    assert figures["llama.cpp Q8_0"]["failed"].startswith(reason)
    assert "forward_ms" not in figures["llama.cpp Q8_0"]


def test_every_peer_has_a_pinned_package_and_a_worker_and_what_pip_said_is_the_reason_without(tmp_path: Path) -> None:
    assert {peer.requirement for peer in PEERS} <= {line.partition("==")[0] for line in requirements()}
    assert {peer.name for peer in PEERS} == set(WORKER_PEERS)
    assert f"numpy=={np.__version__}" in requirements(), "this environment's version where they name none"
    assert all("==" in line for line in requirements())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "not-installed.json").write_text(json.dumps({"llama-cpp-python": "no C++ compiler"}))
    reasons = [why_not_installed(tmp_path / "bin" / "python", peer) for peer in PEERS]
    assert set(reasons) == {"", "not installed: no C++ compiler"}


def test_peers_are_held_to_avx2_with_our_kernel_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    (tmp_path / "avx2").mkdir()
    peers = {peer.requirement: peer for peer in PEERS}
    monkeypatch.delenv("PEAKPLAN_KERNEL", raising=False)
    assert peers["ctranslate2"].instructions(python) == "what it detects"

    monkeypatch.setenv("PEAKPLAN_KERNEL", "avx2")
    assert peers["llama-cpp-python"].forced_environment(python) == {"PYTHONPATH": str(tmp_path / "avx2")}
    assert peers["ctranslate2"].instructions(python) == "AVX2 alone"
    assert peers["onnxruntime"].instructions(python) == "what it detects"


class _NumpyEngine:
    """The tiny model as a peer: the minimum that an engine must do for a plan."""

    name, note = "numpy", ""

    def __init__(self, model_dir: Path) -> None:
        self.loaded = load_model(model_dir, model_dir)
        self._model = Llama(self.loaded.config, self.loaded.weights, torch.float32)
        self._cache = self._model.new_cache(1024)

    def reset(self) -> None:
        self._cache.reset()

    def forward(self, tokens: list[int]) -> None:
        self.logits(tokens)

    def logits(self, tokens: list[int]) -> NDArray[np.float32]:
        positions = torch.arange(len(tokens)) + self._cache.length
        hidden = self._model.forward(torch.tensor(tokens), positions, self._cache)
        self._cache.keep(range(len(tokens)))
        found: NDArray[np.float32] = self._model.lm_head.logits(hidden[-1:])[0].numpy()
        return found


@pytest.mark.parametrize("text", ["red shoes under $40", "where is my package", "waterproof hiking boots size 10"])
def test_a_peers_greedy_plan_under_our_grammar_is_ours(tiny_model_dir: Path, text: str) -> None:
    ours = Ours(
        tiny_model_dir, Settings(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32", kernel="auto")
    )
    asked = ours.ask(Question.parse(text))
    engine = _NumpyEngine(tiny_model_dir)
    compiler = GrammarCompiler(engine.loaded.tokenizer.to_str(), engine.loaded.eos_token_id)

    tokens, forwards = greedy(engine, asked.prompt, compiler.compile(asked.grammar), asked.max_tokens)

    mine = ours.plan("greedy with fast-forward", asked)
    assert (tuple(tokens), forwards) == (mine.tokens, mine.forwards)


def test_a_worker_answers_an_error_with_its_reason() -> None:
    answer = Worker().answer({"do": "load", "peer": "nobody", "checkpoint": "", "threads": 1, "processors": [0]})
    assert answer == {"error": "KeyError: 'nobody'"}


def test_a_plans_grammar_in_gbnf() -> None:
    rules = dict(
        line.split(" ::= ", 1)
        for line in to_gbnf(
            plan_grammar(Question.parse("red adidas shoes under $40"), shipped_vocabulary())
        ).splitlines()
    )

    assert rules["start"] == "FIXED | NAMED s0 | CHOSEN (catalog | reviews | qa) s0"
    assert rules["p1"] == '" adidas" c2 | p2'
    assert rules["facet"] == '(" One" | " Two" | " Three" | " Four" | " All")? (" Not"? FACET | MARK)'
    with pytest.raises(ValueError, match="not a rule"):
        to_gbnf("%ignore x")


@pytest.fixture(scope="module")
def checkpoint(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tiny_model_dir, tmp_path_factory.mktemp("cache"), lambda _: None)


def test_float16_and_the_tokenizer_come_back_bit_for_bit(checkpoint: Path, tmp_path: Path) -> None:
    convert_gguf(checkpoint / "float16.gguf", tmp_path / "back")
    written, back = load_file(checkpoint / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")

    assert written.keys() == back.keys()
    for name, weight in written.items():
        assert np.array_equal(weight, back[name]), name
    config = json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))
    assert config["rope_theta"] == 10000.0
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)
    folders = [Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (checkpoint, tmp_path / "back")]
    texts = [tokenizer.encode(" red running shoes size 10\n").ids for tokenizer in folders]
    assert texts[0] == texts[1]


def test_scaled_positions_and_tokenizers_other_than_bpe_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": {"factor": 8}}), encoding="utf-8")
    with pytest.raises(ValueError, match="rope_scaling"):
        write_gguf(tmp_path, tmp_path / "x.gguf", gguf.GGMLQuantizationType.Q8_0)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}), encoding="utf-8")
    with pytest.raises(ValueError, match="only BPE"):
        token_names(tmp_path, {"vocab_size": 4})


EXPORT = Path("/exported")


def test_vllm_tells_nobody_of_this_machine_and_reads_our_grammars() -> None:
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


def test_a_refused_plan_of_vllm_is_no_identical_one() -> None:
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


def test_a_vllm_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    python = program(tmp_path, "echo loading; echo no memory >&2; exit 3")
    with (
        pytest.raises(RuntimeError, match="loading / no memory"),
        serving(EXPORT, python, tmp_path / "log", port=free_port(), length=512),
    ):
        pytest.fail("it has not started")


def test_vllm_is_gone_after_the_block(tmp_path: Path) -> None:
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
