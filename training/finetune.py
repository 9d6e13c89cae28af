"""Fine-tune the base for planning: a LoRA adapter, trained on the plan fields that are known.

Seeded, and restartable: a checkpoint holds adapter, average, optimiser and position, and each epoch is drawn from a
generator seeded by (seed, epoch), so that a resumed run sees the same batches in the same order.
"""

import json
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from service.planner.vocabulary import Vocabulary
from service.weights.tokenizer_file import read_tokenizer
from training.data.examples import IGNORED, EncodedExample, encode_turns, target_sets, within
from training.data.mix import Source
from training.settings import AdapterSettings
from training.tuned import precision, run_processes

_BUCKET = 1024  # examples


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: tokens, targets and positions [B, T], right-padded; mask [B, 1, T, T], 0 where a token may attend."""

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.targets.to(device), self.positions.to(device), self.mask.to(device))


def collate(examples: Sequence[EncodedExample], padding: int) -> Batch:
    """Right-pad examples to the length of the longest. A plan sees what was said before it, and itself."""
    length = max(len(example.tokens) for example in examples)
    tokens = torch.full((len(examples), length), padding)
    targets = torch.full((len(examples), length), IGNORED)
    positions = torch.zeros((len(examples), length), dtype=torch.long)
    segments = torch.full((len(examples), length), -1)
    for row, example in enumerate(examples):
        size = len(example.tokens)
        tokens[row, :size] = torch.tensor(example.tokens)
        targets[row, :size] = torch.tensor(example.targets)
        positions[row, :size] = torch.tensor(example.positions)
        segments[row, :size] = torch.tensor(example.segments)
    asking, asked = segments[:, :, None], segments[:, None, :]
    sees = ((asked == 0) | (asked == asking)) & torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
    return Batch(tokens, targets, positions, mask[:, None])


def batches(examples: Sequence[EncodedExample], size: int, rng: random.Random) -> Iterator[Sequence[EncodedExample]]:
    """Yield shuffled batches of similar lengths and at most `size` tokens, padding counted, or of one example."""
    made: list[Sequence[EncodedExample]] = []
    for start in range(0, len(examples), _BUCKET):
        bucket = sorted(examples[start : start + _BUCKET], key=lambda example: len(example.tokens))
        batch: list[EncodedExample] = []
        for example in bucket:
            if batch and (len(batch) + 1) * len(example.tokens) > size:
                made.append(batch)
                batch = []
            batch.append(example)
        made.append(batch)
    rng.shuffle(made)
    yield from made


def plan_loss(logits: Tensor, targets: Tensor, target_sets: dict[int, Tensor]) -> Tensor:
    """Return the mean negative log-likelihood of targets; a negative target is any token of its set.

    logits [P, V] at the supervised positions, targets [P]; target_sets maps each set's code to its token ids.
    """
    log_probabilities = functional.log_softmax(logits.float(), dim=-1)
    chosen = log_probabilities.gather(1, targets.clamp(min=0)[:, None]).squeeze(1)
    for code, ids in target_sets.items():
        of_set = targets == code
        if of_set.any():
            chosen = torch.where(of_set, torch.logsumexp(log_probabilities[:, ids], dim=-1), chosen)
    return -chosen.mean()


LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_ADAPTER_PREFIX = "base_model.model."
_WEIGHTS = "adapter_model.safetensors"


@dataclass(slots=True)
class _Run:
    """The changing state of a run, all of which a checkpoint holds."""

    model: Any
    parameters: dict[str, Tensor]
    average: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    step: int = 0


@dataclass(frozen=True, slots=True)
class Finetuning:
    """A run: the base and its special tokens, where to go on from, and what to learn.

    `source` is called once in every process, and therefore has to be picklable. `work` holds the checkpoint and is
    absolute. The adapter in `start` has the rank of `adapter`.
    """

    base: Path
    bos: int
    eos: int
    vocabulary: Vocabulary
    source: Callable[[], Source]
    adapter: AdapterSettings
    work: Path
    seed: int
    start: Path | None = None


def finetune(run: Finetuning, output: Path, processes: int) -> None:
    """Train an adapter into the folder `output`, or resume from the last checkpoint.

    On a CPU each core runs a process of its own with one thread and a share of every batch: that keeps its pace beside
    other work, where two threads of one process would wait for each other at every operation.
    """
    run.work.mkdir(parents=True, exist_ok=True)
    rendezvous = run.work / f"rendezvous-{os.getpid()}"
    run_processes(_work, 1 if torch.cuda.is_available() else processes, rendezvous, run, output)
    rendezvous.unlink(missing_ok=True)


def _work(rank: int, world: int, rendezvous: Path, run: Finetuning, output: Path) -> None:
    """Run one process; rank 0 shows the progress and writes the checkpoints and the result."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(run.seed)
    tokenizer = read_tokenizer(run.base / "tokenizer.json")
    state = _start(run.adapter, run.base, run.start, device)
    checkpoint = run.work / "checkpoint.pt"
    if checkpoint.is_file():
        _load(state, checkpoint)
    sets = {code: torch.tensor(ids, device=device) for code, ids in target_sets(tokenizer, run.vocabulary).items()}
    bar = tqdm(desc="adapter", unit="step", disable=rank > 0, initial=state.step, mininterval=10, ascii=True)
    for step, total, examples in _all_batches(run, tokenizer):
        if step < state.step:
            continue
        bar.total = total
        batch = collate(examples[rank::world] or examples[:1], run.eos).to(device)
        loss = _train_step(state, batch, sets, _learning_rate(run.adapter, step, total), run.adapter)
        bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        bar.update()
        if rank == 0 and state.step % run.adapter.checkpoint_every == 0:
            _save(state, checkpoint)
    bar.close()
    if rank == 0:
        _export(state, run.adapter, output)
    torch.distributed.destroy_process_group()


