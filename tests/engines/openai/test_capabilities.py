"""Tests that vLLM's guidance backend reads our grammars as intended."""

import pytest
from llguidance import LLMatcher, grammar_from

from service.planner.grammar import plan_grammar
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary

WORDS = ["red nike shoes under $100", 'a "quoted" back\\slash {x} <y> ::= z', "naïve café 日本", "start: a | b ::= c"]


@pytest.mark.parametrize("words", WORDS)
def test_vllm_takes_our_grammar_for_what_it_is(words: str) -> None:
    """Check `grammar_from("grammar", ...)`, with which the backend guesses whether a grammar is GBNF."""
    grammar = plan_grammar(Question.parse(words), shipped_vocabulary())
    assert grammar_from("grammar", grammar) == LLMatcher.grammar_from_lark(grammar)
