"""Train Medusa heads on the frozen tuned model (Medusa-1 of Cai et al., 2024, https://arxiv.org/abs/2401.10774).

Head i reads the hidden state of position t, whose own next token is t + 1, and predicts token t + 2 + i. The LM head is
shared and frozen; the loss runs over the tokens that the grammar allowed, because a head only ever ranks those.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from service.weights.checkpoint import read_config, read_lm_head
from service.weights.model_folder import base_folder, read_card
from training.data.examples import IGNORED
from training.positions import Positions
from training.settings import HeadSettings, TrainingSettings


class TrainableHeads(nn.Module):
    """Medusa heads [B, H] -> [heads, B, H], x + SiLU(W x + b), starting at zero, where each equals the LM head."""

    def __init__(self, heads: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(heads, hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        mixed = torch.einsum("bh,noh->nbo", hidden, self.weight) + self.bias[:, None]
        return hidden[None] + functional.silu(mixed)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors under FasterDecoding's and TGI's names, in bfloat16."""
        named = {}
        for index in range(self.weight.shape[0]):
            named[f"{index}.0.linear.weight"] = self.weight[index].detach().to(torch.bfloat16).contiguous().cpu()
            named[f"{index}.0.linear.bias"] = self.bias[index].detach().to(torch.bfloat16).contiguous().cpu()
        return named


def head_targets(lengths: Tensor, heads: int) -> Tensor:
    """Return [P, heads]: the position whose token each head predicts, IGNORED past the plan's end.

    Position p itself writes token p (t + 1), so head i at p foretells token p + 1 + i of the same plan.
    """
    ends = torch.repeat_interleave(torch.cumsum(lengths, 0), lengths)  # [P]
    targets = torch.arange(len(ends))[:, None] + 1 + torch.arange(heads)[None]
    return torch.where(targets < ends[:, None], targets, IGNORED)


@dataclass(frozen=True, slots=True)
class Choices:
    """The labels of each head at a batch of positions, and the tokens among which it chooses.

    A head is only ever asked to rank the tokens that the grammar allows, so it learns to rank these alone; what is
    forced it need not learn. `matrix` [V, H] holds the LM-head rows of all tokens that occur in the batch.
    """

    matrix: Tensor
    rows: list[Tensor]  # for each head the batch rows [R] where it has a choice to learn
    labels: list[Tensor]  # [R] row of `matrix` that is right
    allowed: list[Tensor]  # [R, V] bool

    @classmethod
    def of(cls, positions: Positions, targets: Tensor, lm_head: Tensor) -> "Choices":
        """Take `targets` [B, heads] from `head_targets`."""
        asked = (targets != IGNORED) & ~positions.forced[targets.clamp(min=0)]
        starts = torch.cumsum(positions.legal_counts, 0) - positions.legal_counts
        every = targets[asked]
        vocabulary = torch.unique(torch.cat([positions.tokens[every], _legal(positions, starts, every)[1]]))
        rows, labels, allowed = [], [], []
        for head in range(targets.shape[1]):
            chosen = asked[:, head].nonzero().squeeze(1)
            wanted = targets[chosen, head]
            row, ids = _legal(positions, starts, wanted)
            mask = (positions.legal_counts[wanted] == 0)[:, None].repeat(1, len(vocabulary))
            mask[row, torch.searchsorted(vocabulary, ids)] = True
            rows.append(chosen)
            labels.append(torch.searchsorted(vocabulary, positions.tokens[wanted]))
            allowed.append(mask)
        return cls(lm_head[vocabulary].to(torch.bfloat16), rows, labels, allowed)

    def to(self, device: torch.device) -> "Choices":
        moved = ([tensor.to(device) for tensor in tensors] for tensors in (self.rows, self.labels, self.allowed))
        return Choices(self.matrix.to(device), *moved)

    def logits(self, states: Tensor, head: int) -> Tensor:
        """Return logits [R, V], minus infinity where the grammar forbids. `states` is [heads, B, H]."""
        scores = states[head][self.rows[head]].to(self.matrix.dtype) @ self.matrix.T
        return scores.float().masked_fill(~self.allowed[head], -torch.inf)

    def loss(self, states: Tensor, decay: float) -> Tensor:
        """Return the sum over heads of decay**i times the mean cross-entropy."""
        total = states.new_zeros(())
        for head, labels in enumerate(self.labels):
            if len(labels):
                total = total + decay**head * functional.cross_entropy(self.logits(states, head), labels)
        return total


def _legal(positions: Positions, starts: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for positions [R], the row of each legal id, and the ids, laid end to end."""
    counts = positions.legal_counts[wanted]
    row = torch.repeat_interleave(torch.arange(len(wanted)), counts)
    within = torch.arange(len(row)) - torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
    return row, positions.legal[starts[wanted][row] + within]


def train_heads(positions: Positions, settings: TrainingSettings, model_dir: Path) -> list[float]:
    """Write `medusa_heads.safetensors`; return each head's top-1 accuracy on a held-out twentieth."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.processes)  # large products benefit from threads
    targets = head_targets(positions.lengths, settings.heads.heads)
    embedding = lm_head(model_dir, settings.cache)
    module = TrainableHeads(settings.heads.heads, embedding.shape[1])
    accuracy = fit(module, positions, targets, embedding, settings.heads)
    save_file(module.state(), model_dir / "medusa_heads.safetensors", metadata={"format": "pt"})
    return accuracy


def lm_head(model_dir: Path, cache: Path) -> Tensor:
    """Return the output embedding of a model folder, [V, H]."""
    base = base_folder(read_card(model_dir), model_dir, cache)
    return read_lm_head(base, read_config(base)).float()  # no adapter of ours changes it


def fit(
    module: nn.Module, positions: Positions, targets: Tensor, lm_head: Tensor, settings: HeadSettings
) -> list[float]:
    """Train a module [B, H] -> [heads, B, H] in place; return each head's accuracy on a held-out twentieth.

    `targets` [P, heads] come from `head_targets`; `lm_head` is [V, H].
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    held_out = int(positions.lengths[: max(1, len(positions.lengths) // 20)].sum())
    module.to(device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    count = len(positions.tokens) - held_out
    steps = math.ceil(count / settings.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        # The schedule divides by the length of its first tenth, less one step.
        optimizer,
        settings.learning_rate,
        total_steps=max(20, steps * settings.epochs),
        pct_start=0.1,
    )
    accuracy: list[float] = []
    for epoch in range(settings.epochs):
        running = 0.0
        for chosen in torch.split(held_out + torch.randperm(count), settings.batch_size):
            choices = Choices.of(positions, targets[chosen], lm_head).to(device)
            loss = choices.loss(module(positions.hidden[chosen].to(device).float()), settings.loss_decay)
            if not loss.requires_grad:  # the grammar forced all of these
                continue
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            running += float(loss.detach())
        accuracy = _accuracy(module, positions.hidden[:held_out], Choices.of(positions, targets[:held_out], lm_head))
        print(f"heads: epoch {epoch + 1}/{settings.epochs} loss {running / steps:.4f} top-1 {accuracy}", flush=True)
    return accuracy


@torch.inference_mode()
def _accuracy(module: nn.Module, hidden: Tensor, choices: Choices) -> list[float]:
    """Return the share of right choices of each head; NaN for one that had none."""
    device = next(module.parameters()).device
    choices = choices.to(device)
    states = module(hidden.to(device).float())
    return [
        round(float((choices.logits(states, head).argmax(-1) == labels).float().mean()), 4) if len(labels) else math.nan
        for head, labels in enumerate(choices.labels)
    ]