def _start(settings: AdapterSettings, base: Path, before: Path | None, device: torch.device) -> _Run:
    # The backward pass of a fused kernel costs a fifth of a CPU's step where sequences are this short.
    attention = "eager" if device.type == "cpu" else "sdpa"
    dtype = precision(device)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation=attention)
    model = model.to(device)
    lora = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=LINEARS,
        task_type="CAUSAL_LM",
    )
    tuned = get_peft_model(model, lora)
    tuned.train()
    if before is not None:
        weights = {_peft_name(name): value for name, value in load_file(before / _WEIGHTS).items()}
        unexpected = tuned.load_state_dict(weights, strict=False).unexpected_keys
        if unexpected:
            raise ValueError(f"{before} does not fit the model: {unexpected[:3]}")
    parameters: dict[str, Tensor] = {name: value for name, value in tuned.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(
        parameters.values(), betas=(0.9, 0.99), weight_decay=settings.weight_decay, fused=True
    )
    return _Run(tuned, parameters, {name: value.detach().clone() for name, value in parameters.items()}, optimizer)


def _all_batches(run: Finetuning, tokenizer: Tokenizer) -> Iterator[tuple[int, int, Sequence[EncodedExample]]]:
    """Yield (step, total steps, examples of the batch) over all epochs, the same for the same seed."""
    source, size = run.source(), run.adapter.batch_tokens
    step = 0
    for epoch in range(run.adapter.epochs):
        rng = random.Random(f"{run.seed}/adapter/{epoch}")
        encoded = []
        for dialogue in source.epoch(rng):
            turns = [known for turn in dialogue if (known := within(turn, run.vocabulary)) is not None]
            if turns:
                encoded.append(encode_turns(turns, tokenizer, run.vocabulary, run.bos, run.eos))
        drawn = list(batches(encoded, size, rng))
        total = step + len(drawn) * (run.adapter.epochs - epoch)
        for examples in drawn:
            yield step, total, examples
            step += 1


def _train_step(
    run: _Run, batch: Batch, sets: dict[int, Tensor], learning_rate: float, settings: AdapterSettings
) -> float:
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate
    device, dtype = batch.tokens.device, precision(batch.tokens.device)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        causal = run.model.get_base_model()
        mask = batch.mask.to(dtype)
        hidden = causal.model(
            input_ids=batch.tokens, attention_mask=mask, position_ids=batch.positions, use_cache=False
        )
        supervised = batch.targets != IGNORED
        logits = causal.lm_head(hidden.last_hidden_state[supervised])  # [P, V]
    loss = plan_loss(logits, batch.targets[supervised], sets)
    run.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    _average_gradients(run)
    torch.nn.utils.clip_grad_norm_(run.parameters.values(), settings.max_gradient_norm)
    run.optimizer.step()
    run.step += 1
    decay = min(settings.average_decay, run.step / (run.step + 10))
    torch._foreach_lerp_(list(run.average.values()), [value.detach() for value in run.parameters.values()], 1 - decay)
    return float(loss.detach())


def _average_gradients(run: _Run) -> None:
    if torch.distributed.get_world_size() == 1:
        return
    gradients = [value.grad for value in run.parameters.values() if value.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    flat /= torch.distributed.get_world_size()
    for gradient, averaged in zip(
        gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
    ):
        gradient.copy_(averaged.view_as(gradient))


def _learning_rate(settings: AdapterSettings, step: int, total: int) -> float:
    """Return the learning rate: linear warm-up, then cosine decay to a twentieth."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    progress = min(1.0, (step - settings.warmup_steps) / max(1, total - settings.warmup_steps))
    return settings.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def _save(run: _Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "step": run.step,
        "parameters": {name: value.detach() for name, value in run.parameters.items()},
        "average": run.average,
        "optimizer": run.optimizer.state_dict(),
    }
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def _load(run: _Run, path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    run.step = state["step"]
    with torch.no_grad():
        for name, value in run.parameters.items():
            value.copy_(state["parameters"][name])
            run.average[name].copy_(state["average"][name])
    run.optimizer.load_state_dict(state["optimizer"])


def _peft_name(name: str) -> str:
    """Return PEFT's name for a saved weight, which lacks the adapter's name that a live one has."""
    return name.replace(".lora_A.", ".lora_A.default.").replace(".lora_B.", ".lora_B.default.")


def _export(run: _Run, settings: AdapterSettings, folder: Path) -> None:
    """Write the averaged adapter in PEFT's layout, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name.replace(".default.", "."): value.to(torch.bfloat16).contiguous() for name, value in run.average.items()
    }
    if not all(name.startswith(_ADAPTER_PREFIX) for name in weights):
        raise ValueError("adapter parameters do not have PEFT's names; did peft change its layout?")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": settings.rank, "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout, "target_modules": LINEARS, "bias": "none", "inference_mode": True,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
