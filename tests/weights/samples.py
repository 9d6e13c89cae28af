"""Heads and bases of random bits: any bit pattern, NaN included, must survive."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from service.engines.protocol import GenerationRequest
from service.engines.torch_engine import TorchModel
from service.planner.grammar import plan_grammar
from service.planner.plan_text import parse
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import Strategy
from service.weights.head_layouts import HeadWeights

QUESTION = Question.parse("red nike running shoes under $100")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a tensor of random bytes."""
    width = torch.empty((), dtype=dtype).element_size()
    octets = torch.randint(0, 256, (*shape[:-1], shape[-1] * width), generator=generator, dtype=torch.uint8)
    return octets.view(dtype)


def random_heads(
    count: int, hidden: int, vocabulary: int, dtype: torch.dtype, *, own: bool, seed: int = 0
) -> HeadWeights:
    """Return `count` heads over a base of that shape; with LM heads of their own where `own`."""
    generator = torch.Generator().manual_seed(seed)
    return HeadWeights(
        tuple(random_bits((hidden, hidden), dtype, generator) for _ in range(count)),
        tuple(random_bits((hidden,), dtype, generator) for _ in range(count)),
        tuple(random_bits((vocabulary, hidden), dtype, generator) for _ in range(count)) if own else None,
    )


def random_lm_head(hidden: int, vocabulary: int, dtype: torch.dtype, seed: int = 99) -> Tensor:
    return random_bits((vocabulary, hidden), dtype, torch.Generator().manual_seed(seed))


def configure(base: Path, **changes: Any) -> None:
    path = base / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def shard(base: Path, count: int = 3) -> None:
    """Split the weights as Hugging Face does."""
    weights = load_file(base / "model.safetensors")
    parts: list[dict[str, torch.Tensor]] = [{} for _ in range(count)]
    for number, (name, tensor) in enumerate(sorted(weights.items())):
        parts[number % count][name] = tensor
    index = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{count:05}.safetensors"
        save_file(part, base / file)
        index |= dict.fromkeys(part, file)
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
    (base / "model.safetensors").unlink()


def plan(model: TorchModel, strategy: Strategy) -> list[int]:
    request = GenerationRequest(
        prompt=render_prompt(QUESTION), grammar=plan_grammar(QUESTION, shipped_vocabulary()), strategy=strategy
    )
    result = model.generate(request)
    assert result.stop_reason == "finished"
    parse(result.text, QUESTION, shipped_vocabulary())
    return result.tokens
