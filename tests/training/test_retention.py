"""Tests of which of an earlier adapter's answers a stage retains, and how strongly."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.training.tiny_data import write_base
from training.batches import SoftTargets, collate, plan_loss
from training.data.examples import IGNORED, EncodedExample
from training.finetune import LINEARS
from training.retention import Retention, Teacher

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
KEPT = Retention(frozenset({"kept"}), weight=0.5)


def example(origin: str, targets: list[int]) -> EncodedExample:
    return EncodedExample(list(range(3, 3 + len(targets))), targets, 1, origin)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, plan_tokenizer: Tokenizer) -> Path:
    return write_base(tmp_path_factory.mktemp("retention") / "base", plan_tokenizer)


def write_adapter(folder: Path, base: Path, scale: float) -> Path:
    """Write an adapter with random weights of this size."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=LINEARS))
    model.save_pretrained(folder)
    weights = load_file(folder / "adapter_model.safetensors")
    torch.manual_seed(0)
    drawn = {name: scale * torch.randn_like(value) for name, value in weights.items()}
    save_file(drawn, folder / "adapter_model.safetensors")
    return folder


def test_only_kept_origins_and_single_tokens_are_softened(base: Path, tmp_path: Path) -> None:
    examples = [example("kept", [IGNORED, 7, -2]), example("other", [IGNORED, 9, 4])]
    teacher = Teacher(KEPT, base, write_adapter(tmp_path / "adapter", base, 1.0), torch.device("cpu"))

    soft = teacher.soften(collate(examples, 0), examples)

    assert soft is not None
    assert soft.positions.tolist() == [True, False, False, False]
    assert soft.probabilities.shape[0] == 1
    assert torch.allclose(soft.probabilities.sum(-1), torch.ones(1), atol=1e-3)
    assert teacher.soften(collate(examples[1:], 0), examples[1:]) is None


def test_the_teacher_is_the_base_with_its_adapter(base: Path, tmp_path: Path) -> None:
    examples = [example("kept", [IGNORED, 7, 8])]
    softened = [
        Teacher(KEPT, base, write_adapter(tmp_path / str(scale), base, scale), torch.device("cpu")).soften(
            collate(examples, 0), examples
        )
        for scale in (0.0, 1.0)
    ]

    assert softened[0] is not None
    assert softened[1] is not None
    assert not torch.allclose(softened[0].probabilities, softened[1].probabilities, atol=1e-3)


def test_a_teacher_that_is_not_there_is_named(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no adapter"):
        Teacher(KEPT, base, tmp_path / "nothing", torch.device("cpu"))
    with pytest.raises(ValueError, match="teacher's weight"):
        Retention(frozenset(), weight=0.0)


def test_the_loss_mixes_label_and_teacher() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0]])
    soft = SoftTargets(torch.tensor([True, False]), torch.tensor([[0.2, 0.5, 0.3]]), 0.25)

    loss = plan_loss(logits, torch.tensor([0, 2]), {}, soft)

    log = logits.log_softmax(-1)
    first = 0.75 * log[0, 0] + 0.25 * (torch.tensor([0.2, 0.5, 0.3]) * log[0]).sum()
    assert torch.allclose(loss, -(first + log[1, 2]) / 2)


def test_a_teacher_who_agrees_with_the_model_asks_for_no_change() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    soft = SoftTargets(torch.tensor([True]), logits.detach().softmax(-1), 1.0)

    plan_loss(logits, torch.tensor([0]), {}, soft).backward()  # type: ignore[no-untyped-call]

    assert logits.grad is not None
    assert torch.allclose(logits.grad, torch.zeros_like(logits), atol=1e-6)
