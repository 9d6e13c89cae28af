import random

import torch

from training.data.examples import IGNORED, EncodedExample
from training.finetune import batches, collate, plan_loss


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
