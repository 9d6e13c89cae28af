"""Train the early exit: a tuned lens on the state after the first layers, with all else frozen.

It learns as a Medusa head does (`heads.py`), but from the state after the first layers, and to predict the token that
the whole model writes at that position: a tuned lens (Belrose et al., arXiv 2303.08112) for the tokens that the grammar
allows. `python -m training.early_exit` adds an exit to a finished model folder, or replaces it once its adapter has
changed; `make train` does it after the heads.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from training.heads import fit, lm_head
from training.part import part_parser, part_settings
from training.positions import collect_early
from training.settings import EarlyExitSettings, TrainingSettings


class TrainableTunedLens(nn.Module):
    """A tuned lens [B, H] -> [1, B, H], x + W x + b, starting at zero, where the state passes unchanged."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        return (hidden + functional.linear(hidden, self.weight, self.bias))[None]

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that `TunedLens.load` reads, in bfloat16."""
        return {name: value.detach().to(torch.bfloat16).contiguous().cpu() for name, value in self.named_parameters()}


def train_early_exit(settings: TrainingSettings, model_dir: Path) -> float:
    """Write early_exit.json and early_exit.safetensors; return the accuracy on held-out choices."""
    early_exit = settings.early_exit
    torch.manual_seed(settings.seed)
    positions = collect_early(settings, model_dir)
    torch.set_num_threads(settings.processes)
    embedding = lm_head(model_dir, settings.cache)
    tuned_lens = TrainableTunedLens(embedding.shape[1])
    [accuracy] = fit(tuned_lens, positions, own_targets(positions.tokens), embedding, early_exit.tuned_lens)
    save_file(tuned_lens.state(), model_dir / "early_exit.safetensors", metadata={"format": "pt"})
    card = {
        "layers": early_exit.layers,
        "longest": early_exit.shape.longest,
        "p_min": early_exit.shape.p_min,
    }
    (model_dir / "early_exit.json").write_text(json.dumps(card) + "\n", encoding="utf-8")
    return accuracy


def own_targets(tokens: Tensor) -> Tensor:
    """Return targets [P, 1]: each position's own token, where a Medusa head predicts a later one."""
    return torch.arange(len(tokens))[:, None]


def main() -> None:
    parser = part_parser(__doc__, "exit")
    parser.add_argument("--questions", type=int, default=EarlyExitSettings().questions, help="to learn from")
    arguments = parser.parse_args()
    settings = replace(part_settings(arguments), early_exit=EarlyExitSettings(questions=arguments.questions))
    accuracy = train_early_exit(settings, arguments.model)
    print(f"{arguments.model}: the exit chooses as the whole model does in {accuracy:.1%} of held-out choices")


if __name__ == "__main__":
    main()
