"""A compiled model folder as a replica answers from it, with `FakeDriver` in place of the device."""

import shutil
from pathlib import Path

import pytest
import torch

from service.engines.meaning import QuestionMeaning
from service.engines.neuron.model import NeuronModel
from service.engines.protocol import GenerationRequest, RequestRefusedError
from tests.engines.neuron.fake_driver import ANY_TEXT, FakeDriver, compiled, loaded
from tests.engines.torch.test_engine import write_kind_head


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path, artifacts: Path) -> NeuronModel:
    return loaded(tiny_model_dir, artifacts)


def test_both_strategies_give_one_answer(model: NeuronModel) -> None:
    answers = {
        strategy: model.generate(
            GenerationRequest(prompt=" red shoes", grammar="start: /[a-z ]{8,24}/", strategy=strategy, trace=True)
        )
        for strategy in ("autoregressive", "medusa")
    }

    assert answers["medusa"].tokens == answers["autoregressive"].tokens
    assert answers["medusa"].stop_reason == "finished"
    assert answers["medusa"].text == "".join(text for step in answers["medusa"].steps for text in step.emitted)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (GenerationRequest(prompt=" red" * 50, grammar=ANY_TEXT), "its prompt has 51 tokens, and 40 are the most"),
        (GenerationRequest(prompt=" red", grammar="start: ("), "its grammar does not compile"),
        (GenerationRequest(prompt=" red", grammar=ANY_TEXT, strategy="draft"), "cannot decode by draft"),
    ],
)
def test_what_no_replica_would_take_is_refused(model: NeuronModel, request_: GenerationRequest, words: str) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        model.generate(request_)


def test_usual_beginnings_are_drafted_with_the_prompt(tiny_model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder = tmp_path / "tiny" / tiny_model_dir.name
    (folder / "drafting.json").write_text('{"prefill_draft": [" red"]}', encoding="utf-8")
    compiled(folder, tmp_path / "compiled")

    drafted = loaded(folder, tmp_path / "compiled").generate(
        GenerationRequest(prompt=" red", grammar='start: (" red" | " shoes") " waterproof"', trace=True)
    )

    assert "".join(node.token_text for node in drafted.steps[0].nodes) == " red"
    assert drafted.text in (" red waterproof", " shoes waterproof")


@pytest.mark.parametrize("word", [" red", " blue", " 7", "\u3042"])
def test_a_choice_is_exact_however_unlikely_the_model_holds_its_tokens(model: NeuronModel, word: str) -> None:
    """Check a grammar of two words among hundreds of tokens: the model's best ones hold neither."""
    grammar = f'start: ("{word}" | " shoes") " waterproof"'
    answers = [
        model.generate(GenerationRequest(prompt=" red", grammar=grammar, strategy=strategy)).text
        for strategy in ("autoregressive", "medusa")
    ]

    assert answers[0] == answers[1]
    assert answers[0] in (f"{word} waterproof", " shoes waterproof")


def test_a_kind_head_reads_a_prompt_that_a_step_holds_and_of_a_longer_one_nothing_is_said(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """The prompt's own graph gives the last position's state alone; a direction out of that one would be another's."""
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder = write_kind_head(tmp_path / "tiny" / tiny_model_dir.name)
    compiled(folder, tmp_path / "compiled")
    reading = loaded(folder, tmp_path / "compiled", kinds=True)
    short, long = (GenerationRequest(prompt=" red shoes" * times, grammar=ANY_TEXT) for times in (2, 8))

    graph = FakeDriver().load(tmp_path / "compiled")
    words = reading._tokenizer.encode(short.prompt, add_special_tokens=False).ids
    tokens = torch.tensor([reading._bos_token_id, *words])
    count = len(tokens)
    assert count <= graph.shape.rows
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    states, _ = graph._hidden(tokens, torch.arange(count), graph._cache[0, :, :, :0], causal)

    meaning = QuestionMeaning.unpacked(reading.generate(short).meaning)
    assert meaning is not None
    assert meaning.direction == pytest.approx([torch.nn.functional.gelu(states[-1, 0]).item()], rel=2e-3, abs=1e-3)
    assert reading.generate(long).meaning == ""
    assert loaded(folder, tmp_path / "compiled").generate(short).meaning == "", "nobody without a shop waits for it"
