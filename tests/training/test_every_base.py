"""A base of every architecture is trained for some fifty steps, served, exported and imported again."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest
import torch

from service.engines.torch_engine import load
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from service.settings.engines import EngineConfig
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS
from service.weights.importing import import_model
from service.weights.model_folder import load_model
from tests.bases import ARCHITECTURES, hidden_size, transformers_greedy, write_base, write_heads
from tests.training.test_finetune import _train
from tests.weights.samples import plan
from training import finetune
from training.bases import read_base
from training.data.examples import Example
from training.data.mix import Dialogue
from training.finetune import Finetuning
from training.settings import AdapterSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
ROWS, BATCH_TOKENS, LEAST_STEPS = 400, 96, 40


@dataclass(frozen=True)
class FewRows:
    """Questions of two words."""

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        return [(example,) for example in self._examples(rng)]

    def dev(self) -> dict[str, list[Example]]:
        return {}

    def _examples(self, rng: random.Random) -> Iterator[Example]:
        for _ in range(ROWS):
            query = f"{rng.choice(('red', 'blue', 'black'))} {rng.choice(('lamp', 'kettle', 'shoes'))}"
            spans = [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)]
            yield Example(query, PlanDraft("keyword", "find_product", ["catalog"], spans))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More would wait for each other at every operation of models as small as these."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loss of every step that is taken."""
    found: list[float] = []
    step = finetune._train_step

    def noted(*arguments: object) -> float:
        found.append(step(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(finetune, "_train_step", noted)
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_trained_served_and_goes_through_an_export(
    architecture: str, losses: list[float], tmp_path: Path
) -> None:
    base = write_base(tmp_path / architecture, architecture)
    heads = write_heads(tmp_path / "heads", hidden_size(base))
    made = import_model(base, tmp_path / "made", heads, beside={FILE_NAME: SHIPPED_MODEL / FILE_NAME})
    untrained = load_model(made.folder, tmp_path).weights

    _train(_few_steps(made.folder, tmp_path))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(tmp_path / "work" / name, made.folder)

    assert len(losses) >= LEAST_STEPS
    assert fmean(losses[-5:]) < 0.8 * fmean(losses[:5])
    trained = load_model(made.folder, tmp_path).weights
    changed = {name for name, tensor in trained.items() if not torch.equal(tensor, untrained[name])}
    assert changed == {name for name in trained if name.endswith("_proj.weight")}
    written = _decoded(made.folder, tmp_path)

    exported = export_model(made.folder, tmp_path, LAYOUTS["nxdi"], tmp_path / "exported")
    again = import_model(exported.folder, tmp_path / "again", exported.heads[0])

    assert _decoded(again.folder, tmp_path) == written
    assert transformers_greedy(exported.folder) == written


def _few_steps(imported: Path, folder: Path) -> Finetuning:
    base = read_base(imported, folder)
    return Finetuning(
        base=base.folder,
        bos=base.bos,
        eos=base.eos,
        vocabulary=shipped_vocabulary(),
        source=FewRows,
        adapter=AdapterSettings(
            rank=4, alpha=8, epochs=1, batch_tokens=BATCH_TOKENS, learning_rate=1e-2, warmup_steps=5
        ),
        work=folder / "work",
        seed=7,
    )


def _decoded(model_dir: Path, cache_dir: Path) -> list[int]:
    """Return the tokens of a plan, which are the same with heads and without."""
    config = EngineConfig(model_dir=model_dir, cache_dir=cache_dir, dtype="float32", max_prompt_tokens=128)
    model = load(config)
    tokens = plan(model, "autoregressive")
    assert plan(model, "medusa") == tokens
    return tokens
