"""What is compiled for which chip: arguments, architectures, memory, choices and packages."""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from infra.fleet.instances import catalogue
from infra.fleet.rules import MEDUSA_RANKS
from service.api.app import replica_engine, settings_source
from service.decoding.llama_config import LlamaConfig
from service.engines.neuron.compilation import check_memory
from service.engines.neuron.configuration import (
    CANDIDATES,
    TENSOR_PARALLEL,
    Chip,
    CompileSettings,
    ConfigurationError,
    MedusaShape,
    arguments_of,
    forward_shape,
    neuron_arguments,
)
from service.engines.neuron.nxdi import architecture_problems
from service.engines.neuron.packages import PINS, SDK, NeuronUnavailableError, installed_versions
from service.engines.protocol import EngineUnavailableError
from service.settings import Settings
from service.settings.engines import NeuronSettings, TritonSettings
from service.weights.model_folder import GIB, available_bytes
from tests.weights.test_model_folder import container, meminfo

TREE = ((0,), (1,), (0, 0), (0, 1), (0, 0, 0))
MODEL = MedusaShape(num_heads=4, tree=TREE)
SETTINGS = CompileSettings(max_prompt_tokens=384, max_new_tokens=96)


def problems(model: MedusaShape = MODEL, **changes: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        neuron_arguments(model, SETTINGS.model_copy(update=changes))
    return str(caught.value)


def test_the_plain_graph_has_the_chain_s_rows_and_nothing_of_medusa_s() -> None:
    arguments = neuron_arguments(MODEL, SETTINGS.model_copy(update={"graph": "chain", "speculation_length": 13}))

    assert (arguments["speculation_length"], arguments["medusa_tree"]) == (13, [[0], [0] * 2, [0] * 3, [0] * 4])
    assert arguments["token_generation_buckets"] == [512], "one graph of all positions"
    assert not {"is_medusa", "medusa_speculation_length", "on_device_sampling_config"} & arguments.keys()
    assert forward_shape(arguments).is_chain
    assert forward_shape(arguments).rows == 13
    assert not forward_shape(neuron_arguments(MODEL, SETTINGS)).is_chain


@pytest.mark.parametrize(
    ("longest", "rows", "buckets"),
    [(384, 13, [32, 64, 128, 384]), (384, 48, [64, 128, 384]), (100, 13, [32, 64, 100]), (20, 13, [20])],
    ids=["ordinary", "none that a tree holds", "none beyond the longest", "one"],
)
def test_short_prompts_have_short_graphs(longest: int, rows: int, buckets: list[int]) -> None:
    changes = {"max_prompt_tokens": longest, "speculation_length": rows, "sequence_length": 640}
    arguments = neuron_arguments(MODEL, SETTINGS.model_copy(update=changes))

    assert (arguments["context_encoding_buckets"], arguments["enable_bucketing"]) == (buckets, len(buckets) > 1)


@pytest.mark.parametrize(("rows", "positions"), [(0, 512), (64, 576)])
@pytest.mark.parametrize("chip", TENSOR_PARALLEL)
def test_a_graph_has_its_chip_and_the_positions_that_its_rows_need(chip: Chip, rows: int, positions: int) -> None:
    """Check 384 + 96 + 4 + 1 + 64 = 549 in the next multiple of 64, and the compiler's --target.

    NxDI passes that from this argument alone; without it trn1's artifacts would be the baking host's inf2.
    """
    arguments = neuron_arguments(MODEL, SETTINGS.model_copy(update={"chip": chip, "speculation_length": rows}))

    assert arguments["target"] == chip
    assert arguments["seq_len"] == arguments["max_length"] == positions
    assert forward_shape(arguments).needed(384, 96) <= positions


def test_numbers_that_the_fleet_checks_too_are_the_same() -> None:
    assert catalogue().tensor_parallel == TENSOR_PARALLEL
    assert MEDUSA_RANKS == CANDIDATES


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (MedusaShape(0, TREE), {}, "num_medusa_heads 0"),
        (MedusaShape(4, ()), {}, "medusa_tree is empty"),
        (MedusaShape(2, TREE), {}, "needs 3 heads, and there are 2"),
        (MedusaShape(4, ((0,), (0,))), {}, "listed twice"),
        (MedusaShape(4, ((1, 0),)), {}, "hangs from [1], which is not a choice"),
        (MedusaShape(4, ((0,), (10,))), {}, "asks for rank 10: a head makes 10 guesses"),
        (
            replace(MODEL, attention_heads=9, key_value_heads=3),
            {"tensor_parallel": 2},
            "3 key and value heads, nor they",
        ),
        (MODEL, {"tensor_parallel": 16}, "tensor_parallel 16 is not possible on inf2: choose one of 1, 2, 4, 8, 24"),
        (MODEL, {"chip": "trn1", "tensor_parallel": 4}, "not possible on trn1"),
        (MODEL, {"sequence_length": 490}, "may touch 491 cache positions"),
        (MODEL, {"speculation_length": 64, "sequence_length": 512}, "may touch 549"),
        (MODEL, {"speculation_length": 5}, "5 rows a step: the tree's 5 nodes and the root need 6"),
        (MODEL, {"context_buckets": (6, 384)}, "context bucket 6 equals the rows of a step"),
        (MODEL, {"context_buckets": (5, 384)}, "context bucket 5: prompts of 6 tokens and less are read as trees"),
        (MODEL, {"context_buckets": (64, 128)}, "the largest context bucket is 128, and max_context_length 384"),
    ],
)
def test_what_nxdi_would_take_silently_is_refused(model: MedusaShape, changes: dict[str, Any], words: str) -> None:
    assert words in problems(model, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_medusa": False}, "one of is_medusa and speculation_length"),
        ({"speculation_length": 6}, "one of is_medusa and speculation_length"),
        ({"is_continuous_batching": True}, "is_continuous_batching is on"),
        ({"async_mode": True}, "async_mode is on"),
        ({"token_generation_batches": [1, 2]}, "token_generation_batches is on"),
        ({"padding_side": "left"}, "padding_side left"),
        ({"k_cache_transposed": True}, "k_cache_transposed is on"),
        ({"on_device_sampling_config": None}, "on_device_sampling_config is missing"),
        ({"on_device_sampling_config": SimpleNamespace(top_k=1)}, "global_topk 256"),
        ({"on_device_sampling_config": SimpleNamespace(top_k=10, global_topk=64)}, "global_topk 64"),
        ({"max_new_tokens": None}, "max_new_tokens must be given"),
    ],
)
def test_somebody_s_own_neuron_config_is_held_to_the_same(changes: dict[str, Any], words: str) -> None:
    config = SimpleNamespace(**{**neuron_arguments(MODEL, SETTINGS), **changes})

    with pytest.raises(ConfigurationError, match=words):
        forward_shape(arguments_of(config))


