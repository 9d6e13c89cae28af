"""Train the prefill head (`service/decoding/prefill_head.py`): how plans begin, predicted from their prompts' words.

It learns from the same plans as the Medusa heads, which the tuned model wrote itself. Phrases are the beginnings of
plans that no prompt holds; after a phrase mostly comes a word of the prompt, and the head learns to point at it.
`python -m training.prefill_head` adds such a head to a finished model folder, or replaces it once its adapter has
changed.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from service.decoding.prefill_head import MOST_POSITIONS, PrefillHeadWeights
from service.weights.tokenizer_file import load_tokenizer
from training.heads import lm_head
from training.part import part_parser, part_settings
from training.positions import Positions, collect
from training.settings import PrefillHeadSettings, TrainingSettings

NOTHING = -1  # index for "nothing is copied"
_LONGEST_PHRASE = 4
_SEEN = 20  # number of plans that must begin with a token before it is part of a phrase


class TrainablePrefillHead(nn.Module):
    """The weights of a prefill head, as parameters."""

    def __init__(self, phrases: int, features: int, hidden_size: int) -> None:
        super().__init__()
        shapes = {
            "around": (features, 3 * hidden_size),
            "mean": (features, hidden_size),
            "position": (MOST_POSITIONS, features),
            "bias": (features,),
            "copy": (phrases, features),
            "alone": (phrases, features),
            "summary": (phrases, hidden_size),
            "first": (phrases, hidden_size),
            "prior": (phrases,),
        }
        for name, shape in shapes.items():
            is_matrix = len(shape) == 2 and name != "position"
            bound = shape[-1] ** -0.5 if is_matrix else 0.0
            setattr(self, name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def weights(self) -> PrefillHeadWeights:
        return PrefillHeadWeights(**dict(self.named_parameters()))

    def state(self, scale: float) -> dict[str, Tensor]:
        """Return the tensors of `load_prefill_head_weights`, in bfloat16; embeddings were divided by `scale`."""
        reads_embeddings = ("around", "mean", "summary", "first")
        return {
            name: (value / scale if name in reads_embeddings else value).detach().to(torch.bfloat16).contiguous().cpu()
            for name, value in self.named_parameters()
        }


@dataclass(frozen=True, slots=True)
class Beginnings:
    """How N plans begin, with their prompts as the head reads them.

    `tokens` [N, T + 1] and `mask` [N, T] are the prompts; `phrase` [N] is each plan's phrase, and `copied` [N] the
    token after it, or NOTHING.
    """

    tokens: Tensor
    mask: Tensor
    phrase: Tensor
    copied: Tensor

    @classmethod
    def of(
        cls, prompts: Sequence[list[int]], plans: Sequence[list[int]], phrases: list[tuple[int, ...]]
    ) -> "Beginnings":
        """Match each plan to the longest phrase that it begins with; plans without one are left out."""
        index = {phrase: number for number, phrase in enumerate(phrases)}
        rows: list[tuple[list[int], int, int]] = []
        for prompt, plan in zip(prompts, plans, strict=True):
            fits = [plan[:length] for length in range(_LONGEST_PHRASE, 0, -1) if tuple(plan[:length]) in index]
            if not fits or len(prompt) < 3:
                continue
            after = plan[len(fits[0])] if len(plan) > len(fits[0]) else NOTHING
            read = prompt[: MOST_POSITIONS + 1]
            rows.append((read, index[tuple(fits[0])], after if after in read[1:-1] else NOTHING))
        longest = max(len(read) for read, _, _ in rows)
        tokens = torch.zeros((len(rows), longest), dtype=torch.int64)
        mask = torch.zeros((len(rows), longest - 1), dtype=torch.bool)
        for row, (read, _, _) in enumerate(rows):
            tokens[row, : len(read)] = torch.tensor(read)
            mask[row, 1 : len(read) - 1] = True
        return cls(tokens, mask, torch.tensor([row[1] for row in rows]), torch.tensor([row[2] for row in rows]))

    def part(self, rows: Tensor) -> "Beginnings":
        return Beginnings(self.tokens[rows], self.mask[rows], self.phrase[rows], self.copied[rows])

    def right(self, copied: Tensor, alone: Tensor) -> Tensor:
        """Return the log-sum-exp [N] over the scores of all right answers; see `PrefillHeadWeights.scores`."""
        row = torch.arange(len(self.phrase))
        is_right = self.mask & (self.tokens[:, :-1] == self.copied[:, None])
        pointed = copied[row, :, self.phrase].masked_fill(~is_right, -torch.inf)
        return torch.where(self.copied == NOTHING, alone[row, self.phrase], _log_sum(pointed))


def choose_phrases(prompts: Sequence[list[int]], plans: Sequence[list[int]], most: int) -> list[tuple[int, ...]]:
    """Return the most frequent beginnings of plans that their prompts do not hold."""
    own: Counter[int] = Counter()
    for prompt, plan in zip(prompts, plans, strict=True):
        own.update(set(plan[:_LONGEST_PHRASE]) - set(prompt))
    common = {token for token, count in own.items() if count >= min(_SEEN, len(plans) // 10)}
    seen: Counter[tuple[int, ...]] = Counter()
    for plan in plans:
        length = 0
        while length < min(_LONGEST_PHRASE, len(plan)) and plan[length] in common:
            length += 1
        seen[tuple(plan[:length])] += length > 0
    return [phrase for phrase, count in seen.most_common(most) if count]


def fit_prefill_head(
    module: TrainablePrefillHead, known: Beginnings, embedding: Tensor, settings: PrefillHeadSettings
) -> tuple[float, float]:
    """Train in place; return how often the phrase, and phrase and copy, are right on a held-out twentieth.

    `embedding` [V, H] has the scale at which the module reads it.
    """
    held_out = max(1, len(known.phrase) // 20)
    count = len(known.phrase) - held_out
    steps = settings.epochs * math.ceil(count / settings.batch_size)
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, total_steps=steps)
    for epoch in range(settings.epochs):
        running = 0.0
        for rows in torch.split(held_out + torch.randperm(count), settings.batch_size):
            batch = known.part(rows)
            copied, alone = module.weights().scores(embedding[batch.tokens], batch.mask)
            every = torch.logsumexp(torch.cat([copied.flatten(1), alone], 1), 1)
            loss = (every - batch.right(copied, alone)).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            running += float(loss.detach()) * len(rows)
        accuracy = prefill_head_accuracy(module.weights(), known.part(torch.arange(held_out)), embedding)
        print(
            f"prefill head: epoch {epoch + 1}/{settings.epochs} loss {running / count:.4f} top-1 {accuracy}",
            flush=True,
        )
    return accuracy


@torch.inference_mode()
def prefill_head_accuracy(weights: PrefillHeadWeights, known: Beginnings, embedding: Tensor) -> tuple[float, float]:
    """Return how often the likeliest phrase is right, and that phrase together with what it copies."""
    copied, alone = weights.scores(embedding[known.tokens], known.mask)
    phrases = alone.shape[1]
    best = torch.cat([copied.flatten(1), alone], 1).argmax(1)
    is_alone = best >= copied[0].numel()
    position = torch.where(is_alone, 0, best // phrases)
    pointed = torch.where(is_alone, NOTHING, known.tokens[torch.arange(len(best)), position])
    phrase_is_right = best % phrases == known.phrase
    return round(float(phrase_is_right.float().mean()), 4), round(
        float((phrase_is_right & (pointed == known.copied)).float().mean()), 4
    )


def train_prefill_head(positions: Positions, settings: TrainingSettings, model_dir: Path) -> tuple[float, float]:
    """Write prefill_head.json and prefill_head.safetensors; return the result of `fit_prefill_head`."""
    chosen = settings.prefill_head
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.processes)
    prompts = [part.tolist() for part in torch.split(positions.prompts, positions.prompt_lengths.tolist())]
    plans = [part.tolist() for part in torch.split(positions.tokens, positions.lengths.tolist())]
    phrases = choose_phrases(prompts, plans, chosen.phrases)
    tokenizer = load_tokenizer(model_dir, settings.cache)
    embedding = lm_head(model_dir, settings.cache).float()
    scale = float(embedding.std())
    module = TrainablePrefillHead(len(phrases), chosen.features, embedding.shape[1])
    accuracy = fit_prefill_head(module, Beginnings.of(prompts, plans, phrases), embedding / scale, chosen)
    save_file(module.state(scale), model_dir / "prefill_head.safetensors", metadata={"format": "pt"})
    card = {
        "phrases": [tokenizer.decode(list(phrase)) for phrase in phrases],
        "p_min": chosen.p_min,
    }
    (model_dir / "prefill_head.json").write_text(json.dumps(card) + "\n", encoding="utf-8")
    return accuracy


def _log_sum(scores: Tensor) -> Tensor:
    """Compute `logsumexp` [N] of [N, T], with no gradient from rows in which nothing is finite."""
    some = torch.isfinite(scores).any(1, keepdim=True)
    return torch.logsumexp(torch.where(some, scores, 0.0), 1)


def main() -> None:
    arguments = part_parser(__doc__, "head").parse_args()
    settings = part_settings(arguments)
    phrase, whole = train_prefill_head(collect(settings, arguments.model), settings, arguments.model)
    print(f"{arguments.model}: of held-out plans {phrase:.1%} begin as guessed, {whole:.1%} go on as guessed")


if __name__ == "__main__":
    main()
