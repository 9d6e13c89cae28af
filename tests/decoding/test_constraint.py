import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from service.decoding.constraint import GrammarCompiler, GrammarConstraint, GrammarError, accept_forced
from tests.decoding.tiny import ALPHABET, EOS, compile_grammar, encode, grammars, ids, tokenizer


def test_words_that_are_written_as_a_special_token_are_spelt() -> None:
    """A shopper may type "<|im_end|>": no token of its name may be forced, and the grammar goes on to its end."""
    made = Tokenizer.from_str(tokenizer().to_str())
    made.add_special_tokens(["abc def"])
    constraint = GrammarCompiler(made.to_str(), EOS).compile('start: "g" "abc def" " a"')

    tokens = accept_forced(constraint, 100)

    assert constraint.finished()
    assert made.token_to_id("abc def") not in tokens
    assert made.decode(tokens) == "gabc def a"


def test_words_of_a_special_token_behind_half_a_character_are_spelt() -> None:
    """Choosing among words, a model may choose the first byte of a shoe: what follows is no text until the shoe is."""
    alphabet = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_alone = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    bytes_alone.add_special_tokens(["<eos>", "abc def"])
    constraint = GrammarCompiler(bytes_alone.to_str(), EOS).compile('start: ("g" | "👟") "abc def"')

    chosen = bytes_alone.encode("👟").ids[:1]
    constraint.accept(chosen)
    chosen += accept_forced(constraint, 100)

    assert constraint.finished()
    assert bytes_alone.decode(chosen) == "👟abc def"


def test_bad_grammars_and_illegal_tokens_are_refused() -> None:
    with pytest.raises(GrammarError, match="lexer error"):
        compile_grammar("start: 'a'")
    with pytest.raises(GrammarError, match="start"):
        compile_grammar('begin: "a"')
    constraint = compile_grammar('start: "ab"')
    with pytest.raises(GrammarError):
        constraint.accept(ids("e"))
    with pytest.raises(GrammarError):
        compile_grammar('start: "ab"').rollback(1)


def test_the_end_is_a_decision_where_the_grammar_leaves_it_open() -> None:
    constraint = compile_grammar("start: /a{1,3}/")
    constraint.accept(ids("a"))

    assert not constraint.finished()
    assert constraint.legal().tolist() == [EOS, *ids("a")]
    constraint.accept([EOS])
    assert constraint.finished()
    constraint.rollback(1)
    assert not constraint.finished()


def test_nothing_is_asked_for_once_nothing_may_follow() -> None:
    empty = compile_grammar('start: ""')
    whole = compile_grammar('start: "ab" | "ef"')
    whole.accept(ids("ef"))

    for constraint in (empty, whole):
        assert constraint.finished()
        assert constraint.legal().size == 0
        assert constraint.forced() == []


def test_tokens_far_into_a_vocabulary_are_legal_by_their_own_ids() -> None:
    symbols = [chr(code) for code in range(ord("!"), ord("~"))]  # more than the bits of two words of a mask
    bytes_alone = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(["<eos>", *symbols])}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    bytes_alone.add_special_tokens(["<eos>"])
    compiler = GrammarCompiler(bytes_alone.to_str(), EOS)

    constraint = compiler.compile("start: /[!Ax}]/")

    assert constraint.legal().tolist() == [1 + symbols.index(letter) for letter in "!Ax}"]


@given(st.text(ALPHABET, min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_grammar_of_one_string_is_forced_to_its_canonical_tokens(text: str) -> None:
    constraint = compile_grammar(f"start: {json.dumps(text)}")

    assert accept_forced(constraint, limit=100) == encode(text)
    assert constraint.finished()


def describe(constraint: GrammarConstraint) -> tuple[list[int], list[int], bool]:
    return constraint.forced(), constraint.legal().tolist(), constraint.finished()


@given(grammars(), st.lists(st.integers(-3, 9), max_size=30))
@settings(max_examples=80, deadline=None)
def test_after_any_turns_a_position_is_what_it_is_for_who_came_straight(grammar: str, turns: list[int]) -> None:
    """What was found out at a position is kept; it must not be taken for another's."""
    constraint, text = compile_grammar(grammar), list[int]()
    for turn in turns:
        if turn < 0:
            back = min(-turn, len(text))
            constraint.rollback(back)
            del text[len(text) - back :]
        elif not constraint.finished():
            legal = constraint.legal()
            text.append(int(legal[turn % legal.size]))
            constraint.accept(text[-1:])
        straight = compile_grammar(grammar)
        straight.accept(text)
        if turn % 2:  # not everywhere: a matcher that nobody asks stays behind
            assert describe(constraint) == describe(straight)


@given(grammars(), st.data())
@settings(max_examples=60, deadline=None)
def test_one_token_is_allowed_where_it_is_among_the_legal_ones(grammar: str, data: st.DataObject) -> None:
    asked, constraint = compile_grammar(grammar), compile_grammar(grammar)
    for _ in range(8):
        legal = asked.legal().tolist()
        tokens = data.draw(st.lists(st.integers(0, tokenizer().get_vocab_size() - 1), max_size=4)) + legal[:2]
        assert [constraint.allows(token) for token in tokens] == [token in legal for token in tokens]
        if asked.finished():
            return
        chosen = [data.draw(st.sampled_from(legal))]
        asked.accept(chosen)
        constraint.accept(chosen)


@given(grammars(), st.data())
@settings(max_examples=80, deadline=None)
def test_forced_runs_are_legal_one_by_one_and_leave_no_rival(grammar: str, data: st.DataObject) -> None:
    constraint = compile_grammar(grammar)
    for _ in range(12):
        forced = constraint.forced()
        for token in forced:
            assert constraint.legal().tolist() == [token]
            constraint.accept([token])
        if constraint.finished():
            return
        if not constraint.forced():
            assert constraint.legal().size > 1
            constraint.accept([int(data.draw(st.sampled_from(constraint.legal().tolist())))])
