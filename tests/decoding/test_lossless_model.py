"""The shipped model: with its reader's predictions, any tree and any heads, decoding gives greedy decoding's tokens.

This holds exactly in float32, and in int8 with our own kernels. In bfloat16 exactly too where the CPU's kernels sum a
row alike whatever is read with it (see `service/decoding/llama.py`). Elsewhere rounding may swap two tokens whose
logits are nearer than it: every difference is shown to be such a near tie, and their rate is printed.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import pytest
import torch

from rehearsal.bench.questions import dev_questions, has_dev_data
from service.decoding.constraint import GrammarCompiler, GrammarConstraint
from service.decoding.llama import Llama
from service.decoding.medusa import MedusaHeads
from service.decoding.native.library import NativeUnavailableError, load_kernels
from service.decoding.native_llama import NativeLlama
from service.decoding.statistics import Generation
from service.decoding.target import CausalLM
from service.decoding.tree import MedusaTree
from service.engines.text_model import tokens_of_words
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.weights.model_folder import LoadedModel, load_model
from tests.decoding.tiny import decode_greedy, decode_medusa

QUESTIONS_IN_ALL = 500
CHUNK = 100
QUESTIONS_A_RANDOM_TREE = 15
ROUNDED_QUESTIONS = 150  # in bfloat16, which is served only where int8 is not available
MOST_THREADS = 2
MOST_DIFFERENT = 0.02  # of the questions, in bfloat16; each of them a near tie

# The proof that `make test` makes, of what is served: the first questions in int8 with the shipped heads.
CASES = [
    pytest.param(name, start, marks=[] if (name, start) == ("native", 0) else [pytest.mark.slow])
    for name in ("native", "exact")
    for start in range(0, QUESTIONS_IN_ALL, CHUNK)
]


@dataclass(frozen=True)
class Subject:
    """A loaded model in one dtype, with greedy answers cached for all tests that compare with them."""

    loaded: LoadedModel
    compiler: GrammarCompiler
    questions: list[Question]
    model: CausalLM
    greedy: dict[int, Generation]

    @cached_property
    def reader(self) -> Reader:
        return Reader.load(Settings().model_dir)

    @cached_property
    def shipped_tree(self) -> MedusaTree:
        return MedusaTree.from_choices(self.loaded.tree, self.shipped_heads.num_heads, self.loaded.p_min)

    @property
    def shipped_heads(self) -> MedusaHeads:
        if self.loaded.heads is None:
            pytest.skip("the model folder has no Medusa heads yet")
        return self.loaded.heads

    def prompt(self, index: int) -> list[int]:
        text = render_prompt(self.questions[index])
        return [self.loaded.bos_token_id, *self.loaded.tokenizer.encode(text, add_special_tokens=False).ids]

    def constraint(self, index: int) -> GrammarConstraint:
        return self.compiler.compile(plan_grammar(self.questions[index], shipped_vocabulary()))

    def greedy_answer(self, index: int) -> Generation:
        if index not in self.greedy:
            self.greedy[index] = decode_greedy(
                self.model, self.prompt(index), self.constraint(index), max_tokens=self.loaded.max_tokens
            )
        return self.greedy[index]

    def medusa_answer(self, index: int, heads: MedusaHeads, tree: MedusaTree) -> Generation:
        reading = self.reader.read(self.questions[index], shipped_vocabulary())
        return decode_medusa(
            self.model,
            heads,
            tree,
            self.prompt(index),
            self.constraint(index),
            max_tokens=self.loaded.max_tokens,
            predicted=tokens_of_words(reading.words, self.loaded.tokenizer),
        )


Subjects = Callable[[str], Subject]


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    settings = Settings()
    if not (settings.model_dir / "model.json").is_file():
        pytest.skip(f"no model in {settings.model_dir}: `make train` writes one")
    return load_model(settings.model_dir, settings.cache_dir)


@pytest.fixture(scope="session")
def questions() -> list[Question]:
    if not has_dev_data():
        pytest.skip("needs the data folder: shared/data beside the project, or PEAKPLAN_DATA=")
    return dev_questions(QUESTIONS_IN_ALL)


@pytest.fixture(scope="session")
def compiler(loaded: LoadedModel) -> GrammarCompiler:
    return GrammarCompiler(loaded.tokenizer.to_str(), loaded.eos_token_id)


@pytest.fixture(scope="session")
def subjects(loaded: LoadedModel, compiler: GrammarCompiler, questions: list[Question]) -> Subjects:
    """Return what loads the model in one dtype, once."""

    @cache
    def subject(name: str) -> Subject:
        if name != "native":
            dtype = torch.float32 if name == "exact" else torch.bfloat16
            return Subject(loaded, compiler, questions, Llama(loaded.config, loaded.weights, dtype), {})
        try:
            library = load_kernels().functions
        except NativeUnavailableError as error:
            pytest.skip(f"the int8 kernels cannot run here: {error}")
        return Subject(loaded, compiler, questions, NativeLlama(loaded.config, loaded.weights, library), {})

    return subject


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(min(MOST_THREADS, before))
    yield
    torch.set_num_threads(before)


def random_heads(loaded: LoadedModel, seed: int, count: int) -> MedusaHeads:
    generator = torch.Generator().manual_seed(seed)
    hidden = loaded.config.hidden_size
    weight = torch.randn((count, hidden, hidden), generator=generator) / hidden**0.5
    return MedusaHeads(weight, torch.randn((count, hidden), generator=generator))


def random_tree(seed: int, num_heads: int) -> MedusaTree:
    """Return up to twelve random paths with all their ancestors."""
    source = random.Random(seed)
    paths = [[source.randrange(4) for _ in range(source.randint(1, num_heads))] for _ in range(source.randint(0, 12))]
    closed = {tuple(path[:length]) for path in paths for length in range(1, len(path) + 1)}
    return MedusaTree.from_choices([list(path) for path in closed], num_heads)


@pytest.mark.parametrize(("name", "start"), CASES)
def test_it_is_exact_with_the_shipped_heads(name: str, start: int, subjects: Subjects) -> None:
    subject, forwards = subjects(name), set[int]()
    for index in range(start, start + CHUNK):
        medusa = subject.medusa_answer(index, subject.shipped_heads, subject.shipped_tree)
        assert medusa.tokens == subject.greedy_answer(index).tokens, subject.questions[index].text
        assert medusa.statistics.decisions == subject.greedy_answer(index).statistics.decisions
        forwards.add(medusa.statistics.forwards)
    assert 1 in forwards, "the reader foretells some plans whole"


@pytest.mark.slow
@pytest.mark.parametrize("num_heads", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("name", "count", "heads_are_shipped"),
    [
        ("native", CHUNK, False),
        ("exact", QUESTIONS_A_RANDOM_TREE, False),
        ("exact", QUESTIONS_A_RANDOM_TREE // 2, True),
    ],
)
def test_it_is_exact_with_random_trees(
    name: str, count: int, heads_are_shipped: bool, num_heads: int, subjects: Subjects
) -> None:
    subject = subjects(name)
    heads = subject.shipped_heads if heads_are_shipped else random_heads(subject.loaded, num_heads - 1, num_heads)
    for index in range((num_heads - 1) * count, num_heads * count):
        medusa = subject.medusa_answer(index, heads, random_tree(index, heads.num_heads))
        assert medusa.tokens == subject.greedy_answer(index).tokens, subject.questions[index].text


@pytest.mark.slow
def test_bfloat16_differs_in_near_ties_only(subjects: Subjects, capsys: pytest.CaptureFixture[str]) -> None:
    different, rounded = [], subjects("rounded")
    for index in range(ROUNDED_QUESTIONS):
        medusa = rounded.medusa_answer(index, rounded.shipped_heads, rounded.shipped_tree).tokens
        greedy = rounded.greedy_answer(index).tokens
        if medusa != greedy:
            gap, resolution = first_difference(rounded, index, greedy, medusa)
            different.append(f"{rounded.questions[index].text!r}: gap {gap:.4f}, resolution {resolution:.4f}")
            assert gap <= resolution, different[-1]
    with capsys.disabled():
        print(
            f"\nbfloat16: {len(different)} of {ROUNDED_QUESTIONS} plans differ, all near ties", *different, sep="\n  "
        )
    assert len(different) <= MOST_DIFFERENT * ROUNDED_QUESTIONS


def first_difference(subject: Subject, index: int, one: list[int], other: list[int]) -> tuple[float, float]:
    """Return the gap between two answers' logits where they first differ, and the dtype's resolution there.

    The states that logits are computed from are rounded to the dtype, which moves a logit by up to eps times its size:
    two logits nearer than twice that may come in either order.
    """
    position = next(place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    read = subject.prompt(index) + one[:position]
    model = subject.model
    hidden = model.forward(torch.tensor(read), torch.arange(len(read)), model.new_cache(len(read)))[-1:]
    constraint = subject.constraint(index)
    constraint.accept(one[:position])
    logits = model.lm_head.logits(hidden, torch.from_numpy(constraint.legal()))[0]
    first, second = logits.topk(2).values.tolist()
    assert {one[position], other[position]} == {int(constraint.legal()[place]) for place in logits.topk(2).indices}
    return first - second, 2 * torch.finfo(torch.bfloat16).eps * max(abs(first), abs(second))