CONFIG = {
    "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("changes", "positions", "words"),
    [
        ({"rope_scaling": LINEAR}, 64, "of type 'linear' of a llama is not in NxDI 0.8"),
        ({"model_type": "qwen3", "rope_scaling": LLAMA3}, 64, "of type 'llama3' of a qwen3 is not in NxDI 0.8"),
        ({"model_type": "qwen2", "head_dim": 24}, 64, "takes a qwen2's heads for 16 wide, not 24"),
        ({"model_type": "qwen3", "attention_bias": True}, 64, "leaves out the attention bias of a qwen3"),
        ({"model_type": "mistral", "sliding_window": 512}, 576, "sequence_length 576 is more than the 512 positions"),
        ({}, 4096, None),
        ({"rope_scaling": LLAMA3}, 64, None),
        ({"model_type": "qwen2"}, 64, None),
        ({"attention_bias": True}, 64, None),
        ({"attention_bias": True, "int8": True}, 64, "leave out --int8"),
        ({"model_type": "qwen2", "int8": True}, 64, "leave out --int8"),
        ({"model_type": "qwen3", "int8": True}, 64, None),
    ],
)
def test_what_nxdi_would_compute_otherwise_is_named(changes: dict[str, Any], positions: int, words: str | None) -> None:
    config = LlamaConfig.from_dict({**CONFIG, **changes})
    problems = [*architecture_problems(config, positions, int8=changes.get("int8", False))]
    assert len(problems) == bool(words)
    assert (words or "") in "".join(problems)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model folder whose base has 16 GiB of weights in two shards, which take no room on the disk."""
    (tmp_path / "base").mkdir()
    for shard in (1, 2):
        with (tmp_path / "base" / f"model-{shard}.safetensors").open("wb") as file:
            file.truncate(8 * GIB)
    (tmp_path / "model.json").write_text(
        '{"id": "large", "base": "base", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 64}', encoding="utf-8"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("gib", "limit", "chip", "cores", "lacks"),
    [
        (30, "max", "trn1", 1,
         ["16.0 GiB of weights on 1 core(s) of trn1, which have 14.4 for them: 1.6 GiB lack",
          "takes about 36.0 GiB of this host's memory, and 30.0 are free: 6.0 GiB lack"]),
        (64, str(32 * GIB), "inf2", 2, ["32.0 are free: 4.0 GiB lack"]),
        (37, "max", "inf2", 2, []),
        (None, "max", "inf2", 2, []),
    ],
    ids=["8B on a trn1.2xlarge", "a container on a large host", "over two cores of a larger host", "who knows"],
)  # fmt: skip
def test_a_host_without_the_memory_says_what_lacks_instead_of_being_killed(
    large: Path, monkeypatch: pytest.MonkeyPatch, gib: int | None, limit: str, chip: Chip, cores: int, lacks: list[str]
) -> None:
    here = partial(available_bytes, meminfo(large, (gib or 0) * GIB), container(large, limit))
    monkeypatch.setattr("service.engines.neuron.compilation.available_bytes", here if gib else lambda: None)
    found: Sequence[str] = []
    try:
        check_memory(large, chip, cores)
    except ConfigurationError as error:
        found = error.problems
    assert len(found) == len(lacks)
    assert [words for words, problem in zip(lacks, found, strict=True) if words not in problem] == []


def test_the_command_refuses_before_it_writes(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.engines.neuron import __main__ as command

    monkeypatch.setattr(command, "installed_versions", dict)
    words = ["compile", "--model", str(large), "--output", str(large / "compiled"), "--max-new-tokens", "64"]
    assert command.main(words) == 2
    assert "GiB lack. Span more cores" in capsys.readouterr().err
    assert not (large / "compiled").exists()


def settings(tmp_path: Path, model_dir: Path) -> Settings:
    return Settings(
        engine="neuron", model_dir=model_dir, neuron=NeuronSettings(compiled_dir=tmp_path / "compiled"), replicas=2
    )


@pytest.mark.anyio
async def test_a_replica_without_the_packages_says_which_and_from_where(tmp_path: Path, tiny_model_dir: Path) -> None:
    chosen = settings(tmp_path, tiny_model_dir)
    engine = replica_engine(chosen, settings_source(chosen), number=1)

    with pytest.raises(EngineUnavailableError, match=r"needs Neuron SDK 2\.28"):
        await engine.start()

    assert not engine.available
    await engine.close()


def test_triton_hosts_it_as_it_hosts_others(tmp_path: Path, tiny_model_dir: Path) -> None:
    changes = {"engine": "triton", "triton": TritonSettings(hosts="neuron")}
    hosted = settings(tmp_path, tiny_model_dir).model_copy(update=changes)

    source = settings_source(hosted)

    assert source.loader == "service.engines.neuron.model:load"
    assert "number" not in source.arguments  # Triton gives each process its cores
    assert not source.forkable


def test_other_artifacts_are_another_version(tmp_path: Path, tiny_model_dir: Path) -> None:
    chosen = settings(tmp_path, tiny_model_dir)
    before = settings_source(chosen).version
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "manifest.json").write_text("{}", encoding="utf-8")

    assert settings_source(chosen).version != before


@pytest.mark.parametrize(("engine", "hosts"), [("neuron", "torch"), ("triton", "neuron")])
def test_what_only_a_person_knows_must_be_set(engine: str, hosts: str) -> None:
    with pytest.raises(ValidationError, match=r"needs PEAKPLAN_COMPILED_DIR .* and PEAKPLAN_REPLICAS"):
        Settings.model_validate({"engine": engine, "triton": {"hosts": hosts}})


def described(version: str, description: str = "AWS Neuron") -> metadata.PackageMetadata:
    """Return an installed package's metadata as importlib.metadata reads it."""
    with tempfile.TemporaryDirectory() as folder:
        written = f"Metadata-Version: 2.1\nName: it\nVersion: {version}\n\n{description}\n"
        Path(folder, "METADATA").write_text(written, encoding="utf-8")
        return metadata.PathDistribution(Path(folder)).metadata


