"""The currencies' file is what Babel's CLDR data says."""

import pytest

from service.planner import money


def test_the_file_is_what_the_command_writes() -> None:
    pytest.importorskip("babel", reason="training's packages are not installed")
    from training.currencies import lines

    assert money.MONEY_PATH.read_text(encoding="utf-8").splitlines() == list(lines())


def test_every_currency_of_a_territory_has_a_name_in_each_language() -> None:
    for language in ("en", "es", "de", "fr"):
        named = {code for codes in money.names(language).values() for code in codes}
        assert named >= money.codes() - {"XCG"}


def test_a_sign_of_several_currencies_is_certain_where_the_locale_says_it() -> None:
    assert money.certain(money.signs()["kr"], "SE") == "SEK"
    assert money.certain(money.signs()["kr"], None) is None
    assert money.certain(money.signs()["₹"], None) == "INR"
    assert money.code_of("mxn") == "MXN"
    assert money.code_of("try") is None
