"""Tests of supervision: known fields are targets, unknown ones context, and an end of facets is a token set."""

import pytest
from tokenizers import Tokenizer

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import IGNORED, Example, MarkedText, TargetSet, encode, target_sets

BOS, EOS = 1, 2
VOCABULARY = shipped_vocabulary()


def _texts(tokenizer: Tokenizer, targets: list[int]) -> list[str | int]:
    return [target if target < 0 else tokenizer.decode([target], skip_special_tokens=False) for target in targets]


def test_labelled_query_supervises_every_word_and_ends_with_any_vertical(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)])
    encoded = encode(Example("red shoes", draft), plan_tokenizer, VOCABULARY, BOS, EOS)

    assert encoded.tokens[0] == BOS
    assert len(encoded.targets) == len(encoded.tokens)
    assert encoded.targets[: encoded.prompt_length - 1] == [IGNORED] * (encoded.prompt_length - 1)
    written = _texts(plan_tokenizer, encoded.targets[encoded.prompt_length - 1 :])
    assert written == [" find", " Color", " red", " Type", " shoes", TargetSet.ENDS_FACETS]


def test_every_target_is_the_next_token(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("type", 1, 1)])
    encoded = encode(Example("red shoes under $40", draft), plan_tokenizer, VOCABULARY, BOS, EOS)

    for position, target in enumerate(encoded.targets[:-1]):
        assert target in (IGNORED, encoded.tokens[position + 1])


def test_templated_rows_supervise_intent_and_vertical_but_not_their_facets(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("type", 1, 1)], vertical="apparel-accessories")
    example = Example("red shoes under $40", draft, knows_facets=False, knows_vertical=True)
    encoded = encode(example, plan_tokenizer, VOCABULARY, BOS, EOS)

    written = _texts(plan_tokenizer, encoded.targets[encoded.prompt_length - 1 :])
    assert written[0] == " find"
    assert written[1:3] == [IGNORED, IGNORED]
    assert written[3:] == [" Fashion", plan_tokenizer.decode([EOS], skip_special_tokens=False)]


def test_fixed_intents_are_one_word(plan_tokenizer: Tokenizer) -> None:
    encoded = encode(
        Example("where is it?", PlanDraft("conversational", "order_status")),
        plan_tokenizer,
        shipped_vocabulary(),
        BOS,
        EOS,
    )

    assert len(encoded.tokens) == encoded.prompt_length + 1
    assert encoded.targets[-1] == EOS


def test_unlabelled_product_questions_supervise_sources_and_that_they_end(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("conversational", "ask_product", ["reviews", "qa"])
    encoded = encode(Example("is it any good?", draft, knows_facets=False), plan_tokenizer, VOCABULARY, BOS, EOS)

    written = _texts(plan_tokenizer, encoded.targets[encoded.prompt_length - 1 :])
    assert written == [" Ask", " reviews", " answers", TargetSet.ENDS_SOURCES]


def test_refusals_and_parts_are_written_before_their_facet(plan_tokenizer: Tokenizer) -> None:
    spans = [
        FacetSpan("type", 0, 0, part=1),
        FacetSpan("type", 2, 2, part=2),
        FacetSpan("color", 4, 4, refused=True),
    ]
    example = Example("shoes and jacket not red", PlanDraft("keyword", "find_product", ["catalog"], spans))
    encoded = encode(example, plan_tokenizer, VOCABULARY, BOS, EOS)

    text = plan_tokenizer.decode(encoded.tokens[encoded.prompt_length :])
    assert text == " find And Type shoes And Type jacket All Not Color red"
    assert IGNORED not in encoded.targets[encoded.prompt_length - 1 :]


def test_a_question_in_another_language_has_a_last_word_of_its_own(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], foreign=True)
    encoded = encode(Example("zapatos rojos", draft, knows_vertical=True), plan_tokenizer, VOCABULARY, BOS, EOS)

    assert plan_tokenizer.decode(encoded.tokens[encoded.prompt_length :]) == " find Foreign"
    assert encoded.targets[-1] == EOS


def test_target_sets_refuse_a_tokenizer_that_splits_plan_words(splitting_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"vocabulary\.json: .+ is \d+ tokens"):
        target_sets(splitting_tokenizer, VOCABULARY)


def test_marked_texts_add_up() -> None:
    joined = MarkedText.plain("show me") + MarkedText(("red", "shoes"), (FacetSpan("color", 0, 0),))

    assert str(joined) == "show me red shoes"
    assert joined.spans == (FacetSpan("color", 2, 2),)
