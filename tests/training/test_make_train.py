"""`make train` as documented, in miniature: default paths, a base of six layers, killed on the way and run again.

A work folder belongs to one run: parts of two runs would make a model that no run trained.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from service.engines.protocol import GenerationRequest
from service.engines.torch_engine import load
from service.planner.grammar import plan_grammar
from service.planner.plan_text import parse
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.engines import EngineConfig
from service.weights.base_weights import BASE_NAME, LAYOUT_VERSION, WHEEL_SHA256
from tests.training.tiny_data import write_base, write_data
from training.export import sha256
from training.recipe import WorkFolderError, make_parts
from training.settings import TrainingSettings

ROOT = Path(__file__).parents[2]
MODEL, WORK = Path("models/qp-smollm2-135m"), Path("runs/qp-smollm2-135m")
ADAPTER, CHECKPOINT = WORK / "model/adapter_model.safetensors", WORK / "checkpoint.pt"


def documented(target: str, **variables: str) -> list[str]:
    """Return the command that a make target runs, once all is installed."""
    given = [f"{name}={value}" for name, value in variables.items()]
    words = ["make", "--no-print-directory", "--dry-run", target, f"BIN={Path(sys.executable).parent}", *given]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return shlex.split(printed.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, plan_tokenizer: Tokenizer) -> Iterator[Path]:
    """Return a folder laid out as the documentation has it: the data beside what stands for the checkout."""
    folder = tmp_path_factory.mktemp("train")
    torch.manual_seed(1)
    base = folder / "cache" / f"{BASE_NAME}-{WHEEL_SHA256[:8]}-v{LAYOUT_VERSION}"
    write_base(base, plan_tokenizer, initializer_range=0.2, layers=6)
    write_data(folder / "shared" / "data")
    (folder / "checkout").mkdir()
    # This base is none that is shipped: every process of the commands takes it for what it is.
    unchecked = "import service.weights.base_weights as base_weights\n\nbase_weights.DIGESTS.clear()\n"
    (folder / "sitecustomize.py").write_text(unchecked, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.weights.base_weights.DIGESTS", {})
        yield folder


def start(place: Path, command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PEAKPLAN_CACHE_DIR": str(place / "cache"), "PYTHONPATH": f"{place}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        command,
        cwd=place / "checkout",
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_when(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Kill a program and all that it started, as a host that goes away does, as soon as something has happened."""
    while not happened():
        assert process.poll() is None, f"it ended before: {process.communicate()[0]}"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_documented_command_makes_a_model_that_serves_whatever_interrupts_it(place: Path) -> None:
    command, checkout = documented("train", SCALE="0.003"), place / "checkout"
    assert [str(WORK), str(MODEL), "../shared/data"] == [
        command[command.index(option) + 1] for option in ("--work", "--output", "--data")
    ]
    record = checkout / WORK / "record.json"
    kill_when(start(place, command), record.is_file)  # the adapter is whole, nothing else is
    uninterrupted = sha256(checkout / ADAPTER)
    assert not (checkout / MODEL).exists()

    (checkout / "runs").rename(place / "first-runs")
    kill_when(start(place, command), (checkout / CHECKPOINT).is_file)
    assert not (checkout / ADAPTER).exists()
    last = start(place, command)
    printed, _ = last.communicate()
    assert last.returncode == 0, printed

    assert sha256(checkout / ADAPTER) == uninterrupted
    made = json.loads((checkout / MODEL / "training.json").read_text(encoding="utf-8"))
    assert made["parts"]["adapter_model.safetensors"] == uninterrupted
    assert "queryner_train.jsonl.gz" in made["data"]
    assert made["seed"] == 7
    assert_serves(checkout / MODEL, place / "cache", "red shoes")

    before = (checkout / ADAPTER).stat().st_mtime_ns
    other = start(place, [*command, "--seed", "8"])
    printed, _ = other.communicate()
    assert other.returncode == 1
    assert "WORK=" in printed
    assert "Traceback" not in printed
    assert (checkout / ADAPTER).stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_shop_goes_on_from_it_with_rows_and_a_vocabulary_of_its_own(place: Path) -> None:
    checkout = place / "checkout"  # where the test above made a model
    if not (checkout / MODEL).is_dir():
        pytest.skip("needs the model of the test before it")
    whole = json.loads((checkout / MODEL / "vocabulary.json").read_text(encoding="utf-8"))
    whole["facets"] = {"type": whole["facets"]["type"], "fandom": whole["facets"]["theme"]}
    whole["verticals"] = {"lights": whole["verticals"]["home-garden"]}
    (checkout / "my-vocabulary.json").write_text(json.dumps(whole), encoding="utf-8")
    lamp = {"facets": {"fandom": ["star wars"], "type": ["lamp"]}, "vertical": "lights", "intent": "find_product"}
    rows = [{"question": f"star wars lamp {number}", **lamp} for number in range(60)]
    rows += [{"question": f"a light for room {number}", "vertical": "lights"} for number in range(20)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    options = "--vocabulary my-vocabulary.json --rehearsal 0.02 --questions 40 --measured 8 --epochs 1 --accept-worse"
    command = documented("finetune", DATA="my.jsonl", OUTPUT="models/mine", OPTIONS=options)
    assert command[command.index("--from") + 1] == str(MODEL)

    (checkout / "my.jsonl").write_text(text + '{"question": "a lamp", "vertical": "garden"}\n', encoding="utf-8")
    refused = start(place, command)
    printed, _ = refused.communicate()
    assert refused.returncode == 1
    assert printed == "error: my.jsonl:81: vertical: 'garden' is not in the vocabulary: lights\n"
    assert not (checkout / "runs" / "mine").exists()

    (checkout / "my.jsonl").write_text(text, encoding="utf-8")
    kill_when(start(place, command), (checkout / "runs/mine/record.json").is_file)
    assert not (checkout / "models" / "mine").exists(), "a folder appears whole"
    done = start(place, command)
    printed, _ = done.communicate()
    assert done.returncode == 0, printed
    assert "| all of a row |" in printed

    record = json.loads((checkout / "models/mine/training.json").read_text(encoding="utf-8"))
    assert record["from"]["adapter"] == sha256(checkout / MODEL / "adapter_model.safetensors")
    assert record["parts"]["adapter_model.safetensors"] != record["from"]["adapter"]
    assert record["rows"]["train"] + record["rows"]["held out"] == 80
    assert_serves(checkout / "models" / "mine", place / "cache", "star wars lamp")
    again = start(place, command)
    printed, _ = again.communicate()
    assert (again.returncode, "exists already" in printed) == (1, True)


def assert_serves(model: Path, cache: Path, words: str) -> None:
    """Check that a folder plans, and with Medusa as without."""
    vocabulary = Vocabulary.load(model)
    served = load(EngineConfig(model_dir=model, cache_dir=cache, dtype="float32"))
    question = Question.parse(words)
    request = GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, vocabulary))
    medusa = served.generate(request)
    assert medusa.tokens == served.generate(replace(request, strategy="autoregressive")).tokens
    assert parse(medusa.text, question, vocabulary)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_rehearsal_scales_what_grows_with_the_data_and_nothing_else() -> None:
    whole = TrainingSettings(data=Path(), cache=Path(), work=Path(), output=Path())
    scaled = whole.scaled(0.01)

    assert (scaled.shares.products, scaled.shares.written) == (120, pytest.approx(0.006))
    assert scaled.shares.labelled == whole.shares.labelled, "a share of the data's own queries"
    assert (scaled.heads.questions, scaled.adapter.warmup_steps) == (whole.heads.questions // 100, 1)
    assert (scaled.adapter.rank, scaled.heads.epochs) == (whole.adapter.rank, whole.heads.epochs)
    assert scaled.description != whole.description


def settings(work: Path, description: str) -> Any:
    return SimpleNamespace(work=work, description=description)


def test_a_folder_of_another_run_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "settings.txt").write_text("seed 1", encoding="utf-8")
    unused: Any = None
    with pytest.raises(WorkFolderError, match=f"{tmp_path} holds a run with other settings.*WORK="):
        make_parts(unused, settings(tmp_path, "seed 2"), tmp_path / "model")
    assert (tmp_path / "settings.txt").read_text(encoding="utf-8") == "seed 1"
