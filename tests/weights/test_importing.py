"""A checkpoint becomes a model folder, or is refused in words."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from service.engines.torch_engine import TorchModel, load
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig
from service.weights.__main__ import main
from service.weights.checkpoint import (
    check_shapes,
    read_config,
    read_lm_head,
    read_shapes,
    read_weights,
)
from service.weights.head_layouts import LAYOUTS, LayoutError, read_heads, same_bits, write_heads
from service.weights.importing import import_model
from tests.tiny_model import BOS, EOS, HIDDEN, write_tiny_model
from tests.weights.samples import configure, plan, shard


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Write a checkpoint as on Hugging Face's hub, with heads beside it."""
    model = write_tiny_model(tmp_path / "tiny", with_heads=True)
    base = model.with_name("base")
    configure(base, architectures=["LlamaForCausalLM"], bos_token_id=BOS, eos_token_id=[EOS, BOS])
    weights = load_file(base / "model.safetensors")
    heads = read_heads(model, weights["model.embed_tokens.weight"]).heads
    for layout in LAYOUTS.values():
        write_heads(
            heads,
            layout,
            tmp_path / "heads" / layout.name,
            lm_head=weights["model.embed_tokens.weight"],
            base=str(base),
        )
    return base


def loaded(folder: Path, cache: Path, strategy: Strategy = "medusa") -> TorchModel:
    return load(
        EngineConfig(model_dir=folder, cache_dir=cache, dtype="float32", strategy=strategy, max_prompt_tokens=128)
    )


def test_heads_with_lm_heads_of_their_own_keep_them(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "heads" / "tgi-v1" / "medusa_lm_head.safetensors"
    tensors = load_file(path)
    tensors["1.1.weight"] = torch.randn_like(tensors["1.1.weight"])
    save_file(tensors, path)

    made = import_model(checkpoint, tmp_path / "mine", path.parent, name="my-own")

    kept = load_file(made.folder / "medusa_heads.safetensors")
    assert torch.equal(kept["1.1.weight"], tensors["1.1.weight"])
    model = loaded(made.folder, tmp_path)
    assert model.id == "my-own"
    assert plan(model, "medusa") == plan(model, "autoregressive")


def test_a_window_shorter_than_a_request_is_refused_at_load(checkpoint: Path, tmp_path: Path) -> None:
    configure(checkpoint, sliding_window=200)
    made = import_model(checkpoint, tmp_path / "mine")
    with pytest.raises(Exception, match="PEAKPLAN_MAX_PROMPT_TOKENS"):
        loaded(made.folder, tmp_path, "autoregressive")


def test_without_heads_the_way_to_serve_is_named(checkpoint: Path, tmp_path: Path) -> None:
    made = import_model(checkpoint, tmp_path / "mine")

    assert "PEAKPLAN_STRATEGY=autoregressive" in made.notes[0]
    assert plan(loaded(made.folder, tmp_path, "autoregressive"), "autoregressive")


def test_the_folder_holds_all_it_needs_and_no_second_copy_of_the_weights(checkpoint: Path, tmp_path: Path) -> None:
    made = import_model(checkpoint, checkpoint.parent / "mine")
    card = json.loads((made.folder / "model.json").read_text(encoding="utf-8"))
    assert card["base"] == "base"
    weights = "model.safetensors"
    assert (made.folder / "base" / weights).samefile(checkpoint / weights)

    shutil.move(made.folder, tmp_path / "elsewhere")
    shutil.rmtree(checkpoint)
    assert plan(loaded(tmp_path / "elsewhere", tmp_path, "autoregressive"), "autoregressive")


def _sentencepiece(path: Path) -> int:
    """Write a tokenizer like Llama 2's and Mistral's: words begin with a mark, and unknown bytes are tokens."""
    tokenizer: Any = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    octets = [f"<0x{octet:02X}>" for octet in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *octets], show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    words = " ".join(word for _, word in shipped_vocabulary().words())
    tokenizer.train_from_iterator([f"{words} {words.title()} red nike running shoes under And All Not"] * 20, trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")])
    tokenizer.save(str(path))
    size: int = tokenizer.get_vocab_size()
    return size


def test_a_sentencepiece_tokenizer_is_served(checkpoint: Path, tmp_path: Path) -> None:
    size = _sentencepiece(checkpoint / "tokenizer.json")
    weights = load_file(checkpoint / "model.safetensors")
    generator = torch.Generator().manual_seed(3)
    weights["model.embed_tokens.weight"] = torch.randn(size, HIDDEN, generator=generator) * HIDDEN**-0.5
    save_file(weights, checkpoint / "model.safetensors")
    configure(checkpoint, vocab_size=size, bos_token_id=1, eos_token_id=2)

    made = import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "tgi-v2")
    model = loaded(made.folder, tmp_path)

    assert plan(model, "medusa") == plan(model, "autoregressive")


def combined(checkpoint: Path, heads: Path, folder: Path, *, pickled: bool, shards: int) -> Path:
    """Publish a model as FasterDecoding does: heads among its own weights, in several files or one."""
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    tensors = load_file(checkpoint / "model.safetensors")
    tensors |= {f"medusa_head.{name}": tensor for name, tensor in torch.load(heads / "medusa_lm_head.pt").items()}
    suffix, stem = ("bin", "pytorch_model") if pickled else ("safetensors", "model")
    names, places = sorted(tensors), {}
    for number in range(shards):
        file = f"{stem}.{suffix}" if shards == 1 else f"{stem}-{number + 1:05}-of-{shards:05}.{suffix}"
        part = {name: tensors[name].clone() for name in names[number::shards]}
        torch.save(part, folder / file) if pickled else save_file(part, folder / file)
        places |= dict.fromkeys(part, file)
    if shards > 1:
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "bin"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_with_its_heads_in_it_is_served(checkpoint: Path, tmp_path: Path, pickled: bool, shards: int) -> None:
    heads = tmp_path / "heads" / "fasterdecoding"
    published = combined(checkpoint, heads, tmp_path / "published", pickled=pickled, shards=shards)

    made = import_model(published, tmp_path / "mine")

    apart = import_model(checkpoint, tmp_path / "apart", heads)
    assert made.heads is not None
    assert apart.heads is not None
    for one, other in zip(made.heads.heads.weights, apart.heads.heads.weights, strict=True):
        assert torch.equal(one, other)
    model = loaded(made.folder, tmp_path)
    assert plan(model, "medusa") == plan(loaded(apart.folder, tmp_path), "autoregressive")
    assert not list(tmp_path.glob(".checkpoint-*"))


def test_further_end_tokens_are_named(checkpoint: Path, tmp_path: Path) -> None:
    made = import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "nxdi")
    (note,) = [note for note in made.notes if "several end tokens" in note]
    assert f"by {EOS} where a token must, and {BOS} can never be decoded" in note