def test_here_without_them_the_message_names_the_pin_and_the_way() -> None:
    with pytest.raises(NeuronUnavailableError) as caught:
        installed_versions()

    words = str(caught.value)
    assert f"Neuron SDK {SDK}" in words
    assert "neuronx-distributed-inference 0.8.x" in words
    assert "neuronx-distributed-inference is not installed" in words
    assert "the group `neuron` of pyproject.toml" in words
    assert "PEAKPLAN_ENGINE=torch" in words


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("", ("", ""), None),
        ("neuronx-distributed-inference", ("0.9.1", "AWS Neuron"), "0.9.1 is not of Neuron SDK 2.28 (0.8.x)"),
        ("torch-neuronx", ("2.9.0.2.12.0", "WRONG PACKAGE. Please install it from elsewhere"), "placeholder"),
    ],
    ids=["those that are pinned", "another release", "a placeholder of the public index"],
)
def test_another_release_is_warned_of_and_a_placeholder_is_not_the_package(
    name: str, found: tuple[str, str], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def read(asked: str) -> metadata.PackageMetadata:
        return described(*found) if asked == name else described(f"{PINS[asked]}1")

    if said == "placeholder":
        with pytest.raises(
            NeuronUnavailableError, match=r"torch-neuronx 2\.9\.0\.2\.12\.0 is the public index's placeh"
        ):
            installed_versions(read)
        return
    with caplog.at_level(logging.WARNING):
        versions = installed_versions(read)
    assert versions == {each: found[0] if each == name else f"{pin}1" for each, pin in PINS.items()}
    assert (said or "") in caplog.text
    assert bool(caplog.records) == bool(said)
