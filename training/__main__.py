"""`make train`: from the data folder to a model folder, in stages whose results are kept and not repeated.

runs       fine-tune the base, several times                   WORK/run-N
adapter    their mean, and refinements from there              WORK/adapter
positions  the tuned model's own plans and hidden states       WORK/positions
heads      four Medusa heads on the frozen tuned model         WORK/model
prefill    a head that guesses how a plan begins               WORK/model
exit       a lens with which the first layers draft            WORK/model
tree       calibrated on dev plans and this machine's costs    WORK/model
export     what the project ships                              OUTPUT
"""

import argparse
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from service.engines.torch.forward import seal_folder
from service.settings import Settings
from service.weights.base_weights import BASE_NAME, ensure_base_weights
from training.blend import blend
from training.data.mix import Mix
from training.early_exit import train_early_exit
from training.export import export_model
from training.finetune import Ground, finetune
from training.heads import check_heads, train_heads
from training.own_plans import Author, write_own_plans
from training.positions import collect
from training.prefill_head import train_prefill_head
from training.settings import Stage, TrainingSettings
from training.tree import calibrate

BOS, EOS = 1, 2  # <|im_start|> and <|im_end|> of the base
MODEL_ID = "qp-smollm2-135m"
MAX_PLAN_TOKENS = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the training data")
    parser.add_argument("--work", type=Path, required=True, help="checkpoints and intermediate results")
    parser.add_argument("--output", type=Path, required=True, help="model folder to write")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    settings = TrainingSettings(
        data=arguments.data,
        cache=Settings().cache_dir,
        work=arguments.work,
        output=arguments.output,
        seed=arguments.seed,
        processes=len(os.sched_getaffinity(0)),
    )
    train(settings)


def train(settings: TrainingSettings) -> None:
    """Run every stage in order; each is skipped where its result already exists."""
    check_heads(settings.heads.heads)  # before hours of training
    base = ensure_base_weights(settings.cache)
    adapter = settings.work / "adapter"
    if not (adapter / "adapter_model.safetensors").is_file():
        _make_adapter(settings, base, adapter)
    model = _model_folder(adapter, settings.work / "model")
    if not (model / "medusa_heads.safetensors").is_file():
        train_heads(collect(settings, model), settings, model)
    if not (model / "prefill_head.safetensors").is_file():
        train_prefill_head(collect(settings, model), settings, model)
    if not (model / "early_exit.safetensors").is_file():
        train_early_exit(settings, model)
    if not (model / "medusa_tree.json").is_file():
        calibrate(settings, model)
    stages = (*settings.stages, *(refinement.stage for refinement in settings.refinements))
    export_model(model, settings.output, seed=settings.seed, stages=stages)
    seal_folder(settings.output, settings.cache)
    print(f"{settings.output} is ready; `make eval` and `make bench` measure it")


def _model_folder(adapter: Path, model: Path) -> Path:
    """Write an adapter as a model folder without heads, unless it is one already; return `model`."""
    if not (model / "model.json").is_file():
        model.mkdir(parents=True, exist_ok=True)
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            shutil.copy(adapter / name, model / name)
        card = {
            "id": MODEL_ID,
            "base": BASE_NAME,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "max_tokens": MAX_PLAN_TOKENS,
        }
        (model / "model.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return model


def _make_adapter(settings: TrainingSettings, base: Path, adapter: Path) -> None:
    """Train the independent runs, take their mean, and refine it; each refinement starts from the mean so far."""
    ground = Ground(base, BOS, EOS)
    for run in sorted({run for run, _ in settings.blended}):
        finetune(replace(settings, work=_run_folder(settings, run), seed=settings.seed + run), ground)
    parts = [_run_folder(settings, run) / f"adapter-{stage}" for run, stage in settings.blended]
    latest = blend(parts, settings.blended_rank, settings.work / "mean")
    for refinement in settings.refinements:
        stage, teacher = refinement.stage, settings.work / refinement.teacher
        one = replace(settings, work=settings.work / stage.name, stages=(stage,))
        finetune(one, replace(ground, start=latest, teacher=teacher, own_plans=_own_plans(one, stage, latest)))
        kept = [settings.work / part for part in refinement.kept]
        latest = blend(kept, settings.blended_rank, settings.work / f"mean-{stage.name}")
    shutil.copytree(latest, adapter)


def _own_plans(settings: TrainingSettings, stage: Stage, adapter: Path) -> Path | None:
    """Write the adapter's own plans for the stage that continues from it, where the stage uses them."""
    if stage.own is None:
        return None
    author = Author(_model_folder(adapter, settings.work / "model"), settings.cache)
    mix, output = Mix(settings.data, stage.shares), settings.work / "own_plans.jsonl"
    return write_own_plans(stage.own, author, mix, output, seed=settings.seed, processes=settings.processes)


def _run_folder(settings: TrainingSettings, run: int) -> Path:
    return settings.work / f"run-{run}"


if __name__ == "__main__":
    main()