@pytest.mark.parametrize(
    ("written", "tree"),
    [
        ([[1, 0], [0, 2, 0]], [[0], [0, 2], [0, 2, 0], [1], [1, 0]]),
        ([[0], [0, 0], [0]], [[0], [0, 0]]),
    ],
    ids=["leaves alone", "a path twice"],
)
def test_a_tree_of_leaves_has_their_paths(
    checkpoint: Path, tmp_path: Path, written: list[list[int]], tree: list[list[int]]
) -> None:
    (tmp_path / "tree.json").write_text(json.dumps(written), encoding="utf-8")

    made = import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "nxdi", tree=tmp_path / "tree.json")

    assert json.loads((made.folder / "medusa_tree.json").read_text(encoding="utf-8")) == tree


Spoil = Callable[[Path], object]


def less(*names: str, **tensors: torch.Tensor) -> Spoil:
    """Take tensors out of a checkpoint, and put others in; a "__" stands for a dot."""

    def spoil(base: Path) -> None:
        more = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
        kept = {name: each for name, each in load_file(base / "model.safetensors").items() if name not in names}
        save_file(kept | more, base / "model.safetensors")

    return spoil


def without(field: str) -> Spoil:
    def spoil(base: Path) -> None:
        config = json.loads((base / "config.json").read_text(encoding="utf-8"))
        (base / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != field}), encoding="utf-8")

    return spoil


def in_shards(spoil: Callable[[Path], object]) -> Spoil:
    """Split a checkpoint, and do something to its second file."""

    def split(base: Path) -> None:
        shard(base)
        spoil(base / "model-00002-of-00003.safetensors")

    return split


def says(**changes: Any) -> Spoil:
    return lambda base: configure(base, **changes)


