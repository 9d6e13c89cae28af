"""Tests that a resumed run ends with the weights of an uninterrupted one."""

import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tests.training.tiny_data import write_base, write_data
from training import finetune
from training.data.mix import Shares
from training.settings import AdapterSettings, Stage, TrainingSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


STAGE = Stage(
    "tiny",
    Shares(support=8, out_of_scope=4),
    AdapterSettings(rank=2, epochs=2, batch_size=32, warmup_steps=2, checkpoint_every=2),
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, plan_tokenizer: Tokenizer) -> TrainingSettings:
    folder = tmp_path_factory.mktemp("finetune")
    return TrainingSettings(
        data=write_data(folder / "data"),
        cache=write_base(folder / "base", plan_tokenizer).parent,
        work=folder / "work",
        output=folder / "model",
        processes=1,
        stages=(STAGE,),
    )


def _run(settings: TrainingSettings) -> dict[str, torch.Tensor]:
    settings.work.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    try:
        base = settings.cache / "base"
        rendezvous = settings.work / f"rendezvous-{os.urandom(4).hex()}"
        finetune._work(0, 1, rendezvous, settings, STAGE, finetune.Ground(base, 1, 2))
    finally:
        torch.set_num_threads(threads)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return load_file(settings.work / "adapter-tiny" / "adapter_model.safetensors")


def test_a_run_goes_on_where_it_was_interrupted(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _run(settings)

    interrupted = replace(settings, work=settings.work.with_name("interrupted"))
    step = finetune._train_step
    left = iter(range(3))

    def until_interrupted(*arguments: object) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(finetune, "_train_step", until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        _run(interrupted)
    monkeypatch.setattr(finetune, "_train_step", step)
    resumed = _run(interrupted)

    assert whole.keys() == resumed.keys()
    assert any(name.endswith("lora_B.weight") and value.abs().sum() > 0 for name, value in whole.items())
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
