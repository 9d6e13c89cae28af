"""Train an EAGLE-3 head: one layer learns what the frozen tuned model writes, from the states of three of its layers.

`python -m training.eagle` adds `eagle/` to a finished model folder, or replaces it once its adapter has changed; the
recipe makes none, because Medusa heads are faster here (docs/decisions/0016). It learns from the model's own greedy
plans, in two ways at once. Our loop drafts under the grammar, so it learns as the heads do (`heads.py`): where the
grammar left a choice, among the tokens that it allowed. vLLM and NxDI draft without one, so it learns every token of a
plan among all of its vocabulary, too: a head that knew the first way alone had 0.7% of its first guesses right.
As EAGLE-3 has it ("training-time test", Li et al., arXiv 2503.01840), the layer reads its own outputs for as many steps
as it will draft, each entry seeing true entries up to where the draft began and drafted ones from there on.
"""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from service.decoding.draft_model import ChainShape
from service.decoding.llama_config import LlamaConfig
from service.decoding.target import CausalLM
from service.weights.checkpoint import read_config
from service.weights.eagle_head import FOLDER
from service.weights.model_folder import base_folder, read_card
from training.eagle_model import TrainableEagle
from training.heads import lm_head
from training.part import part_parser, part_settings
from training.positions import questions_of
from training.settings import TrainingSettings
from training.tuned import GreedyPlan, TunedModel


@dataclass(frozen=True, slots=True)
class EagleSettings:
    """How the head learns; `vocabulary` is how many of the commonest tokens it drafts.

    `alone` is how much guesses without the grammar count, where those under it count 1.
    """

    questions: int = 2000
    vocabulary: int = 8192
    steps: int = ChainShape().longest
    decay: float = 0.8
    alone: float = 0.3
    epochs: int = 4
    batch_size: int = 16
    learning_rate: float = 1e-3


@dataclass(frozen=True, slots=True)
class Seen:
    """A plan with its prompt: tokens [N], the states [N, 3H] after the head's layers, and each choice's legal ids.

    `choices` are positions of tokens that the grammar left open, in the plan alone.
    """

    tokens: Tensor
    states: Tensor
    prompt: int
    choices: list[int]
    legal: list[Tensor]