UP = "model.layers.1.mlp.up_proj.weight"
REFUSED: dict[str, tuple[Spoil, str]] = {
    "another vocabulary": (says(vocab_size=999_999), "does not fit its config.json"),
    "no end token": (says(eos_token_id=None), "says no eos_token_id that its tokenizer has"),
    "a special token of another tokenizer": (says(eos_token_id=90_000), "says eos_token_id 90000, and"),
    "another architecture": (says(model_type="gemma3"), "model_type 'gemma3' is not served; llama, mistral"),
    "quantised": (says(quantization_config={"bits": 4}), "quantised"),
    "half a rotary embedding": (says(rope_scaling={"rope_type": "llama3"}), "lacks 'factor'"),
    "another rotary embedding": (
        says(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}),
        "rotary embedding of type 'yarn'",
    ),
    "a bias that lacks": (says(attention_bias=True), "q_proj.bias is missing"),
    "another activation": (says(hidden_act="gelu"), "activation 'gelu'"),
    "scaled logits": (says(logits_scaling=8.0), "logits_scaling (8.0)"),
    "a field that lacks": (without("rms_norm_eps"), "lacks 'rms_norm_eps'"),
    "a tensor that lacks": (less(UP), f"{UP} is missing"),
    "a stranger": (less(model__layers__0__self_attn__q_proj__bias=torch.zeros(4)), "is not of this architecture"),
    "another shape": (less(model__norm__weight=torch.zeros(3)), "model.norm.weight is [3], and config.json says [64]"),
    "a shard that lacks": (in_shards(Path.unlink), "lacks model-00002-of-00003.safetensors"),
    "a shard cut short": (
        in_shards(lambda file: file.write_bytes(file.read_bytes()[:-100])),
        "model-00002-of-00003.safetensors is not a whole",
    ),
    "no tokenizer": (lambda base: (base / "tokenizer.json").unlink(), "AutoTokenizer"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_would_fail_later_is_refused_now_in_words_and_nothing_is_written(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_tiny_model(tmp_path).with_name("base")
    spoil, words = REFUSED[how]
    spoil(base)
    before = sorted(tmp_path.iterdir())

    assert main(["import", "--checkpoint", str(base), "--output", str(tmp_path / "mine")]) == 2

    said = capsys.readouterr().err
    assert words in said
    assert str(base) in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([], "it is empty: plain decoding needs no heads"),
        ([[0] * depth for depth in range(1, 6)], "needs 4 heads, and there are 3"),
    ],
)
def test_a_tree_that_the_heads_cannot_draft_is_refused(
    checkpoint: Path, tmp_path: Path, tree: list[list[int]], words: str
) -> None:
    (tmp_path / "tree.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(LayoutError, match=words):
        import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "nxdi", tree=tmp_path / "tree.json")


def test_the_commands_tell_people_and_programs_what_they_made_and_do_not_overwrite(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, out, json_too = tmp_path / "mine", tmp_path / "out", tmp_path / "json"
    words = ["import", "--checkpoint", str(checkpoint)]

    assert main([*words, "--output", str(mine), "--heads", str(tmp_path / "heads" / "vllm")]) == 0
    assert f"PEAKPLAN_MODEL_DIR={mine} make serve" in capsys.readouterr().out
    assert main([*words, "--json", "--output", str(json_too)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["heads"], set(told)) == (str(json_too), 0, {"folder", "heads", "notes"})
    words_of_export = ["export", "--json", "--format", "nxdi", "--model", str(mine)]
    assert main([*words_of_export, "--output", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"folder": str(out), "format": "nxdi", "heads": ["medusa_heads.pt", "medusa_tree.json"]}
    for again in ([*words, "--output", str(mine)], [*words_of_export, "--output", str(mine)]):
        assert main(again) == 2
        assert "is not empty" in capsys.readouterr().err


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path).with_name("base")


def check(base: Path) -> None:
    check_shapes(read_shapes(base), read_config(base), base)


def test_a_whole_checkpoint_passes_and_all_of_it_is_looked_at(base: Path) -> None:
    check(base)
    assert read_shapes(base) == {name: tuple(weight.shape) for name, weight in read_weights(base).items()}


def test_shards_are_one_checkpoint(base: Path) -> None:
    whole = read_weights(base)
    shard(base)

    check(base)
    sharded = read_weights(base)
    assert all(same_bits(whole[name], sharded[name]) for name in whole)
    assert same_bits(read_lm_head(base, read_config(base)), whole["model.embed_tokens.weight"])


def test_tables_of_old_checkpoints_and_a_copied_lm_head_are_no_harm(base: Path) -> None:
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, base / "model.safetensors")

    check(base)
    assert "model.layers.0.self_attn.rotary_emb.inv_freq" not in read_weights(base)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 4096),
        ({"sliding_window": 512}, 512),
        ({"sliding_window": None}, 4096),
        ({"sliding_window": 512, "use_sliding_window": False}, 4096),
        ({"max_position_embeddings": 300, "sliding_window": 512}, 300),
    ],
)
def test_a_sliding_window_limits_how_long_a_sequence_may_be(base: Path, changes: dict[str, Any], longest: int) -> None:
    configure(base, **changes)
    assert read_config(base).longest_sequence == longest


def test_pickled_weights_say_how_to_get_others(base: Path) -> None:
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    with pytest.raises(LayoutError, match="save_pretrained"):
        check(base)
