"""Vectors of words: which texts they are trained on, the encoder they follow, and what of it they keep."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn import functional

from peakplan.shop import meanings
from training.needs import Telling
from training.sentence_encoder import SentenceEncoder
from training.word_texts import _MOST, Texts, word_texts
from training.word_vectors import distil, write

NOUN = """  1 This is the licence
00003993 06 n 02 rain_boot 0 wellington 0 001 @ 00003553 n 0000 | a boot for wet ground; "he wore rain boots"
00003994 14 n 01 committee 0 001 @ 00003553 n 0000 | people who meet
"""
VERB = '00003995 30 v 01 trudge 0 000 00 | walk heavily; "he trudged through the mud"\n'


def test_texts_are_things_uses_and_shoppers_words_and_the_same_each_time(tmp_path: Path) -> None:
    for part, text in (("noun", NOUN), ("verb", VERB), ("adj", ""), ("adv", "")):
        (tmp_path / f"data.{part}").write_text(text, encoding="utf-8")
    row = {"query": "rain boots", "instruction": "find boots", "human_queries": ["boots"], "question": "are they dry"}
    for name in _MOST:
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps(row | {"text": "cancel it", "path": "Apparel > Shoes > Rain Boots"}) + "\n")

    found = word_texts(tmp_path, tmp_path)

    assert found == word_texts(tmp_path, tmp_path)
    assert found.names == ["rain boot"]
    assert {"a boot for wet ground", "rain boots", "Shoes Rain Boots", "find boots", "are they dry"} <= set(found.texts)
    assert "people who meet" not in found.texts
    assert "boot" in found.words
    assert "committee" not in found.words


def test_a_texts_vectors_add_up_to_what_it_means() -> None:
    torch.manual_seed(1)
    words = [f"w{number:02d}x" for number in range(40)]
    meaning = functional.normalize(torch.randn(40, 384), dim=-1)
    texts = [f"{words[one]} {words[(one * 7 + two) % 40]}" for one in range(40) for two in range(1, 20)]
    summed = [
        functional.normalize(meaning[[words.index(word) for word in text.split()]].sum(0), dim=0) for text in texts
    ]

    meant = {"words": meaning, "names": torch.zeros(0, 384), "texts": functional.normalize(torch.stack(summed), dim=-1)}
    vectors, agreed = distil(Texts(words, [], texts), meant)

    assert vectors.shape == (40, 128)
    assert agreed > 0.9


def test_what_is_written_is_what_a_shop_is_learnt_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.tensor([[1.0, -2.0], [0.5, 0.25]])
    telling = Telling(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), -0.5)
    write(tmp_path / "v.npz", ["boot", "café"], vectors, telling)
    monkeypatch.setattr(meanings, "WORD_VECTORS", tmp_path / "v.npz")
    meanings.word_vectors.cache_clear()
    numbers, found, told = meanings.word_vectors()
    meanings.word_vectors.cache_clear()

    assert numbers == {"boot": 0, "café": 1}
    assert told.tolist() == [[1, 3, 5], [2, 4, 6], [-0.5, 0, 0]]
    np.testing.assert_allclose(found / found[0, 1], vectors.numpy() / -2.0, atol=0.01)


def test_the_encoder_is_bert_as_pytorch_has_its_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [
        torch.nn.TransformerEncoderLayer(384, 12, 1536, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True).eval()
        for _ in range(6)
    ]
    weights = {
        "embeddings.word_embeddings.weight": torch.randn(50, 384),
        "embeddings.position_embeddings.weight": torch.randn(64, 384),
        "embeddings.token_type_embeddings.weight": torch.randn(2, 384),
        "embeddings.LayerNorm.weight": torch.ones(384),
        "embeddings.LayerNorm.bias": torch.zeros(384),
    }
    for number, layer in enumerate(layers):
        weights |= {f"encoder.layer.{number}.{name}": weight for name, weight in _bert_names(layer)}
    save_file(weights, tmp_path / "model.safetensors")
    vocabulary = {f"w{number}": number for number in range(50)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    texts = ["w3 w9 w14 w4", "w7", "w1 w2"]
    found = SentenceEncoder(tmp_path).encode(texts)

    words, places, types = (
        weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    for text, vector in zip(texts, found, strict=True):
        ids = [vocabulary[word] for word in text.split()]
        states = functional.layer_norm(words[ids] + places[: len(ids)] + types[0], (384,), eps=1e-12)[None]
        with torch.no_grad():
            for layer in layers:
                states = layer(states)
        assert float(functional.normalize(states.mean(1)[0], dim=0) @ vector) > 0.999, text


def _bert_names(layer: torch.nn.TransformerEncoderLayer) -> Iterator[tuple[str, torch.Tensor]]:
    for kind in ("weight", "bias"):
        joined = getattr(layer.self_attn, f"in_proj_{kind}").detach()
        for part, share in zip(("query", "key", "value"), joined.chunk(3), strict=True):
            yield f"attention.self.{part}.{kind}", share.clone()
        for name, module in (
            ("attention.output.dense", layer.self_attn.out_proj),
            ("attention.output.LayerNorm", layer.norm1),
            ("intermediate.dense", layer.linear1),
            ("output.dense", layer.linear2),
            ("output.LayerNorm", layer.norm2),
        ):
            yield f"{name}.{kind}", getattr(module, kind).detach()
