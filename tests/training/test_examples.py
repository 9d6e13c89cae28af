"""Tests of supervision: known fields are targets, unknown ones context, and an end of facets is a token set."""

from tokenizers import Tokenizer

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import (
    IGNORED,
    EncodedExample,
    Example,
    MarkedText,
    TargetSet,
    encode,
    encode_turns,
    target_sets,
    within,
)

BOS, EOS = 1, 2
VOCABULARY = shipped_vocabulary()


def _length(encoded: EncodedExample) -> int:
    """Return how many tokens the prompt has."""
    return encoded.segments.index(1)


def _texts(tokenizer: Tokenizer, targets: list[int]) -> list[str | int]:
    return [target if target < 0 else tokenizer.decode([target], skip_special_tokens=False) for target in targets]


def test_labelled_query_supervises_every_word_and_ends_with_any_vertical(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)])
    encoded = encode(Example("red shoes", draft), plan_tokenizer, VOCABULARY, BOS, EOS)

    assert encoded.tokens[0] == BOS
    assert len(encoded.targets) == len(encoded.tokens)
    assert encoded.targets[: _length(encoded) - 1] == [IGNORED] * (_length(encoded) - 1)
    written = _texts(plan_tokenizer, encoded.targets[_length(encoded) - 1 :])
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

    written = _texts(plan_tokenizer, encoded.targets[_length(encoded) - 1 :])
    assert written[0] == " find"
    assert written[1:3] == [IGNORED, IGNORED]
    assert written[3:] == [" Fashion", plan_tokenizer.decode([EOS], skip_special_tokens=False)]


def test_fixed_intents_are_one_word(plan_tokenizer: Tokenizer) -> None:
    example = Example("where is it?", PlanDraft("conversational", "order_status"))
    encoded = encode(example, plan_tokenizer, VOCABULARY, BOS, EOS)

    assert len(encoded.tokens) == _length(encoded) + 1
    assert encoded.targets[-1] == EOS


def test_unlabelled_product_questions_supervise_sources_and_that_they_end(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("conversational", "ask_product", ["reviews", "qa"])
    encoded = encode(Example("is it any good?", draft, knows_facets=False), plan_tokenizer, VOCABULARY, BOS, EOS)

    written = _texts(plan_tokenizer, encoded.targets[_length(encoded) - 1 :])
    assert written == [" Ask", " reviews", " answers", TargetSet.ENDS_SOURCES]


def test_refusals_and_parts_are_written_before_their_facet(plan_tokenizer: Tokenizer) -> None:
    spans = [
        FacetSpan("type", 0, 0, part=1),
        FacetSpan("type", 2, 2, part=2),
        FacetSpan("color", 4, 4, refused=True),
    ]
    example = Example("shoes and jacket not red", PlanDraft("keyword", "find_product", ["catalog"], spans))
    encoded = encode(example, plan_tokenizer, VOCABULARY, BOS, EOS)

    text = plan_tokenizer.decode(encoded.tokens[_length(encoded) :])
    assert text == " find One Type shoes Two Type jacket All Not Color red"
    assert IGNORED not in encoded.targets[_length(encoded) - 1 :]


def test_prices_sort_and_offers_are_marked_words(plan_tokenizer: Tokenizer) -> None:
    marks = [FacetSpan("max", 2, 3)]
    draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("type", 1, 1)], marks=marks, sort="price_asc")
    draft.offers = ["on_sale"]
    encoded = encode(
        Example("cheapest shoes under $40 on sale", draft, knows_closing=True), plan_tokenizer, VOCABULARY, BOS, EOS
    )

    text = plan_tokenizer.decode(encoded.tokens[_length(encoded) :])
    assert text == " find Type shoes Max under $40 Low Sale"
    assert encoded.targets[-1] == TargetSet.ENDS_FACETS


def test_turns_of_one_sequence_are_what_each_would_be_alone(plan_tokenizer: Tokenizer) -> None:
    first = Example("red shoes", PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("type", 1, 1)]))
    second = Example(
        "not red", PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 3, 3, refused=True)]),
        ("red shoes",),
    )  # fmt: skip
    both = encode_turns([first, second], plan_tokenizer, VOCABULARY, BOS, EOS)

    for number, turn in enumerate((first, second), 1):
        alone = encode(turn, plan_tokenizer, VOCABULARY, BOS, EOS)
        last = len(both.segments) - both.segments[::-1].index(number)
        seen = [at for at in range(last) if both.segments[at] in (0, number)]
        assert [both.tokens[at] for at in seen] == alone.tokens
        assert [both.positions[at] for at in seen] == list(range(len(alone.tokens)))
        assert [both.targets[at] for at in seen if both.segments[at]] == alone.targets[_length(alone) :]


def test_a_question_in_another_language_has_a_last_word_of_its_own(plan_tokenizer: Tokenizer) -> None:
    draft = PlanDraft("keyword", "find_product", ["catalog"], foreign=True)
    encoded = encode(Example("zapatos rojos", draft, knows_vertical=True), plan_tokenizer, VOCABULARY, BOS, EOS)

    assert plan_tokenizer.decode(encoded.tokens[_length(encoded) :]) == " find Foreign"
    assert encoded.targets[-1] == EOS


def test_a_set_stands_for_every_word_that_may_follow(plan_tokenizer: Tokenizer) -> None:
    sets = {code: set(_texts(plan_tokenizer, ids)) for code, ids in target_sets(plan_tokenizer, VOCABULARY).items()}

    assert {" Fashion", " Any", " Low", " Sale"} <= sets[TargetSet.ENDS_FACETS]
    assert " Type" not in sets[TargetSet.ENDS_FACETS]
    assert {" Fashion", " Type", " Max", " One", " Not"} <= sets[TargetSet.ENDS_SOURCES]


def test_what_a_vocabulary_lacks_is_unknown() -> None:
    own = VOCABULARY.model_copy(
        update={
            "facets": {key: facet for key, facet in VOCABULARY.facets.items() if key != "color"},
            "verticals": {"home-garden": VOCABULARY.verticals["home-garden"]},
            "intents": {key: intent for key, intent in VOCABULARY.intents.items() if key != "feedback"},
        }
    )
    spans = [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)]
    draft = PlanDraft("keyword", "find_product", ["catalog"], spans, vertical="apparel-accessories")
    said = within(Example("red shoes", draft, knows_vertical=True), own)

    assert said is not None
    assert [span.facet for span in said.draft.spans] == ["type"]
    assert not said.knows_facets
    assert not said.knows_vertical
    assert within(Example("well done", PlanDraft("keyword", "feedback")), own) is None
    kept = Example("red shoes", draft, knows_vertical=True)
    assert within(kept, VOCABULARY) == kept


def test_marked_texts_add_up() -> None:
    joined = MarkedText.plain("show me") + MarkedText(("red", "shoes"), (FacetSpan("color", 0, 0),))

    assert str(joined) == "show me red shoes"
    assert joined.spans == (FacetSpan("color", 2, 2),)
