"""Spanish, German and French by rule: a file of cases each, and what holds for all of them."""

import json
from pathlib import Path
from typing import Any

import pytest

import service.planner.fallback.reading
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrase_reader import PhraseReader
from service.planner.fallback.reading.readers import READERS, reader_of
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.text import plain_number
from service.planner.vocabulary import shipped_vocabulary

LANGUAGES = ("es", "de", "fr")
READING = Path(service.planner.fallback.reading.__file__).parent


def cases(language: str) -> list[Any]:
    path = Path(__file__).with_name(language) / "cases.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(language, row, id=f"{language}: {' > '.join(row['say'])}") for row in rows]


def conversation(*said: str, locale: str | None = None) -> Conversation:
    return Conversation(Question.parse(said[-1], said[:-1], locale))


def plan(*said: str, locale: str | None = None) -> Plan:
    return plan_by_rule(conversation(*said, locale=locale), shipped_vocabulary())


@pytest.mark.parametrize(("language", "row"), [case for language in LANGUAGES for case in cases(language)])
def test_a_language_reads(language: str, row: dict[str, Any]) -> None:
    made = plan(*row["say"], locale=row.get("locale"))
    assert made.intent == row["intent"]
    if made.intent != "find_product":
        return
    reader = reader_of(conversation(*row["say"], locale=row.get("locale")).question)
    assert reader.language == language
    assert made.queries[0] == row["query"]
    assert [made.price.min, made.price.max, made.price.currency] == row.get("price", [None, None, None])
    assert sorted(value for values in made.exclude.values() for value in values) == row.get("exclude", [])
    assert (made.sort, made.offers) == (row.get("sort", "relevance"), row.get("offers", []))
    assert made.rating.min == row.get("rating")


def test_a_number_that_replaces_another_keeps_its_unit_in_the_query_alone() -> None:
    made = plan("mesa de 120 cm", "mejor 140", locale="es-ES")
    assert "140 cm" in made.queries[0]
    assert made.facets["size"] == ["140"], "a value is a span of the shopper's own words"


def test_a_lone_accent_is_a_word_like_any_other() -> None:
    assert plan("zapatos \u0301 rojos de menos de 50 euros", locale="es-ES").price.max == 50.0


@pytest.mark.parametrize(
    ("said", "locale", "currency"),
    [
        ("audífonos de menos de 300 pesos", "es-MX", "MXN"),
        ("audífonos de menos de 300 pesos", "es-CO", "COP"),
        ("audífonos de menos de 300 pesos", None, None),
        ("audífonos de menos de $300", "es-AR", "ARS"),
        ("audífonos de menos de 300 dólares", "es-AR", "USD"),
        ("tuque à moins de 30 $", "fr-CA", "CAD"),
        ("montre à moins de 300 francs", "fr-CH", "CHF"),
        ("montre à moins de 300 francs", None, None),
        ("uhr unter 300 Franken", None, "CHF"),
        ("uhr unter 300 zł", None, "PLN"),
        ("uhr unter 300 R$", None, "BRL"),
        ("uhr unter 3000 ₹", None, "INR"),
        ("uhr unter 3000 kr", "de-DK", "DKK"),
        ("uhr unter 3000 kr", None, None),
    ],
)
def test_a_currency_is_told_where_it_is_certain(said: str, locale: str | None, currency: str | None) -> None:
    price = plan(said, locale=locale).price
    assert price.max is not None
    assert price.currency == currency


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.200,50", 1200.5), ("1,200.50", 1200.5), ("1'200", 1200), ("1’200.50", 1200.5), ("1\u202f200,50", 1200.5),
        ("1.200", 1200), ("1,200", 1200), ("12,5", 12.5), ("12.50", 12.5), ("1.200.000", 1_200_000),
    ],
)  # fmt: skip
def test_numbers_of_every_locale(written: str, value: float) -> None:
    assert float(plain_number(written)) == value


@pytest.mark.parametrize(
    ("said", "locale", "most"),
    [
        ("Lampe bis 1.200,50 Euro", "de-DE", 1200.5),
        ("Lampe bis 1.200 Euro", "de-AT", 1200),
        ("Lampe bis 1,250 Euro", "de", 1.25),
        ("Lampe bis 1.250 Franken", "de-CH", 1.25),
        ("lamp under $1,200.50", "en-US", 1200.5),
        ("lamp under $1,200", "en-GB", 1200),
        ("lamp under 1.250 euros", "en-US", 1.25),
        ("lamp under 1.250 euros", "en-DE", 1250),
        ("lámpara de menos de 1,200.50 pesos", "es-MX", 1200.5),
        ("lámpara de menos de 1,200 pesos", "es-MX", 1200),
        ("lámpara de menos de 1.200 euros", "es-ES", 1200),
        ("lampe à moins de 1 200,50 €", "fr-FR", 1200.5),
        ("lampe à moins de 1.250 €", "fr-FR", 1250),
        ("lampe à moins de 1,250 €", "fr-CA", 1.25),
        ("Lampe bis 1.250 Euro", None, 1250),
        ("lamp under 1,250 euros", None, 1250),
    ],
)
def test_the_locale_says_which_mark_stands_before_decimals(said: str, locale: str | None, most: float) -> None:
    assert plan(said, locale=locale).price.max == most


@pytest.mark.parametrize(
    "said",
    ["red shoes", "la mer cream", "le creuset dutch oven", "die cast cars", "pour over coffee maker"],
)
def test_english_stays_english(said: str) -> None:
    assert reader_of(Question.parse(said)).language == "en"


def test_every_language_is_read_by_one_mechanism_from_its_folder_alone() -> None:
    assert isinstance(ENGLISH, PhraseReader)
    assert all(type(reader) is PhraseReader for reader in READERS.values())
    for name in LANGUAGES:
        assert not [path for path in (READING / name).glob("*.py") if path.stat().st_size], "a language is data"


def test_what_tells_a_language_does_not_hang_on_what_was_read_before() -> None:
    data = LanguageData(READING / "es")
    before = data.words_of_phrases()
    PhraseReader(data).prepare()
    assert data.words_of_phrases() == before


def test_the_locale_decides_where_the_words_do_not() -> None:
    assert reader_of(Question.parse("sandalen 38", (), "de-CH")).language == "de"
    assert reader_of(Question.parse("nike 42")).language == "en"
    assert reader_of(Question.parse("nike 42", (), "fr-CA")).language == "fr"
    assert reader_of(Question.parse("where is the order i placed for my kids", (), "es-ES")).language == "en"
