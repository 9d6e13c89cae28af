"""Tests that a resumed run ends with the weights of an uninterrupted one."""

import os
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.planner.vocabulary import shipped_vocabulary
from tests.training.tiny_data import SMALL, write_base, write_data
from training import finetune
from training.data.mix import Mix
from training.finetune import Finetuning
from training.settings import AdapterSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, plan_tokenizer: Tokenizer) -> Finetuning:
    folder = tmp_path_factory.mktemp("finetune")
    return Finetuning(
        base=write_base(folder / "base", plan_tokenizer),
        bos=1,
        eos=2,
        vocabulary=shipped_vocabulary(),
        source=partial(Mix, write_data(folder / "data"), SMALL),
        adapter=AdapterSettings(rank=2, alpha=4, epochs=2, batch_tokens=4096, warmup_steps=2, checkpoint_every=2),
        work=folder / "work",
        seed=7,
    )


def _train(run: Finetuning) -> dict[str, torch.Tensor]:
    run.work.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    try:
        finetune._work(0, 1, run.work / f"rendezvous-{os.urandom(4).hex()}", run, run.work)
    finally:
        torch.set_num_threads(threads)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return load_file(run.work / "adapter_model.safetensors")


def test_a_run_goes_on_where_it_was_interrupted(run: Finetuning, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _train(run)

    interrupted = replace(run, work=run.work.with_name("interrupted"))
    step = finetune._train_step
    left = iter(range(3))

    def until_interrupted(*arguments: object) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(finetune, "_train_step", until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        _train(interrupted)
    monkeypatch.setattr(finetune, "_train_step", step)
    resumed = _train(interrupted)

    assert whole.keys() == resumed.keys()
    assert any(name.endswith("lora_B.weight") and value.abs().sum() > 0 for name, value in whole.items())
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name


def test_a_run_goes_on_from_an_adapter_and_refuses_one_that_does_not_fit(run: Finetuning) -> None:
    before = load_file(run.work / "adapter_model.safetensors")  # of the test above
    still = replace(run, work=run.work.with_name("still"), start=run.work)
    after = _train(replace(still, adapter=replace(run.adapter, epochs=1, learning_rate=0.0)))
    for name, value in before.items():
        assert torch.equal(value, after[name]), name

    other = replace(run, work=run.work.with_name("other"), start=run.work, adapter=replace(run.adapter, rank=3))
    with pytest.raises(RuntimeError, match="size mismatch"):
        _train(other)
