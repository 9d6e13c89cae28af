"""A base of one's own is looked at before anything is made, then trained by the documented commands.

A base of every architecture is trained for some fifty steps, served, exported and imported again.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from tokenizers import Tokenizer

from service.engines.torch_engine import load
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import FILE_NAME, VocabularyError, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from service.settings.engines import EngineConfig
from service.weights.checkpoint import read_config
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS, LayoutError
from service.weights.importing import import_model
from service.weights.model_folder import TooLittleMemoryError, load_model
from tests.bases import ARCHITECTURES, hidden_size, random_base, transformers_greedy, write_base, write_heads
from tests.training.test_finetune import _train
from tests.training.test_make_train import assert_serves, documented, start
from tests.training.tiny_data import write_data, written
from tests.weights.samples import configure, plan
from training import export, finetune, own_data
from training.bases import check_base, read_base
from training.data.examples import Example
from training.data.mix import Dialogue
from training.export import PARTS
from training.finetune import Finetuning
from training.settings import AdapterSettings, TrainingSettings

quietly = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
BOS, EOS = 1, 2  # of the tokenizer of plan words


def base_of(folder: Path, architecture: str, tokenizer: Tokenizer) -> Path:
    written = write_base(folder / architecture, architecture, tokenizer=tokenizer)
    configure(written, bos_token_id=BOS, eos_token_id=EOS)
    return written


def settings(folder: Path, base: Path | None) -> TrainingSettings:
    return TrainingSettings(data=folder, cache=folder, work=folder / "work", output=folder / "made", base=base)


@pytest.fixture
def qwen(tmp_path: Path, plan_tokenizer: Tokenizer) -> Path:
    return base_of(tmp_path, "qwen2", plan_tokenizer)


def test_what_a_run_takes_is_said_before_it_begins(qwen: Path, tmp_path: Path) -> None:
    base = read_base(qwen, tmp_path)
    whole = settings(tmp_path, qwen)

    said = check_base(base, whole, shipped_vocabulary())

    weights = sum(
        parameter.numel() for parameter in random_base("qwen2", vocab_size=base.config.vocab_size).parameters()
    )
    assert base.parameters == weights
    assert (base.bos, base.eos, base.is_shipped) == (BOS, EOS, False)
    assert f"qwen2, {weights / 1e6:,.0f} million weights" in said
    assert "2 processes" in said


def test_time_goes_with_the_weights_of_the_layers(qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.weights.model_folder.available_bytes", lambda: None)
    base = read_base(qwen, tmp_path)
    larger = replace(base, config=replace(base.config, num_layers=60_000))

    said = [check_base(each, settings(tmp_path, qwen), shipped_vocabulary()) for each in (base, larger)]

    hours = [float(text.split("some ")[1].split(" hours")[0]) for text in said]
    minutes = json.loads((SHIPPED_MODEL / "training.json").read_text(encoding="utf-8"))["minutes"]
    share = larger.linear / 106_168_320
    assert hours == [0.0, pytest.approx(sum(minutes.values()) / 60 * share, abs=0.1)]


def test_a_tokenizer_that_splits_plan_words_is_named(qwen: Path, tmp_path: Path) -> None:
    shipped = shipped_vocabulary()
    facets = {**shipped.facets, "type": shipped.facets["type"].model_copy(update={"word": "Zyzzyva"})}
    vocabulary = shipped.model_copy(update={"facets": facets})

    with pytest.raises(VocabularyError, match=r"facets\.type\.word: 'Zyzzyva' is \d+ tokens of this tokenizer; choose"):
        check_base(read_base(qwen, tmp_path), settings(tmp_path, qwen), vocabulary)


def test_too_little_memory_is_said_in_gib(qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.weights.model_folder.available_bytes", lambda: 1000)
    with pytest.raises(TooLittleMemoryError, match=r"training qwen2 in 2 processes takes some .* GiB lack"):
        check_base(read_base(qwen, tmp_path), settings(tmp_path, qwen), shipped_vocabulary())


def test_an_unknown_architecture_is_refused_before_anything_is_written(qwen: Path, tmp_path: Path) -> None:
    configure(qwen, model_type="gemma3")
    with pytest.raises(LayoutError, match="model_type 'gemma3' is not served"):
        read_base(qwen, tmp_path)


@pytest.mark.slow
@quietly
def test_a_bare_import_is_gone_on_from_with_rows_of_one_s_own(
    tmp_path: Path, plan_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no adapter to begin with, and no parts; those after the adapter have tests of their own."""
    made = import_model(base_of(tmp_path, "qwen3", plan_tokenizer), tmp_path / "bare", beside={
        "vocabulary.json": SHIPPED_MODEL / "vocabulary.json"
    })  # fmt: skip
    rows = [{"question": f"red lamp {number}", "facets": {"type": ["lamp"]}, "vertical": "home-garden",
             "intent": "find_product"} for number in range(24)]  # fmt: skip
    monkeypatch.setattr(own_data, "make_parts", _adapter_alone)
    monkeypatch.setattr(export, "PARTS", {name: PARTS[name] for name in ("model.json", FILE_NAME, *ADAPTER)})
    wish = ["finetune", str(written(tmp_path, *rows)), "--from", str(made.folder), "--output", str(tmp_path / "mine")]
    options = ["--work", str(tmp_path / "work"), "--rehearsal", "0.005", "--measured", "2", "--epochs", "1"]
    monkeypatch.setattr("sys.argv", [*wish, *options, "--accept-worse"])

    own_data.main()
    shutil.rmtree(made.folder)
    moved = Path(shutil.move(tmp_path / "mine", tmp_path / "moved"))

    record = json.loads((moved / "training.json").read_text(encoding="utf-8"))
    assert record["from"] == {"id": "qwen3", "adapter": None}
    model = load(EngineConfig(model_dir=moved, cache_dir=tmp_path, dtype="float32", strategy="autoregressive",
                              max_prompt_tokens=128))  # fmt: skip
    assert plan(model, "autoregressive")


def _adapter_alone(
    run: Finetuning, settings: TrainingSettings, model: Path, judge: Callable[[], None]
) -> dict[str, float]:
    assert run.start is None
    _train(run)
    assert settings.adapter == run.adapter
    for name in ADAPTER:
        shutil.copy(run.work / name, model)
    judge()
    return {"adapter_model.safetensors": 0.0}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_documented_commands_train_a_base_of_one_s_own(tmp_path: Path, plan_tokenizer: Tokenizer) -> None:
    """Train from an import; what is made serves from another place, without what it was made of."""
    write_data(tmp_path / "shared" / "data")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    import_model(base_of(tmp_path, "qwen3", plan_tokenizer), checkout / "imported", beside={
        "vocabulary.json": SHIPPED_MODEL / "vocabulary.json"
    })  # fmt: skip
    command = documented("train", SCALE="0.003", BASE="imported")
    assert command[command.index("--output") + 1] == "models/imported"

    trained = start(tmp_path, command)
    printed, _ = trained.communicate()
    assert trained.returncode == 0, printed
    assert "qwen3" in printed
    moved = Path(shutil.move(checkout / "models" / "imported", tmp_path / "moved"))
    shutil.rmtree(checkout / "runs")
    assert_serves(moved, tmp_path / "cache", "red shoes")
    assert read_config(moved / "base").model_type == "qwen3"
    card = (moved / "README.md").read_text(encoding="utf-8")
    assert "The base, imported, is in the folder `base/`" in card


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


@pytest.fixture
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_base_is_trained_served_and_goes_through_an_export(
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
