"""Tests of batches and their loss, and that a resumed run ends with the weights of an uninterrupted one."""

import os
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.planner.vocabulary import shipped_vocabulary
from tests.training.tiny_data import SMALL, write_base, write_data
from training import finetune
from training.data.examples import IGNORED, EncodedExample
from training.data.mix import Mix
from training.finetune import Finetuning, batches, collate, plan_loss
from training.settings import AdapterSettings


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_run_goes_on_from_an_adapter_and_refuses_one_that_does_not_fit(run: Finetuning) -> None:
    before = load_file(run.work / "adapter_model.safetensors")  # of the test above
    still = replace(run, work=run.work.with_name("still"), start=run.work)
    after = _train(replace(still, adapter=replace(run.adapter, epochs=1, learning_rate=0.0)))
    for name, value in before.items():
        assert torch.equal(value, after[name]), name

    other = replace(run, work=run.work.with_name("other"), start=run.work, adapter=replace(run.adapter, rank=3))
    with pytest.raises(RuntimeError, match="size mismatch"):
        _train(other)


def _example(length: int) -> EncodedExample:
    return EncodedExample(list(range(length)), [IGNORED] * length, list(range(length)), [0] * length)


def test_collate_pads_on_the_right_and_ignores_the_padding() -> None:
    batch = collate([_example(2), _example(4)], padding=9)

    assert batch.tokens.tolist() == [[0, 1, 9, 9], [0, 1, 2, 3]]
    assert (batch.targets == IGNORED).all()
    assert (batch.mask[1, 0] == 0).tolist() == torch.ones(4, 4).tril().bool().tolist()
    assert not (batch.mask[0, 0, :2, 2:] == 0).any(), "nothing attends to padding"


def test_a_plan_is_seen_by_no_later_turn() -> None:
    turns = EncodedExample([5, 6, 7, 8], [IGNORED] * 4, [0, 1, 1, 2], [0, 1, 0, 2])
    batch = collate([turns], padding=9)

    assert (batch.mask[0, 0] == 0).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert batch.positions.tolist() == [[0, 1, 1, 2]]


def test_batches_hold_every_example_once_and_depend_on_the_seed_alone() -> None:
    examples = [_example(1 + index % 17) for index in range(1000)]
    first = list(batches(examples, 16, random.Random(5)))
    second = list(batches(examples, 16, random.Random(5)))

    assert [list(batch) for batch in first] == [list(batch) for batch in second]
    assert sorted(id(example) for batch in first for example in batch) == sorted(map(id, examples))


def test_the_loss_of_a_set_is_that_of_its_summed_probability() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5, -1.0]])
    loss = plan_loss(logits, torch.tensor([-2]), {-2: torch.tensor([0, 2])})

    probabilities = logits.softmax(-1)[0]
    assert torch.allclose(loss, -(probabilities[0] + probabilities[2]).log())


def test_the_loss_of_a_token_is_cross_entropy() -> None:
    logits = torch.randn(5, 7)
    targets = torch.tensor([0, 6, 3, 3, 1])

    assert torch.allclose(plan_loss(logits, targets, {}), torch.nn.functional.cross_entropy(logits, targets))
