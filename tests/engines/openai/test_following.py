"""Tests that a text is followed correctly however a server splits it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler, GrammarError
from service.engines.openai.following import TextFollower
from service.planner.grammar import plan_grammar
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.tiny_model import EOS, write_tiny_model

QUESTION = Question.parse("red nike crème shoes under $100")
PLAN = " find Color red Brand nike Feature crème Type shoes Fashion"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> GrammarCompiler:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), with_heads=False)
    return GrammarCompiler(Tokenizer.from_file(str(folder.with_name("base") / "tokenizer.json")).to_str(), EOS)


def follower(compiler: GrammarCompiler) -> TextFollower:
    return TextFollower(compiler, compiler.compile(plan_grammar(QUESTION, shipped_vocabulary())), EOS)


@settings(deadline=None, max_examples=40)
@given(cuts=st.sets(st.integers(1, len(PLAN) - 1)), beyond=st.text(max_size=5))
def test_however_it_is_cut_a_plan_is_whole_at_its_end(compiler: GrammarCompiler, cuts: set[int], beyond: str) -> None:
    edges = [0, *sorted(cuts), len(PLAN)]
    followed = follower(compiler)
    outcomes = [followed.follow(PLAN[start:end]) for start, end in pairwise(edges)]

    assert outcomes == [False] * (len(outcomes) - 1) + [True]
    assert followed.may_end()
    assert followed.follow(beyond)
    assert followed.text == PLAN


@settings(deadline=None, max_examples=40)
@given(place=st.integers(1, len(PLAN) - 8))
def test_a_foreign_word_is_noticed_where_it_stands(compiler: GrammarCompiler, place: int) -> None:
    followed = follower(compiler)
    with pytest.raises(GrammarError):
        followed.follow(PLAN[:place] + "~")
    assert PLAN.startswith(followed.text)


def test_the_space_that_a_server_lost_is_put_back(compiler: GrammarCompiler) -> None:
    followed = follower(compiler)
    assert followed.follow("") is False
    assert followed.follow(PLAN.lstrip()) is True
    assert followed.text == PLAN


def test_half_a_plan_may_not_end(compiler: GrammarCompiler) -> None:
    followed = follower(compiler)
    followed.follow(" find Color red")
    assert not followed.may_end()
