"""Heads in every engine's layout, read, written and exported with their model.

EAGLE-3 heads are random ones, in files as others publish such heads.
"""

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from service.decoding.llama_config import LlamaConfig
from service.engines.torch_engine import load
from service.settings.engines import EngineConfig
from service.weights.__main__ import FORMATS, main
from service.weights.checkpoint import read_config
from service.weights.eagle_head import FOLDER, check_eagle_head
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS, HeadWeights, LayoutError, read_heads, same_bits, write_heads
from service.weights.importing import import_model
from service.weights.model_folder import load_model
from tests.bases import write_base
from tests.tiny_model import BOS, EOS, TREE, write_tiny_model
from tests.weights.samples import DTYPES, plan, random_heads, random_lm_head

Form = Literal["vllm", "pickled", "speculators"]
LAYER = "midlayer."


@dataclass(frozen=True)
class EagleHead:
    """A head: its layer's config, its tensors, after which layers it reads states, and the tokens that it drafts."""

    config: LlamaConfig
    weights: dict[str, Tensor]
    layers: tuple[int, ...]
    tokens: Tensor


def layer_of(target: LlamaConfig) -> LlamaConfig:
    return replace(target, num_layers=1, num_kv_heads=1, intermediate_size=40)


def random_head(
    seed: int, target: LlamaConfig, *, vocabulary: int = 0, layers: tuple[int, ...] = (1, 2, 3)
) -> EagleHead:
    """Return a head over `vocabulary` tokens of the target's, 0: all, in an order of their own."""
    config, generator = layer_of(target), torch.Generator().manual_seed(seed)
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    vocabulary = vocabulary or target.vocab_size
    shapes = {
        "fc": (hidden, len(layers) * hidden),
        f"{LAYER}self_attn.q_proj": (config.num_heads * width, 2 * hidden),
        f"{LAYER}self_attn.k_proj": (config.num_kv_heads * width, 2 * hidden),
        f"{LAYER}self_attn.v_proj": (config.num_kv_heads * width, 2 * hidden),
        f"{LAYER}self_attn.o_proj": (hidden, config.num_heads * width),
        f"{LAYER}mlp.gate_proj": (inner, hidden),
        f"{LAYER}mlp.up_proj": (inner, hidden),
        f"{LAYER}mlp.down_proj": (hidden, inner),
        "lm_head": (vocabulary, hidden),
    }
    shapes |= {f"{LAYER}{name}": (hidden,) for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")}
    shapes["norm"] = (hidden,)
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 1)
        for name, shape in shapes.items()
    }
    tokens = torch.randperm(target.vocab_size, generator=generator)[:vocabulary].sort().values
    return EagleHead(config, weights, layers, tokens)


def write_eagle_head(folder: Path, head: EagleHead, form: Form = "vllm", **changes: Any) -> Path:
    """Write a head in one of its published forms; `changes` are to its config."""
    layer = head.config
    described = {
        "model_type": "llama", "hidden_size": layer.hidden_size, "intermediate_size": layer.intermediate_size,
        "num_hidden_layers": 1, "num_attention_heads": layer.num_heads, "num_key_value_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim, "vocab_size": layer.vocab_size, "rms_norm_eps": layer.rms_norm_eps,
        "max_position_embeddings": layer.max_position_embeddings, "rope_theta": layer.rope_theta, "hidden_act": "silu",
    }  # fmt: skip
    own = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(head.tokens),
        "eagle_aux_hidden_state_layer_ids": list(head.layers),
        "norm_before_residual": False,
    }
    tensors = dict(head.weights)
    if len(head.tokens) < layer.vocab_size:
        tensors["d2t"] = head.tokens - torch.arange(len(head.tokens))
        tensors["t2d"] = torch.isin(torch.arange(layer.vocab_size), head.tokens)
    folder.mkdir(parents=True)
    if form == "speculators":
        tensors = {name.replace(LAYER, "layers.0."): tensor for name, tensor in tensors.items()}
        config = {"speculators_model_type": "eagle3", "transformer_layer_config": described, **own}
    else:
        config = described | own
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    if form == "pickled":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


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


def without(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


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


def test_a_configuration_that_names_fewer_heads_is_known_and_noted(tmp_path: Path) -> None:
    save_file(state(5), tmp_path / "medusa_lm_head.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 2}), encoding="utf-8")

    found = read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))

    assert found.heads.count == 5
    assert "says 2 heads" in found.notes[0]


