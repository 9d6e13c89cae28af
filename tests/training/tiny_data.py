"""A data folder of a few rows in the real one's format, and a base of two layers."""

import gzip
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example
from training.data.mix import Shares
from training.data.own_rows import OwnRow, own_example
from training.positions import Positions

VOCABULARY = shipped_vocabulary()


def made(row: dict[str, Any]) -> Example:
    return own_example(OwnRow.model_validate(row), VOCABULARY)


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "my.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


SMALL = Shares(attributes=60, products=60, categories=40, written=0.02, support=40, out_of_scope=20, conversations=0.01)


def write_data(folder: Path) -> Path:
    """Write every file that the mix reads."""
    folder.mkdir(parents=True)
    queries = [
        {"query": f"{colour} {thing}", "spans": [["color", colour, 0, 1], ["core_product_type", thing, 1, 2]]}
        for colour in ("red", "blue", "black", "green")
        for thing in ("shoes", "kettle", "lamp", "jacket")
    ]
    extra = [
        {"query": "nike shoes wool", "spans": [["creator", "nike", 0, 1], ["material", "wool", 2, 3]]},
        {"query": "mens tall lamp", "spans": [["department", "mens", 0, 1], ["UoM", "tall", 1, 2]]},
        {"query": "round party lamp soft dogs", "spans": [["shape", "round", 0, 1], ["occasion", "party", 1, 2],
         ["modifier", "soft", 3, 4], ["content", "dogs", 4, 5]]},
    ]  # fmt: skip
    _write(folder / "queryner_train.jsonl.gz", queries + extra)
    _write(folder / "queryner_dev.jsonl.gz", queries[:3] + extra)
    real = [
        _partial(
            f"i want a lamp number {index}", "webshop", "find_product", ["catalog"], "train" if index % 2 else "dev"
        )
        for index in range(8)
    ]
    real += [_partial(f"is lamp {index} any good?", "pqa_hetPQA", "ask_product", ["reviews"]) for index in range(40)]
    real += [
        _partial(f"how do i cancel order {index}", "bitext", "order_change", ["orders", "help"]) for index in range(40)
    ]
    _write(folder / "plan_real_partial.jsonl.gz", real)
    clinc = [
        {"text": f"{intent} question {index}", "clinc_intent": intent, "label": "out_of_scope"}
        for intent in ("weather", "spelling", "timer", "oos", "taxes", "alarm", "recipe", "traffic")
        for index in range(6)
    ]
    _write(folder / "clinc_train_sample.jsonl.gz", clinc)
    _write(folder / "bitext_support.jsonl.gz", [{"text": f"where is my order {number}"} for number in range(4)])
    webshop = {"instruction": "i need a red lamp", "human_queries": ["red lamp"]}
    _write(folder / "webshop_instructions.jsonl.gz", [webshop] * 4)
    synthetic = [
        _synthetic(leaf, "dev" if leaf == "vases" else "train") for leaf in ("lamps", "kettles", "vases", "rugs")
    ]
    _write(folder / "plan_synth_taxonomy.jsonl.gz", synthetic)
    categories = [
        {"id": "hg-1", "path": f"Home & Garden > {leaf.title()}", "attrs": ["color", "age_group", "lamp/base_material"]}
        for leaf in ("lamps", "kettles", "vases", "rugs")
    ]
    bare = {"id": "se-1", "path": "Services > Repair", "attrs": []}
    _write(folder / "taxonomy_categories.jsonl.gz", [*categories, bare])
    attributes = [
        {"handle": "color", "name": "Color", "values": ["Red", "Rose gold"], "ext": ["shade_color"]},
        {"handle": "age_group", "name": "Age group", "values": ["0-6 months"], "ext": []},
        {"handle": "lamp_base_material", "name": "Base material", "values": ["Polyester (PE)", "Cotton;"], "ext": []},
        {"handle": "unused", "name": "Unused", "values": [], "ext": []},
    ]
    _write(folder / "taxonomy_attributes.jsonl.gz", attributes)
    products = [{"name": "Rustic Charm Boots", "category": "footwear"}, {"name": "Easter Set", "category": "seasonal"}]
    _write(folder / "aws_retail_products.jsonl.gz", products)
    return folder


def write_base(folder: Path, tokenizer: Tokenizer, initializer_range: float = 0.02, layers: int = 2) -> Path:
    """Write a random Llama in Hugging Face's layout; one of wider weights learns faster."""
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _partial(text: str, origin: str, intent: str, sources: list[str], split: str = "train") -> dict[str, Any]:
    plan = {"mode": "conversational", "intent": intent, "facets": {}, "sources": sources}
    supervised = ["mode", "intent", "sources"]
    return {"text": text, "plan": plan, "supervised": supervised, "origin": origin, "split": split}


def _synthetic(leaf: str, split: str) -> dict[str, Any]:
    plan = {
        "mode": "keyword",
        "intent": "find_product",
        "vertical": "hg",
        "category": f"Home & Garden > {leaf.title()}",
        "facets": {"type": [leaf], "attr:finish": ["matte"], "price_max": 30.0},
        "sources": ["catalog"],
    }
    return {"text": f"matte {leaf} under $30", "plan": plan, "origin": "taxonomy_keyword", "split": split}


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def counting_plans(embedding: torch.Tensor, plans: int, length: int) -> Positions:
    """Return plans where n + 1 follows n, and the grammar allows that token and one other."""
    vocabulary = len(embedding)
    tokens = torch.stack([(torch.arange(length) + start) % vocabulary for start in range(plans)]).flatten()
    legal = torch.stack([tokens, (tokens + 5) % vocabulary], dim=1).sort(dim=1).values.flatten()
    count = len(tokens)
    return Positions(
        hidden=embedding[(tokens - 1) % vocabulary].bfloat16(),
        tokens=tokens,
        lengths=torch.full((plans,), length),
        forced=torch.zeros(count, dtype=torch.bool),
        legal=legal,
        legal_counts=torch.full((count,), 2),
        prompts=tokens[::length],
        prompt_lengths=torch.ones(plans, dtype=torch.int64),
        prompt_hidden=torch.empty(0, embedding.shape[1]),
    )
