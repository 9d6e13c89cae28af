"""Train Medusa heads on the frozen tuned model (Medusa-1 of Cai et al., 2024, https://arxiv.org/abs/2401.10774).

Head i reads the hidden state of position t, whose own next token is t + 1, and predicts token t + 2 + i. The LM head is
shared and frozen; the loss runs over the draft vocabulary, the tokens that plans really use.
"""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from service.engines.model_folder import load_model
from training.data.examples import IGNORED
from training.positions import Positions
from training.settings import HeadSettings, TrainingSettings


class HeadCheckError(AssertionError):
    """The labels or gradients of the heads are not what they must be."""


class TrainableHeads(nn.Module):
    """[B, H] -> [heads, B, H]: x + SiLU(W x + b), zero at the start, so that each head begins as the LM head itself."""

    def __init__(self, heads: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(heads, hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        mixed = torch.einsum("bh,noh->nbo", hidden, self.weight) + self.bias[:, None]
        return hidden[None] + functional.silu(mixed)

    def state(self) -> dict[str, Tensor]:
        """FasterDecoding's and TGI's parameter names, in bfloat16."""
        named = {}
        for index in range(self.weight.shape[0]):
            named[f"{index}.0.linear.weight"] = self.weight[index].detach().to(torch.bfloat16).contiguous().cpu()
            named[f"{index}.0.linear.bias"] = self.bias[index].detach().to(torch.bfloat16).contiguous().cpu()
        return named


def head_labels(tokens: Tensor, lengths: list[int], heads: int) -> Tensor:
    """Labels [P, heads]: for head i at position p the token i + 1 places after the one that position p predicts.

    `tokens[p]` is what position p predicts (t + 1), so head i's label is `tokens[p + 1 + i]` of the same plan, IGNORED past
    its end.
    """
    labels = torch.full((len(tokens), heads), IGNORED)
    start = 0
    for length in lengths:
        for head in range(heads):
            kept = max(0, length - head - 1)
            labels[start : start + kept, head] = tokens[start + head + 1 : start + head + 1 + kept]
        start += length
    return labels


def check_heads(heads: int = 4) -> None:
    """Prove before training that each head's labels are shifted by its own distance and that each head gets gradient.

    Trained one place off, heads look healthy (the loss falls) and predict nothing. Raises HeadCheckError.
    """
    lengths = [7, 3]
    tokens = torch.tensor([*range(100, 107), *range(200, 203)])  # the token names its place
    labels = head_labels(tokens, lengths, heads)
    for position in range(len(tokens)):
        end = 7 if position < 7 else 10
        for head in range(heads):
            there = position + 1 + head
            expected = int(tokens[there]) if there < end else IGNORED
            if int(labels[position, head]) != expected:
                raise HeadCheckError(f"head {head} at position {position}: {int(labels[position, head])}, not {expected}")
    generator = torch.Generator().manual_seed(0)
    module = TrainableHeads(heads, 8)
    matrix = torch.randn(16, 8, generator=generator)
    for head in range(heads):
        module.zero_grad()
        only = torch.full((5, heads), IGNORED)
        only[:, head] = torch.arange(5)
        heads_loss(module(torch.randn(5, 8, generator=generator)), only, matrix, 0.8).backward()  # type: ignore[no-untyped-call]
        gradient = module.weight.grad
        reached = [index for index in range(heads) if gradient is not None and bool(gradient[index].any())]
        if reached != [head]:
            raise HeadCheckError(f"the labels of head {head} give gradient to heads {reached}")


def heads_loss(states: Tensor, labels: Tensor, matrix: Tensor, decay: float) -> Tensor:
    """Sum over heads of decay**i times the mean cross-entropy.

    states [heads, B, H], labels [B, heads] as indices into the draft vocabulary, matrix [V, H] its LM-head rows.
    """
    total = states.new_zeros(())
    for head in range(states.shape[0]):
        known = labels[:, head] != IGNORED
        if known.any():
            logits = states[head][known] @ matrix.T
            total = total + decay**head * functional.cross_entropy(logits.float(), labels[known, head])
    return total


def train_heads(positions: Positions, settings: TrainingSettings, model_dir: Path) -> list[float]:
    """Train and write `medusa_heads.safetensors`; returns each head's top-1 accuracy on a held-out twentieth."""
    check_heads(settings.heads.heads)
    torch.manual_seed(settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_model(model_dir, settings.cache)
    lm_head = loaded.weights["model.embed_tokens.weight" if loaded.config.tie_word_embeddings else "lm_head.weight"]
    module, accuracy = _fit(positions, lm_head, settings.heads, device)
    save_file(module.state(), model_dir / "medusa_heads.safetensors", metadata={"format": "pt"})
    return accuracy


def _fit(
    positions: Positions, lm_head: Tensor, settings: HeadSettings, device: torch.device
) -> tuple[TrainableHeads, list[float]]:
    """lm_head [V, H]; returns the trained heads and their held-out accuracies."""
    vocabulary = torch.unique(positions.tokens)
    labels = _to_draft(head_labels(positions.tokens, positions.lengths, settings.heads), vocabulary, lm_head.shape[0])
    matrix = lm_head[vocabulary].to(device, torch.bfloat16)
    held_out = sum(positions.lengths[: max(1, len(positions.lengths) // 20)])
    module = TrainableHeads(settings.heads, lm_head.shape[1]).to(device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    count = len(positions.tokens) - held_out
    steps = math.ceil(count / settings.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=steps * settings.epochs, pct_start=0.1
    )
    accuracy: list[float] = []
    for epoch in range(settings.epochs):
        order = held_out + torch.randperm(count)
        running = 0.0
        for chosen in order.split(settings.batch_size):
            hidden, wanted = positions.hidden[chosen].to(device).float(), labels[chosen].to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = heads_loss(module(hidden), wanted, matrix, settings.loss_decay)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            running += float(loss.detach())
        accuracy = _accuracy(module, positions.hidden[:held_out], labels[:held_out], matrix)
        print(f"heads: epoch {epoch + 1}/{settings.epochs} loss {running / steps:.4f} top-1 {accuracy}", flush=True)
    return module, accuracy


def _to_draft(labels: Tensor, vocabulary: Tensor, size: int) -> Tensor:
    index = torch.full((size,), IGNORED)
    index[vocabulary] = torch.arange(len(vocabulary))
    return torch.where(labels == IGNORED, IGNORED, index[labels.clamp(min=0)])


@torch.inference_mode()
def _accuracy(module: TrainableHeads, hidden: Tensor, labels: Tensor, matrix: Tensor) -> list[float]:
    states = module(hidden.to(matrix.device).float())
    accuracy = []
    for head in range(states.shape[0]):
        known = (labels[:, head] != IGNORED).to(matrix.device)
        best = (states[head][known].to(matrix.dtype) @ matrix.T).argmax(-1)
        accuracy.append(round(float((best == labels.to(matrix.device)[known, head]).float().mean()), 4))
    return accuracy