def aux_layers(layers: int) -> tuple[int, int, int]:
    """Return after how many layers states are taken: vLLM's own choice, where a model has enough layers for it."""
    if layers >= 8:
        return (2, layers // 2, layers - 3)
    if layers < 3:
        raise ValueError(f"a model of {layers} layers has no three states for an EAGLE-3 head")
    return (1, (layers + 1) // 2, layers)


def seen(model: CausalLM, plan: GreedyPlan) -> Seen:
    """Read a plan whole, and keep the states that the head will be given."""
    tokens = torch.tensor([*plan.prompt, *plan.tokens])
    cache, places = model.new_cache(len(tokens)), torch.arange(len(tokens))
    hidden, done, states = model.embed(tokens), 0, []
    for layers in aux_layers(model.config.num_layers):
        hidden = model.run_layers(hidden, places, cache, range(done, layers))
        done = layers
        states.append(hidden.clone().to(torch.bfloat16))
    open_to = [(place, ids) for place, ids in enumerate(plan.legal, len(plan.prompt)) if ids is not None]
    return Seen(
        tokens,
        torch.cat(states, 1),
        len(plan.prompt),
        [place for place, _ in open_to],
        [torch.from_numpy(ids) for _, ids in open_to],
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """Plans side by side: entries' tokens [B, T] and states [B, T, 3H], and what each token could have been.

    Of choice c: its row in the batch, the entry that foretells it at every step, its plan's first drafted entry, its
    label and the tokens allowed, both in the draft's vocabulary, and whether the grammar left it `open`. What it forced
    is foretold only without it, among all tokens.
    """

    tokens: Tensor
    states: Tensor
    rows: Tensor
    entries: Tensor
    first: Tensor
    labels: Tensor
    allowed: Tensor
    open: Tensor

    @classmethod
    def of(cls, plans: Sequence[Seen], index: Tensor, vocabulary: int) -> "_Batch":
        length = max(len(plan.tokens) for plan in plans) - 1
        tokens = torch.zeros((len(plans), length), dtype=torch.long)
        states = torch.zeros((len(plans), length, plans[0].states.shape[1]))
        asked: list[tuple[int, int, int, int, bool]] = []
        allowed: list[Tensor] = []
        for row, plan in enumerate(plans):
            count = len(plan.tokens) - 1
            tokens[row, :count], states[row, :count] = plan.tokens[1:], plan.states[:-1].float()
            legal = dict(zip(plan.choices, plan.legal, strict=True))
            for place in range(plan.prompt + 1, count + 1):  # the plan's first token is the target's own choice
                label, is_open = int(index[plan.tokens[place]]), place in legal
                if label < 0:
                    continue
                mask = torch.full((vocabulary,), not is_open)
                if is_open:
                    places = index[legal[place]]
                    mask[places[places >= 0]] = True
                asked.append((row, place - 2, plan.prompt - 1, label, is_open))
                allowed.append(mask)
        stacked = torch.stack(allowed) if allowed else torch.zeros((0, vocabulary), dtype=torch.bool)
        rows, entries, first, labels, opened = torch.tensor(asked, dtype=torch.long).view(-1, 5).unbind(1)
        return cls(tokens, states, rows, entries, first, labels, stacked, opened.bool())

    def asked(self, step: int) -> Tensor:
        """Return the choices [C] bool whose draft may have begun `step` entries before."""
        return self.entries - step >= self.first


class Right(NamedTuple):
    """Shares of right guesses: of open choices among what the grammar allows, and of all tokens among all."""

    under_grammar: float
    alone: float


def learn(module: TrainableEagle, plans: Sequence[Seen], tokens: Tensor, settings: EagleSettings) -> list[Right]:
    """Train in place on all but a held-out twentieth; return there the shares of right guesses of each step."""
    index = torch.full((len(module.embedding),), -1)
    index[tokens] = torch.arange(len(tokens))
    held_out, taught = plans[: max(1, len(plans) // 20)], plans[max(1, len(plans) // 20) :]
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    steps = max(20, settings.epochs * -(-len(taught) // settings.batch_size))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, total_steps=steps, pct_start=0.1)
    for epoch in range(settings.epochs):
        running = 0.0
        for chosen in torch.split(torch.randperm(len(taught)), settings.batch_size):
            batch = _Batch.of([taught[each] for each in chosen.tolist()], index, len(tokens))
            loss, _ = _judged(module, batch, settings)
            if not loss.requires_grad:  # none of these has a second token
                continue
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += float(loss.detach())
        print(f"eagle: epoch {epoch + 1}/{settings.epochs} loss {running:.3f}", flush=True)
    with torch.inference_mode():
        return _judged(module, _Batch.of(held_out, index, len(tokens)), settings)[1]


def _judged(module: TrainableEagle, batch: _Batch, settings: EagleSettings) -> tuple[Tensor, list[Right]]:
    """Return the loss, later steps counting less, and each step's shares of right guesses."""
    loss, right = torch.zeros(()), []
    for step, states in enumerate(module(batch.tokens, batch.states, settings.steps)):
        asked = batch.asked(step)
        logits, labels = module.logits(states[batch.rows[asked], batch.entries[asked]]), batch.labels[asked]
        is_open = batch.open[asked]
        allowed = logits[is_open].masked_fill(~batch.allowed[asked][is_open], float("-inf"))
        for weight, each, wanted in ((settings.alone, logits, labels), (1.0, allowed, labels[is_open])):
            if len(wanted):
                loss = loss + weight * settings.decay**step * functional.cross_entropy(each, wanted)
        right.append(Right(_share(allowed, labels[is_open]), _share(logits, labels)))
    return loss, right


def _share(logits: Tensor, labels: Tensor) -> float:
    """Return how many of the best guesses are right; NaN where there are none."""
    return round(float((logits.argmax(-1) == labels).float().mean()), 4)


def layer_of(target: LlamaConfig) -> LlamaConfig:
    """Return the architecture of a head's layer: one layer of the target's shape, without what Llama has not."""
    return replace(
        target, num_layers=1, model_type="llama", qkv_bias=False, output_bias=False, qk_norm=False, rope_scaling=None,
        unrotated_layers=(), sliding_window=None, max_position_embeddings=target.longest_sequence,
        tie_word_embeddings=False,
    )  # fmt: skip


def commonest(plans: Sequence[Seen], count: int) -> Tensor:
    """Return the `count` commonest tokens, ascending."""
    counted = Counter(token for plan in plans for token in plan.tokens.tolist())
    return torch.tensor(sorted(token for token, _ in counted.most_common(count)))


def write_head(module: TrainableEagle, tokens: Tensor, layers: Sequence[int], folder: Path) -> None:
    """Write a head as vLLM reads one, in bfloat16, in place of one that was there."""
    made, config = folder.with_name(f".{folder.name}.made"), module.config
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    named = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in module.named_parameters()}
    named["lm_head.weight"] = module.rows.to(torch.bfloat16)
    vocabulary = len(module.embedding)
    named["d2t"] = tokens - torch.arange(len(tokens))
    named["t2d"] = torch.isin(torch.arange(vocabulary), tokens)
    save_file(named, made / "model.safetensors", metadata={"format": "pt"})
    described = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size, "num_hidden_layers": 1, "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads, "head_dim": config.head_dim, "vocab_size": vocabulary,
        "draft_vocab_size": len(tokens), "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "eagle_aux_hidden_state_layer_ids": list(layers), **config.rope_fields(),
    }  # fmt: skip
    (made / "config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def train_eagle(settings: TrainingSettings, model_dir: Path, eagle: EagleSettings) -> list[Right]:
    """Write `eagle/` into a model folder; return the shares of right guesses of each step on held-out plans."""
    torch.manual_seed(settings.seed)
    model = TunedModel(model_dir, settings.cache)
    layers = aux_layers(model.llama.config.num_layers)
    plans = [plan for question in questions_of(settings, eagle.questions) if (plan := model.greedy(question))]
    shown = [seen(model.llama, plan) for plan in plans]
    torch.set_num_threads(settings.processes)
    config = read_config(base_folder(read_card(model_dir), model_dir, settings.cache))
    tokens = commonest(shown, eagle.vocabulary)
    embedding = model.llama.embed(torch.arange(config.vocab_size))
    module = TrainableEagle(layer_of(config), embedding, lm_head(model_dir, settings.cache)[tokens])
    right = learn(module, shown, tokens, eagle)
    write_head(module, tokens, layers, model_dir / FOLDER)
    return right


def main() -> None:
    parser = part_parser(__doc__, "EAGLE-3 head")
    parser.add_argument("--questions", type=int, default=EagleSettings().questions, help="to learn from")
    parser.add_argument("--epochs", type=int, default=EagleSettings().epochs)
    arguments = parser.parse_args()
    eagle = EagleSettings(questions=arguments.questions, epochs=arguments.epochs)
    right = train_eagle(part_settings(arguments), arguments.model, eagle)
    grammar, alone = ([each[kind] for each in right] for kind in range(2))
    print(f"{arguments.model}: of held-out choices the head guesses right, by step, under the grammar: {grammar}")
    print(f"and of all tokens of those plans without it, as vLLM drafts: {alone}")


if __name__ == "__main__":
    main()
