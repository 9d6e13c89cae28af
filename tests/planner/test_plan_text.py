"""Plan text by the shipped vocabulary and a shop's own: its grammar admits what is read, written and completed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from service.planner.completion import plan_from_draft
from service.planner.grammar import plan_grammar
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft, PlanTextError, filters_of, parse, render, without_doubts
from service.planner.question import Question
from service.planner.vocabulary import DEFAULT_INTENT, FILE_NAME, Vocabulary, VocabularyError, shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from tests.planner.walks import byte_tokenizer, questions, random_walk

SHIPPED = shipped_vocabulary()
SHOES = Question.parse("Nike running shoes or not a tent for kids")


def admits(question: Question, text: str, vocabulary: Vocabulary = SHIPPED) -> bool:
    """Tell whether the grammar of a question admits a text, to its end."""
    matcher = LLMatcher(byte_tokenizer(), plan_grammar(question, vocabulary))
    assert not matcher.get_error(), matcher.get_error()
    taken = matcher.try_consume_tokens(list(text.encode()))
    return bool(taken == len(text.encode()) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (" status", PlanDraft("keyword", "order_status", ["orders"])),
        (" Other", PlanDraft("conversational", "out_of_scope")),
        (" find Any", PlanDraft("keyword", "find_product", ["catalog"])),
        (" find Foreign", PlanDraft("keyword", "find_product", ["catalog"], foreign=True)),
        (" ask answers catalog Sports", PlanDraft("keyword", "ask_product", ["qa", "catalog"], [], "sporting-goods")),
        (
            " Ask reviews Brand nike Not Type running shoes Any",
            PlanDraft(
                "conversational", "ask_product", ["reviews"],
                [FacetSpan("brand", 0, 0), FacetSpan("type", 1, 2, refused=True)],
            ),
        ),
        (
            " find One Type shoes Two Not Type tent All Audience kids Any",
            PlanDraft(
                "keyword", "find_product", ["catalog"],
                [
                    FacetSpan("type", 2, 2, part=1), FacetSpan("type", 6, 6, refused=True, part=2),
                    FacetSpan("audience", 8, 8),
                ],
            ),
        ),
        (
            " Find Type running shoes Need not a tent Low Sale Fast Fashion",
            PlanDraft(
                "conversational", "find_product", ["catalog"], [FacetSpan("type", 1, 2)], "apparel-accessories",
                marks=[FacetSpan("need", 4, 6)], sort="price_asc", offers=["on_sale", "fast_delivery"],
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(text: str, draft: PlanDraft) -> None:
    assert parse(text, SHOES, SHIPPED) == draft
    assert render(draft, SHOES, SHIPPED) == text


def test_a_repeated_span_is_matched_after_the_last_one() -> None:
    question = Question.parse("red shoes red hat")
    spans = parse(" find Color red Type shoes Color red Type hat Any", question, SHIPPED).spans
    assert [(span.first, span.last) for span in spans] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_span_stays_within_one_utterance() -> None:
    with pytest.raises(PlanTextError, match="no span"):
        parse(" find Type shoes red Any", Question.parse("red", ["shoes"]), SHIPPED)


def test_a_wish_copies_words_of_any_message() -> None:
    question = Question.parse("the tent under $200, bag is fine", ["a tent and a sleeping bag"])
    text = " Find One Type tent Two Type sleeping bag One Max under $200 Sports"
    draft = parse(text, question, SHIPPED)
    assert [(span.facet, span.part) for span in (*draft.spans, *draft.marks)] == [("type", 1), ("type", 2), ("max", 1)]
    assert render(draft, question, SHIPPED) == text


QUESTION = Question.parse("a blue tent and a red rope no nylon under $80 four stars")
WHOLE = (
    " find One Color blue Type tent Two Color red Type rope All Not Material nylon"
    " Max under $80 Stars four stars Low Sports"
)
WITHOUT_PRICE = WHOLE.replace(" Max under $80", "")
WITHOUT_NYLON = WHOLE.replace(" All Not Material nylon Max", " All Max")


def words_of(*found: str, at: float = 0.3) -> list[tuple[int, float]]:
    return [(WHOLE.split().index(word), at) for word in found]


@pytest.mark.parametrize(
    ("unsure", "left"),
    [
        ([], WHOLE),
        (words_of("Type", "blue", "Low", "Sports"), WHOLE),
        (words_of("Not", at=0.8), WHOLE),
        (words_of("Not"), WITHOUT_NYLON),
        (words_of("Not", "nylon", at=0.6), WITHOUT_NYLON),
        ([*words_of("nylon", at=0.6), *words_of("nylon", at=0.6)], WITHOUT_NYLON),
        (words_of("Max"), WHOLE.replace(" Max under $80", "")),
        (words_of("Stars"), WHOLE.replace(" Stars four stars", "")),
        (words_of("Not", "Max", "Stars"), WHOLE.replace(" All Not Material nylon Max under $80 Stars four stars", "")),
    ],
    ids=["sure", "wanted", "nearly sure", "refusal", "by its words together", "two tokens", "bound", "rating", "all"],
)
def test_a_doubtful_filter_is_left_out_and_nothing_else(unsure: list[tuple[int, float]], left: str) -> None:
    assert admits(QUESTION, WHOLE)
    assert without_doubts(WHOLE, unsure, SHIPPED) == left
    assert admits(QUESTION, left)


@pytest.mark.parametrize(
    ("read", "word", "at", "left"),
    [
        (" find Not Material nylon Sports", "Not", 0.5, WHOLE),
        (" find Not Material nylon Sports", "Not", 0.2, WITHOUT_NYLON),
        (" find Material nylon Max under $80 Sports", "Not", 0.8, WITHOUT_NYLON),
        (" find One Type tent All Sports", "Not", 0.9, WHOLE),
        (" find Max under $80 Sports", "Max", 0.5, WHOLE),
        (" find Min under $80 Sports", "Max", 0.8, WITHOUT_PRICE),
        (" find Not Material under $80 Sports", "Max", 0.8, WITHOUT_PRICE),
        (" find Min four stars Sports", "Stars", 0.5, WHOLE),
    ],
    ids=[
        "seconded", "seconded and unlikely", "the reader wants it", "sure alone", "the same bound", "the other bound",
        "a refusal for a bound", "a rating needs no second",
    ],
)  # fmt: skip
def test_a_filter_needs_the_reader_or_to_be_nearly_sure(read: str, word: str, at: float, left: str) -> None:
    seconded = filters_of(read, SHIPPED)
    assert without_doubts(WHOLE, words_of(word, at=at), SHIPPED, seconded) == left


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions, seed=st.integers(0, 2**32))
def test_every_admitted_text_is_read_written_admitted_again_and_becomes_a_valid_plan_that_invents_nothing(
    question: Question, seed: int
) -> None:
    draft = parse(random_walk(question, seed), question, SHIPPED)
    text = render(draft, question, SHIPPED)
    assert admits(question, text)
    assert parse(text, question, SHIPPED) == draft
    plan = plan_from_draft(draft, question, SHIPPED)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    for facets in (plan.facets, plan.exclude, *(part.facets for part in plan.parts)):
        for values in facets.values():
            assert all(any(value in utterance for utterance in question.utterances) for value in values)
    assert bool(plan.queries) == bool(SHIPPED.intents[plan.intent].sources or plan.sources)


NIKE_SHOES = Question.parse("Nike running shoes under $100", ["size 9 please"])

ADMITTED = (
    " find Type running shoes Any", " Find Type shoes Fashion", " find Size 9 Not Brand nike Any", " find Foreign",
    " compare One Brand nike Two Not Type shoes Any", " find One Size 9 All Type shoes Sports", " policy", " Agent",
    " find Type shoes Max under $100 Low Stock Fast Any", " find Stars 9 Need running shoes Any",
    " ask answers Type shoes Any", " ask catalog reviews answers Any",
)  # fmt: skip
REFUSED = (
    " find Type sandals Any", " find Type shoes running Any", " find Type nike shoes Any",
    " find One All Type shoes Any",
    " find Brand nike Size 9 Any",  # facets follow the question's order, the history's words first
    " find Size please Nike Any", " find Type please nike Any",  # no span crosses utterances
    " find catalog Any",  # its source is known
    " find Not One Type shoes Any", " find Not Max under $100 Any", " find Low Type shoes Any", " find Low High Any",
    " find Fast Stock Any", " find Not Any", " ask Any", " ask reviews reviews Any", " status Any", " find", "find Any",
    " find Any ", " find Nowhere",
)  # fmt: skip


@pytest.mark.parametrize("text", [*ADMITTED, *REFUSED])
def test_a_grammar_admits_what_plan_text_is_alone(text: str) -> None:
    assert admits(NIKE_SHOES, text) == (text in ADMITTED)


@pytest.mark.parametrize(
    "text",
    ["", " nonsense", " find Type Any", " find Type sandals Any", " find Type shoes running Any", " find shoes Any",
     " find Not nike Any", " find Any shoes", " FIND Any", " find Max Any", " find Low running Any"],
)  # fmt: skip
def test_what_the_grammar_does_not_admit_is_refused(text: str) -> None:
    with pytest.raises(PlanTextError):
        parse(text, SHOES, SHIPPED)


@pytest.mark.parametrize(
    "query",
    [
        " ".join(f"word{index}" for index in range(200)), " ".join(f"{index}" for index in range(100)), "x" * 512,
        '\\" \\n %ignore /./ } ] | : "start"', "\u2028\u2029 \x85 a", "👩\u200d👩\u200d👧 👟",
    ],
)  # fmt: skip
def test_every_question_has_a_grammar(query: str) -> None:
    question = Question.parse(query)
    first = question.words[0].text
    assert admits(question, f" find Type {first} Any")


@pytest.mark.parametrize(
    ("text", "kind", "refused"),
    [
        ("running shoes -nike", "running shoes", {"nike"}),
        ("!leather sofa", "sofa", {"leather"}),
        ("laptop -refurbished -used", "laptop", {"refurbished", "used"}),
        ("t-shirt size 10-12", "t-shirt size 10-12", set()),
    ],
)
def test_words_with_a_minus_or_a_mark_are_refused(text: str, kind: str, refused: set[str]) -> None:
    question, vocabulary = Question.parse(text, []), Vocabulary.load(SHIPPED_MODEL)
    marked = PlanDraft("keyword", DEFAULT_INTENT, spans=[FacetSpan("type", 0, len(question.words) - 1)])
    plan = plan_from_draft(marked, question, vocabulary)
    assert {value for values in plan.exclude.values() for value in values} == refused
    assert plan.queries[0] == kind
    assert not any(word in query.split() for word in refused for query in plan.queries)


GROCER: dict[str, Any] = {
    "intents": {
        "find_product": {"word": "find", "products": True, "sources": ["shelf"]},
        "ask_product": {"word": "ask", "products": True},
        "recipe": {"word": "cook", "sources": []},
    },
    "verticals": {"fresh-food": {"word": "Fresh", "name": "Fresh food"}},
    "facets": {"diet": {"word": "Diet"}, "type": {"word": "Type"}},
    "sources": {"shelf": {"word": "shelf"}, "labels": {"word": "labels"}},
}
SAUCE = Question.parse("vegan pasta sauce")


def write(folder: Path, vocabulary: Any) -> Path:
    (folder / FILE_NAME).write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder


ALONE = GROCER | {"intents": {"find_product": GROCER["intents"]["find_product"]}}


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (GROCER, " find Diet vegan Type pasta sauce Fresh"),
        (GROCER, " Ask labels shelf Type sauce Any"),
        (GROCER, " find One Diet vegan Two Not Type sauce Foreign"),
        (GROCER, " cook"),
        (ALONE, " find Diet vegan Fresh"),  # a vocabulary may have products alone
        (ALONE, " find Any"),
    ],
)
def test_plan_text_and_grammar_follow_a_shops_own_vocabulary(tmp_path: Path, own: dict[str, Any], text: str) -> None:
    vocabulary = Vocabulary.load(write(tmp_path, own))
    assert admits(SAUCE, text, vocabulary)
    assert render(parse(text, SAUCE, vocabulary), SAUCE, vocabulary) == text


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(vocabulary: dict[str, Any]) -> None:
        table = vocabulary
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (change("facets", "diet", "word", to="Type"), r"facets\.type\.word: 'Type' is already facets\.diet\.word"),
        (change("facets", "diet", "word", to="Find"), r"facets\.diet\.word: 'Find' is already intents\.find_product"),
        (change("facets", "diet", "word", to="Any"), r"facets\.diet\.word: 'Any' is already a word of plan text"),
        (change("facets", "diet", "word", to="diet"), r"facets\.diet\.word: 'diet' must be one word with a capital"),
        (change("intents", "recipe", "word", to="To Cook"), r"intents\.recipe\.word: 'To Cook' must be one lower-case"),
        (change("intents", "recipe", "sources", to=["web"]), r"intents\.recipe\.sources: 'web' is no key of sources"),
        (change("intents", "recipe", "sources", to=["shelf"] * 2), r"intents\.recipe\.sources: 'shelf' stands twice"),
        (change("intents", "recipe", to={"word": "cook"}), r"intents\.recipe\.sources: 'null' is for intents about"),
        (change("intents", "find_product", "products", to=False), r"intents\.find_product: .* must be true"),
        (change("sources", to={"shelf": {}}), r"intents\.ask_product\.sources: .*no source has a word"),
        (change("sources", "start", to={}), r"sources\.start: 'start' is a name of the grammar"),
        (change("verticals", "Fresh Food", to={"word": "Food", "name": "Food"}), r"verticals\.Fresh Food: .*pattern"),
        (change("verticals", "fresh-food", to={"word": "Fresh"}), r"verticals\.fresh-food\.name: Field required"),
        (change("colours", to={}), r"colours: Extra inputs are not permitted"),
    ],
)
def test_errors_name_file_key_and_clash(tmp_path: Path, changed: Callable[[dict[str, Any]], None], words: str) -> None:
    vocabulary = json.loads(json.dumps(GROCER))
    changed(vocabulary)

    with pytest.raises(VocabularyError, match=rf"{FILE_NAME}: {words}"):
        Vocabulary.load(write(tmp_path, vocabulary))


def test_a_key_may_stand_once(tmp_path: Path) -> None:
    text = '{"facets": {"diet": {"word": "Diet"}, "diet": {"word": "Food"}}}'
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")

    with pytest.raises(VocabularyError, match="diet: stands twice"):
        Vocabulary.load(tmp_path)


def test_a_missing_or_broken_file_says_where_to_find_one(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"models/qp-smollm2-135m/vocabulary\.json"):
        Vocabulary.load(tmp_path)
    (tmp_path / FILE_NAME).write_text("{", encoding="utf-8")
    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .*line 1"):
        Vocabulary.load(tmp_path)


def test_every_shipped_word_is_one_token_of_the_shipped_model() -> None:
    try:
        tokenizer = Tokenizer.from_file(str(ensure_base_weights(Settings().cache_dir) / "tokenizer.json"))
    except BaseWeightsError as error:
        pytest.skip(str(error))

    shipped_vocabulary().check_tokens(tokenizer)


def test_a_word_of_several_tokens_is_named(tmp_path: Path) -> None:
    letters = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .*: 'Any' is 4 tokens"):
        Vocabulary.load(write(tmp_path, GROCER)).check_tokens(letters)


def test_everything_shipped_is_described() -> None:
    vocabulary = Vocabulary.load(SHIPPED_MODEL)
    tables = (vocabulary.intents, vocabulary.verticals, vocabulary.facets, vocabulary.sources)

    assert all(entry.description for table in tables for entry in table.values())