def test_a_configuration_that_names_more_heads_means_a_loss(tmp_path: Path) -> None:
    save_file(state(3), tmp_path / "medusa_lm_head.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 4}), encoding="utf-8")
    with pytest.raises(LayoutError, match="is it whole"):
        read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


def nxdi(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"medusa_head_{name}": tensor for name, tensor in tensors.items()}


def vllm() -> dict[str, Tensor]:
    heads = random_heads(1, HIDDEN, VOCABULARY, torch.float32, own=True)
    return LAYOUTS["vllm"].tensors(heads, random_lm_head(HIDDEN, VOCABULARY, torch.float32))


HEADS = "medusa_lm_head.safetensors"
OTHER = "trained on another base"
NO_FILE = b"not a tensor file at all, but long enough to be taken for one"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (HEADS, without(state(), "1.0.linear.bias"), ["missing: 1.0.linear.bias"]),
        (
            HEADS,
            without(state(3), "1.0.linear.weight", "1.0.linear.bias"),
            ["missing: 1.0.linear.bias, 1.0.linear.weight"],
        ),
        (HEADS, without(state(own=True), "0.1.weight"), ["missing: 0.1.weight"]),
        (HEADS, {**state(), "0.0.norm.weight": torch.zeros(HIDDEN)}, ["unexpected: 0.0.norm.weight"]),
        (HEADS, {**state(), "0.1.linear.weight": torch.zeros(HIDDEN, HIDDEN)}, ["medusa_num_layers=1"]),
        ("medusa_heads.safetensors", nxdi(state()), ["missing: medusa_head_0.1.weight"]),
        (HEADS, {**state(), "1.0.linear.weight": torch.zeros(7, HIDDEN)}, ["weight of head 1 is [7, 6]", OTHER]),
        (HEADS, {**state(), "0.0.linear.bias": torch.zeros(HIDDEN, 1)}, ["bias of head 0 is [6, 1]", OTHER]),
        (
            HEADS,
            {**state(own=True), "0.1.weight": torch.zeros(12, HIDDEN)},
            ["LM head of head 0 is [12, 6]", OTHER],
        ),
        (HEADS, {"fc.weight": torch.zeros(2, 2)}, ["no layout that Peakplan knows"]),
        ("model.safetensors", {**vllm(), "token_map": torch.zeros(3)}, ["token_map"]),
        (HEADS, b"", ["cannot be read as tensors"]),
        (HEADS, NO_FILE, ["cannot be read as tensors"]),
        ("medusa_lm_head.pt", b"", ["cannot be read as tensors"]),
        ("medusa_lm_head.pt", NO_FILE, ["cannot be read as tensors"]),
        ("medusa_lm_head.pt", {"0.0.linear.weight": Path("/tmp")}, ["cannot be read as tensors"]),  # it would run code
        ("another", b"", ["medusa_lm_head.pt"]),
    ],
)
def test_what_are_no_heads_of_this_base_is_refused_by_name(
    name: str, content: bytes | dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif name.endswith(".pt"):
        torch.save(content, tmp_path / name)
    else:
        save_file(content, tmp_path / name)
    with pytest.raises(LayoutError) as refused:
        read_heads(tmp_path, random_lm_head(HIDDEN, VOCABULARY, torch.float32))
    assert all(each in str(refused.value) for each in words)
    assert str(tmp_path) in str(refused.value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


def export(model: Path, name: str, output: Path) -> Path:
    assert main(["export", "--format", name, "--model", str(model), "--output", str(output)]) == 0
    return output


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_comes_back_bit_for_bit(model: Path, name: str, tmp_path: Path) -> None:
    exported = export(model, name, tmp_path / "out")
    heads = exported if name == "nxdi" else exported / "medusa"

    made = import_model(exported, tmp_path / "back", heads, tree=model / "medusa_tree.json")

    sent, back = (load_file(folder / "medusa_heads.safetensors") for folder in (model, made.folder))
    assert sent.keys() == back.keys()
    assert all(torch.equal(sent[key], back[key]) for key in sent)
    for key, tensor in load_model(model, tmp_path).weights.items():
        assert torch.equal(tensor, load_model(made.folder, tmp_path).weights[key])


def test_an_export_is_a_model_folder_itself(model: Path, tmp_path: Path) -> None:
    exported = export(model, "vllm", tmp_path / "out")
    ours = load(
        EngineConfig(
            model_dir=exported, cache_dir=tmp_path, dtype="float32", strategy="autoregressive", max_prompt_tokens=128
        )
    )

    assert plan(ours, "autoregressive") == plan(
        load(EngineConfig(model_dir=model, cache_dir=tmp_path, dtype="float32", max_prompt_tokens=128)), "medusa"
    )


@pytest.mark.parametrize("name", ["fasterdecoding", "nxdi"])
def test_engines_that_take_a_tree_get_it(model: Path, name: str, tmp_path: Path) -> None:
    exported = export(model, name, tmp_path / "out")
    folder = exported if name == "nxdi" else exported / "medusa"
    assert json.loads((folder / "medusa_tree.json").read_text(encoding="utf-8")) == TREE


def test_transformers_reads_the_same_prompt_and_says_the_same(model: Path, tmp_path: Path) -> None:
    exported = export(model, "tgi-v2", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(exported)
    peer = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)

    tokens = tokenizer(" red nike shoes\n")["input_ids"]
    ours = load_model(model, tmp_path)
    assert tokens == [BOS, *ours.tokenizer.encode(" red nike shoes\n", add_special_tokens=False).ids]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (BOS, EOS)
    assert peer.generation_config.eos_token_id == EOS
    state = peer.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in ours.weights.items())


def test_a_model_without_heads_is_exported_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = write_tiny_model(tmp_path / "bare", with_heads=False)
    exported = export(bare, "vllm", tmp_path / "out")

    assert "the model has none" in capsys.readouterr().out
    assert not (exported / "medusa").exists()


FEWER = 60  # tokens of a draft's vocabulary


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", "qwen3")


def head_of(base: Path, folder: Path, form: Form = "vllm", *, vocabulary: int = 0, **changes: Any) -> Path:
    head = random_head(3, read_config(base), vocabulary=vocabulary, layers=(1, 2))
    return write_eagle_head(folder, head, form, **changes)


@pytest.mark.parametrize(("form", "vocabulary"), [("vllm", 0), ("pickled", FEWER), ("speculators", FEWER)])
def test_an_import_keeps_it_for_engines_that_draft_with_one(
    form: Form, vocabulary: int, base: Path, tmp_path: Path
) -> None:
    eagle = head_of(base, tmp_path / "eagle", form, vocabulary=vocabulary)
    output = tmp_path / "made"
    assert main(["import", "--checkpoint", str(base), "--eagle", str(eagle), "--output", str(output)]) == 0

    sent = load_file(eagle / "model.safetensors") if form != "pickled" else torch.load(eagle / "pytorch_model.bin")
    kept = load_file(output / FOLDER / "model.safetensors")
    assert sent.keys() == kept.keys()
    assert all(torch.equal(sent[name], kept[name]) for name in sent)


@pytest.mark.parametrize(
    ("layout", "vocabulary", "goes"),
    [("vllm", FEWER, True), ("nxdi", 0, True), ("nxdi", FEWER, False), ("tgi-v2", 0, False)],
)
def test_an_export_has_it_where_the_engine_reads_it(
    layout: str,
    vocabulary: int,
    goes: bool,
    base: Path,
    tmp_path: Path,
) -> None:
    made = import_model(base, tmp_path / "made", eagle=head_of(base, tmp_path / "eagle", vocabulary=vocabulary))

    exported = export_model(made.folder, tmp_path, LAYOUTS[layout], tmp_path / "exported")

    assert (exported.folder / FOLDER).is_dir() == goes
    if goes:
        sent, again = (
            load_file(folder / "model.safetensors") for folder in (tmp_path / "eagle", exported.folder / FOLDER)
        )
        assert sent.keys() == again.keys()
        assert all(torch.equal(sent[name], again[name]) for name in sent)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 48}, "for states of 48, and the model's are 64"),
        ({"num_hidden_layers": 2}, "heads of 2 layers are not taken"),
        ({"norm_before_fc": True}, r"norm_before_fc \(True\)"),
        ({"model_type": "deepseek_v3"}, "model_type 'deepseek_v3' is not served"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 9]}, "states after layers 1, 9 are not those of a model of 2"),
        ({"eagle_aux_hidden_state_layer_ids": None}, "states after layers 2, 1, -1"),
        ({"intermediate_size": 41}, r"mlp.gate_proj.weight is \[40, 64\], and config.json says \[41, 64\]"),
    ],
)
def test_another_s_head_is_refused_and_nothing_is_written(
    changes: dict[str, Any], words: str, base: Path, tmp_path: Path
) -> None:
    eagle = head_of(base, tmp_path / "eagle", **changes)
    with pytest.raises(ValueError, match=words):
        import_model(base, tmp_path / "made", eagle=eagle)
    assert not (tmp_path / "made").exists()


def test_what_its_file_lacks_or_has_too_much_is_named(base: Path, tmp_path: Path) -> None:
    eagle, config = head_of(base, tmp_path / "eagle", vocabulary=FEWER), read_config(base)
    whole = load_file(eagle / "model.safetensors")
    for changed, words in (
        ({name: tensor for name, tensor in whole.items() if name != "fc.weight"}, "fc.weight is missing"),
        (whole | {"midlayer.mlp.bias": torch.zeros(3)}, "midlayer.mlp.bias is not of an EAGLE-3 head"),
        (whole | {"d2t": whole["d2t"] + 100}, "d2t leads to tokens"),
        (whole | {"norm.weight": whole["norm.weight"] * float("nan")}, "norm.weight holds values that are no numbers"),
    ):
        save_file(changed, eagle / "model.safetensors")
        with pytest.raises(ValueError, match=words):
            check_eagle_head(eagle, config)
    (eagle / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        check_eagle_head(eagle, config)
