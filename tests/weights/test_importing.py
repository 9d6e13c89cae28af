"""A published checkpoint and its heads become a folder that the engine loads and decodes with."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from service.engines.torch.engine import TorchModel, load
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig
from service.weights.__main__ import main
from service.weights.head_layouts import LAYOUTS, read_heads, write_heads
from service.weights.head_weights import LayoutError
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_heads_of_every_layout_are_served(checkpoint: Path, layout: str, tmp_path: Path) -> None:
    made = import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / layout)
    model = loaded(made.folder, tmp_path)

    assert model.id == "base"
    assert plan(model, "medusa") == plan(model, "autoregressive")


def test_heads_with_lm_heads_of_their_own_keep_them(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "heads" / "tgi-v1" / "medusa_lm_head.safetensors"
    tensors = load_file(path)
    tensors["1.1.weight"] = torch.randn_like(tensors["1.1.weight"])
    save_file(tensors, path)

    made = import_model(checkpoint, tmp_path / "mine", path.parent)

    kept = load_file(made.folder / "medusa_heads.safetensors")
    assert torch.equal(kept["1.1.weight"], tensors["1.1.weight"])
    model = loaded(made.folder, tmp_path)
    assert plan(model, "medusa") == plan(model, "autoregressive")


def test_a_sharded_mistral_with_its_own_lm_head_is_served(checkpoint: Path, tmp_path: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] * 1.5
    save_file(weights, checkpoint / "model.safetensors")
    configure(
        checkpoint,
        model_type="mistral",
        architectures=["MistralForCausalLM"],
        tie_word_embeddings=False,
        sliding_window=4096,
        rope_theta=1e6,
    )
    shard(checkpoint)

    made = import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "tgi-v2", name="my-mistral")
    model = loaded(made.folder, tmp_path)

    assert model.id == "my-mistral"
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 999_999}, "does not fit its config.json"),
        ({"eos_token_id": None}, "says no eos_token_id that its tokenizer has"),
        ({"eos_token_id": 999_999}, "says eos_token_id 999999, and"),
    ],
)
def test_what_would_fail_later_is_refused_now(
    checkpoint: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    configure(checkpoint, **changes)
    with pytest.raises(LayoutError, match=words):
        import_model(checkpoint, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_missing_tokenizer_says_how_to_get_one(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(LayoutError, match="AutoTokenizer"):
        import_model(checkpoint, tmp_path / "mine")


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


def test_a_shard_that_is_missing_is_named(checkpoint: Path, tmp_path: Path) -> None:
    heads = tmp_path / "heads" / "fasterdecoding"
    published = combined(checkpoint, heads, tmp_path / "published", pickled=True, shards=3)
    (published / "pytorch_model-00002-of-00003.bin").unlink()

    with pytest.raises(LayoutError, match=r"00002-of-00003\.bin"):
        import_model(published, tmp_path / "mine")


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


def test_an_empty_tree_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "tree.json").write_text("[]", encoding="utf-8")
    with pytest.raises(LayoutError, match="it is empty: plain decoding needs no heads"):
        import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "nxdi", tree=tmp_path / "tree.json")


def test_a_tree_deeper_than_the_heads_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text("[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0, 0]]", encoding="utf-8")
    with pytest.raises(LayoutError, match="needs 4 heads, and there are 3"):
        import_model(checkpoint, tmp_path / "mine", tmp_path / "heads" / "nxdi", tree=tree)


def test_the_command_says_how_to_serve_and_does_not_overwrite(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["import", "--checkpoint", str(checkpoint), "--output", str(tmp_path / "mine")]
    words += ["--heads", str(tmp_path / "heads" / "vllm")]

    assert main(words) == 0
    assert f"PEAKPLAN_MODEL_DIR={tmp_path / 'mine'} make serve" in capsys.readouterr().out
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err


def test_what_was_imported_is_told_to_programs(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "mine"
    assert main(["import", "--json", "--checkpoint", str(checkpoint), "--output", str(output)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["heads"]) == (str(output), 0)
    assert set(told) == {"folder", "heads", "notes"}
