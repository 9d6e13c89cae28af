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
from peakplan.shop.meanings import word_vectors
from rehearsal.bench.kinds import QUESTIONS
from service.planner.shop.meanings import GENERAL_VECTORS
from tests.training.judged import Likeness, has_the_same_words
from training import needs
from training.needs import Need, draw_together, general_categories, read_needs
from training.word_vectors import _MOST, SentenceEncoder, Texts, distil, word_texts, write

WORDS = ["puddle", "mud", "boot", "tent", "sleep", "outside", "keep", "red", "cheap"]
NEEDS = [
    Need(("Shoes", "Boots"), "keep out puddles"),
    Need(("Shoes", "Boots"), "keep off mud"),
    Need(("Camping", "Tents"), "sleep outside"),
    Need(("Camping", "Tents"), "keep asleep outside"),
    Need((), "cheap"),
]
_NEAR = 0.7  # of the words of both


def closer(vectors: torch.Tensor, word: str, right: str, wrong: str) -> float:
    """Return by how much a word is closer to the right one than to the wrong one."""
    mine, one, other = (vectors[WORDS.index(each)] for each in (word, right, wrong))
    return float(functional.cosine_similarity(mine, one, dim=0) - functional.cosine_similarity(mine, other, dim=0))


def test_words_of_needs_come_close_to_the_category_that_meets_them() -> None:
    torch.manual_seed(0)
    before = torch.randn(len(WORDS), 16)
    after = draw_together(WORDS, before, NEEDS * 400)

    for asked in (("puddle", "boot", "tent"), ("mud", "boot", "tent"), ("sleep", "tent", "boot")):
        assert closer(after, *asked) > closer(before, *asked) + 0.1, asked
    unused = WORDS.index("red")
    assert after[unused] / after[unused].norm() == pytest.approx((before[unused] / before[unused].norm()).numpy())


def test_the_needs_of_a_category_mean_together_what_shops_have_for_them() -> None:
    vectors = np.eye(len(WORDS), dtype=np.float32)
    boots, tents = general_categories(WORDS, vectors, NEEDS)

    assert np.flatnonzero(boots).tolist() == [WORDS.index("puddle"), WORDS.index("mud"), WORDS.index("keep")]
    assert boots[WORDS.index("keep")] == 127  # said in both
    assert tents[WORDS.index("puddle")] == 0 < tents[WORDS.index("sleep")]


def test_the_categories_that_ship_are_those_of_the_vectors_and_needs_that_ship() -> None:
    numbers, vectors = word_vectors()
    found = general_categories(list(numbers), vectors.astype(np.float32), read_needs())
    assert np.abs(np.load(GENERAL_VECTORS).astype(int) - found).max() <= 1


def test_a_line_that_is_no_need_under_a_category_is_refused_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    file.write_text("[Shoes > Boots]\nkeep out mud\n[]\nhello\n", encoding="utf-8")
    assert read_needs(file) == [Need(("Shoes", "Boots"), "keep out mud"), Need((), "hello")]
    for text, line in (("keep out mud\n", 1), ("[Shoes]\nkeep out mud\n\n", 3)):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"needs\.txt:{line}: "):
            read_needs(file)


def test_no_need_is_nearly_a_question_that_kinds_or_plans_are_judged_by() -> None:
    judged = Likeness((json.loads(line)["query"] for line in QUESTIONS.read_text("utf-8").splitlines()), _NEAR)
    written = read_needs()
    assert len(written) > 15_000
    assert [need.text for need in written if judged.is_near(need.text) or has_the_same_words(need.text)] == []


def test_searches_instructions_and_bare_names_name_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "queryner_train": {"query": "red boots"},
        "webshop_instructions": {"instruction": "i need a tent", "human_queries": ["tent"]},
        "plan_synth_taxonomy": {"text": "cheap tents"},
    }
    for name, row in rows.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    monkeypatch.setattr(needs, "product_names", lambda: [("3d printer", "electronics")])
    *texts, name = sorted(needs.named_things(tmp_path), key=lambda text: "3d printer" in text)
    assert sorted(texts) == ["cheap tents", "i need a tent", "red boots", "tent"]
    assert name.endswith("3d printer")


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
    write(tmp_path / "v.npz", ["boot", "café"], vectors)
    monkeypatch.setattr(meanings, "WORD_VECTORS", tmp_path / "v.npz")
    meanings.word_vectors.cache_clear()
    numbers, found = meanings.word_vectors()
    meanings.word_vectors.cache_clear()

    assert numbers == {"boot": 0, "café": 1}
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
