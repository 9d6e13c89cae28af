"""Heads survive every layout to the last bit, and a file that is not what it should be is refused by name."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from service.weights.head_layouts import LAYOUTS, read_heads, write_heads
from service.weights.head_weights import HeadWeights, LayoutError, same_bits
from tests.weights.samples import DTYPES, random_heads, random_lm_head

HIDDEN, VOCABULARY = 6, 10
PAIRS = [(first, second) for first in LAYOUTS for second in LAYOUTS]


def same_heads(one: HeadWeights, other: HeadWeights) -> bool:
    kinds = ((one.weights, other.weights), (one.biases, other.biases), (one.lm_heads or (), other.lm_heads or ()))
    return all(len(mine) == len(theirs) and all(map(same_bits, mine, theirs)) for mine, theirs in kinds) and (
        one.lm_heads is None
    ) == (other.lm_heads is None)


def passed_through(heads: HeadWeights, names: tuple[str, ...], lm_head: Tensor, folder: Path) -> HeadWeights:
    """Return the heads after passing through one layout after another."""
    for number, name in enumerate(names):
        place = folder / f"{number}-{name}"
        write_heads(heads, LAYOUTS[name], place, lm_head=lm_head, base="base")
        heads = read_heads(place, lm_head).heads
    return heads


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(max_examples=5, deadline=None)
@given(
    count=st.integers(1, 6),
    hidden=st.integers(1, 9),
    vocabulary=st.integers(2, 12),
    dtype=st.sampled_from(DTYPES),
    base_dtype=st.sampled_from(DTYPES),
    own=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_pair_of_layouts_keeps_every_bit(
    pair: tuple[str, str],
    count: int,
    hidden: int,
    vocabulary: int,
    dtype: torch.dtype,
    base_dtype: torch.dtype,
    own: bool,
    seed: int,
) -> None:
    own = own and "tgi-v2" not in pair  # it has no place for them
    heads = random_heads(count, hidden, vocabulary, dtype, own=own, seed=seed)
    lm_head = random_lm_head(hidden, vocabulary, base_dtype, seed)
    with tempfile.TemporaryDirectory() as folder:
        kept = passed_through(heads, pair, lm_head, Path(folder))
        assert same_heads(kept, heads.sharing(lm_head))


@pytest.mark.parametrize("name", LAYOUTS)
def test_writing_what_was_read_writes_the_same_file(name: str, tmp_path: Path) -> None:
    lm_head = random_lm_head(HIDDEN, VOCABULARY, torch.bfloat16)
    heads = random_heads(3, HIDDEN, VOCABULARY, torch.float16, own=name not in ("tgi-v2",))
    first = write_heads(heads, LAYOUTS[name], tmp_path / "a", lm_head=lm_head, base="base")
    again = read_heads(tmp_path / "a", lm_head).heads
    second = write_heads(again, LAYOUTS[name], tmp_path / "b", lm_head=lm_head, base="base")

    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def names_in(path: Path) -> set[str]:
    return set(load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True))


@pytest.mark.parametrize(
    ("name", "file", "tensors"),
    [
        ("fasterdecoding", "medusa_lm_head.pt", {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight"}),
        ("tgi-v1", "medusa_lm_head.safetensors", {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight"}),
        ("tgi-v2", "medusa_lm_head.safetensors", {"0.0.linear.weight", "0.0.linear.bias"}),
        (
            "nxdi",
            "medusa_heads.pt",
            {"medusa_head_0.0.linear.weight", "medusa_head_0.0.linear.bias", "medusa_head_0.1.weight"},
        ),
        ("vllm", "model.safetensors", {"blocks.0.layers.0.weight", "blocks.0.layers.0.bias", "lm_heads.0.weight"}),
        ("peakplan", "medusa_heads.safetensors", {"0.0.linear.weight", "0.0.linear.bias"}),
    ],
)
def test_names_are_those_of_the_engines_sources(name: str, file: str, tensors: set[str], tmp_path: Path) -> None:
    heads = random_heads(1, HIDDEN, VOCABULARY, torch.float32, own=False)
    write_heads(heads, LAYOUTS[name], tmp_path, lm_head=random_lm_head(HIDDEN, VOCABULARY, torch.float32), base="base")

    assert names_in(tmp_path / file) == tensors


def test_vllm_shares_one_lm_head_only_where_heads_do(tmp_path: Path) -> None:
    lm_head = random_lm_head(HIDDEN, VOCABULARY, torch.float32)
    for own in (False, True):
        heads = random_heads(3, HIDDEN, VOCABULARY, torch.float32, own=own)
        write_heads(heads, LAYOUTS["vllm"], tmp_path / str(own), lm_head=lm_head, base="base")
        config = json.loads((tmp_path / str(own) / "config.json").read_text(encoding="utf-8"))
        written = {name for name in names_in(tmp_path / str(own) / "model.safetensors") if "lm_head" in name}

        assert config["original_lm_head"] is not own
        assert config["medusa_fc_bias"] is True  # vLLM's default drops the biases
        assert len(written) == (3 if own else 1)


def test_tgi_finds_no_architecture_in_the_configuration(tmp_path: Path) -> None:
    heads = random_heads(2, HIDDEN, VOCABULARY, torch.float32, own=False)
    lm_head = random_lm_head(HIDDEN, VOCABULARY, torch.float32)
    write_heads(heads, LAYOUTS["tgi-v2"], tmp_path, lm_head=lm_head, base="/models/base")
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))

    assert config == {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "/models/base"}


def test_own_lm_heads_have_no_place_in_tgi_v2(tmp_path: Path) -> None:
    heads = random_heads(2, HIDDEN, VOCABULARY, torch.float32, own=True)
    with pytest.raises(LayoutError, match="choose another format, such as tgi-v1"):
        write_heads(
            heads, LAYOUTS["tgi-v2"], tmp_path, lm_head=random_lm_head(HIDDEN, VOCABULARY, torch.float32), base=""
        )


def state(count: int = 2, *, own: bool = False) -> dict[str, Tensor]:
    heads = random_heads(count, HIDDEN, VOCABULARY, torch.float32, own=own)
    return LAYOUTS["peakplan"].tensors(heads, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


def refusal(tensors: dict[str, Tensor], folder: Path, name: str = "medusa_lm_head.safetensors") -> str:
    save_file(tensors, folder / name)
    with pytest.raises(LayoutError) as refused:
        read_heads(folder, random_lm_head(HIDDEN, VOCABULARY, torch.float32))
    assert str(folder / name) in str(refused.value)
    return str(refused.value)


def without(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    assert "missing: 1.0.linear.bias" in refusal(without(state(), "1.0.linear.bias"), tmp_path)


def test_a_missing_head_is_named(tmp_path: Path) -> None:
    message = refusal(without(state(3), "1.0.linear.weight", "1.0.linear.bias"), tmp_path)
    assert "missing: 1.0.linear.bias, 1.0.linear.weight" in message


def test_one_lm_head_of_two_is_not_enough(tmp_path: Path) -> None:
    assert "missing: 0.1.weight" in refusal(without(state(own=True), "0.1.weight"), tmp_path)


def test_a_stranger_among_the_heads_is_named(tmp_path: Path) -> None:
    assert "unexpected: 0.0.norm.weight" in refusal({**state(), "0.0.norm.weight": torch.zeros(HIDDEN)}, tmp_path)


def test_several_residual_blocks_are_refused_with_the_way_out(tmp_path: Path) -> None:
    message = refusal({**state(), "0.1.linear.weight": torch.zeros(HIDDEN, HIDDEN)}, tmp_path)
    assert "medusa_num_layers=1" in message


def test_nxdi_names_without_lm_heads_are_refused(tmp_path: Path) -> None:
    tensors = {f"medusa_head_{name}": tensor for name, tensor in state().items()}
    assert "missing: medusa_head_0.1.weight" in refusal(tensors, tmp_path, "medusa_heads.safetensors")


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("1.0.linear.weight", (HIDDEN + 1, HIDDEN), f"weight of head 1 is [{HIDDEN + 1}, {HIDDEN}]"),
        ("0.0.linear.bias", (HIDDEN, 1), f"bias of head 0 is [{HIDDEN}, 1]"),
        ("0.1.weight", (VOCABULARY + 2, HIDDEN), f"LM head of head 0 is [{VOCABULARY + 2}, {HIDDEN}]"),
    ],
)
def test_heads_of_another_base_are_refused(name: str, shape: tuple[int, int], words: str, tmp_path: Path) -> None:
    message = refusal({**state(own=True), name: torch.zeros(shape)}, tmp_path)
    assert words in message
    assert "trained on another base" in message


def test_names_of_no_layout_are_refused(tmp_path: Path) -> None:
    assert "no layout that Peakplan knows" in refusal({"fc.weight": torch.zeros(2, 2)}, tmp_path)


def test_a_vocabulary_cut_by_vllm_is_refused(tmp_path: Path) -> None:
    tensors = LAYOUTS["vllm"].tensors(
        random_heads(1, HIDDEN, VOCABULARY, torch.float32, own=True), random_lm_head(HIDDEN, VOCABULARY, torch.float32)
    )
    assert "token_map" in refusal({**tensors, "token_map": torch.zeros(3)}, tmp_path, "model.safetensors")


def test_vllm_heads_without_biases_get_zeros(tmp_path: Path) -> None:
    heads = random_heads(2, HIDDEN, VOCABULARY, torch.float32, own=True)
    lm_head = random_lm_head(HIDDEN, VOCABULARY, torch.float32)
    tensors = without(LAYOUTS["vllm"].tensors(heads, lm_head), "blocks.0.layers.0.bias", "blocks.1.layers.0.bias")
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_heads": 2}), encoding="utf-8")

    assert all(torch.equal(bias, torch.zeros(HIDDEN)) for bias in read_heads(tmp_path, lm_head).heads.biases)


def test_a_combined_model_gives_its_heads(tmp_path: Path) -> None:
    tensors = {f"medusa_head.{name}": tensor for name, tensor in state().items()}
    save_file({**tensors, "model.norm.weight": torch.zeros(HIDDEN)}, tmp_path / "model.safetensors")

    assert read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32)).heads.count == 2


@pytest.mark.parametrize("content", [b"", b"not a tensor file at all, but long enough to be taken for one"])
@pytest.mark.parametrize("name", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
def test_a_broken_file_is_refused_in_words(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LayoutError, match="cannot be read as tensors"):
        read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"0.0.linear.weight": Path("/tmp")}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(LayoutError, match="cannot be read as tensors"):
        read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


def test_an_empty_folder_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"medusa_lm_head\.pt"):
        read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


def test_a_configuration_that_names_fewer_heads_is_known_and_noted(tmp_path: Path) -> None:
    save_file(state(5), tmp_path / "medusa_lm_head.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 2}), encoding="utf-8")

    found = read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))

    assert found.heads.count == 5
    assert "says 2 heads" in found.notes[0]


def test_a_configuration_that_names_more_heads_means_a_loss(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 4}), encoding="utf-8")
    assert "is it whole?" in refusal(state(3), tmp_path)
