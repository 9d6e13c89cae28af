"""The currencies' file is what Babel's CLDR data says."""

import pytest

from service.planner import amounts
from service.planner.spelling import WORDS_PATH
from service.settings import Settings
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from training.words import word_list


def test_the_service_has_the_list_that_our_data_makes() -> None:
    try:
        tokenizer = ensure_base_weights(Settings().cache_dir) / "tokenizer.json"
    except BaseWeightsError as error:
        pytest.skip(str(error))
    message = f"run `python -m training.words {tokenizer}`"
    assert WORDS_PATH.read_text(encoding="ascii") == word_list(tokenizer), message


def test_the_file_is_what_the_command_writes() -> None:
    pytest.importorskip("babel", reason="training's packages are not installed")
    from training.currencies import lines

    assert amounts.MONEY_PATH.read_text(encoding="utf-8").splitlines() == list(lines())


def test_every_currency_of_a_territory_has_a_name_in_each_language() -> None:
    for language in ("en", "es", "de", "fr"):
        named = {code for codes in amounts.names(language).values() for code in codes}
        assert named >= amounts.codes() - {"XCG"}


def test_a_sign_of_several_currencies_is_certain_where_the_locale_says_it() -> None:
    assert amounts.certain(amounts.signs()["kr"], "SE") == "SEK"
    assert amounts.certain(amounts.signs()["kr"], None) is None
    assert amounts.certain(amounts.signs()["₹"], None) == "INR"
    assert amounts.code_of("mxn") == "MXN"
    assert amounts.code_of("try") is None
