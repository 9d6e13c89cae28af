"""Write the currencies' names and signs, which the planner reads in questions, from Babel's CLDR data.

Babel itself takes two seconds and 90 MB to tell the sign of every currency where it is money; the file is read in
milliseconds. `python -m training.currencies` writes it anew.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from babel import Locale, UnknownLocaleError
from babel.core import get_global
from babel.localedata import locale_identifiers

from service.planner.amounts import MONEY_PATH

FULL: Final = ("en", "es", "de", "fr")  # languages that are read: every currency's name in them
_UNIT_IS_LAST: Final = frozenset("en de nl sv da nb no nn fi is hu et tr".split())  # "Swiss franc", "franc suisse"
_WORLD: Final = ("EUR", "USD", "GBP", "CHF", "JPY", "CNY")


def tender() -> dict[str, str]:
    """Return the currency of each territory, by its ISO 3166 code."""
    found: dict[str, str] = {}
    for territory, currencies in get_global("territory_currencies").items():
        current = [code for code, _, end, is_tender in currencies if end is None and is_tender]
        if current and len(territory) == 2:
            found[territory] = current[0]
    return found


def main_locale(territory: str) -> Locale | None:
    """Return the locale that most people of a territory use."""
    tag = get_global("likely_subtags").get(f"und_{territory}")
    for name in (tag, tag and f"{tag.split('_')[0]}_{territory}"):
        try:
            return Locale.parse(name) if name else None
        except (UnknownLocaleError, ValueError):
            continue
    return None


def signs(territories: dict[str, str]) -> dict[str, set[str]]:
    """Return the currencies that each sign stands for where they are money."""
    found: dict[str, set[str]] = defaultdict(set)
    for territory, code in territories.items():
        locale = main_locale(territory)
        if locale and (sign := _bare(locale.currency_symbols.get(code, ""))) and sign != code:
            found[sign].add(code)
    for locale in (Locale("en"), Locale("en", "AU"), Locale("fr", "CA"), Locale("es"), Locale("de")):
        for code, sign in locale.currency_symbols.items():
            if _bare(sign) != code and code in territories.values():
                found[_bare(sign)].add(code)
    return found


def _bare(sign: str) -> str:
    return "".join(character for character in sign if character.isprintable()).replace(" ", "")


def names(locale: Locale, codes: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of currencies, singular and plural, with their codes."""
    plural = locale._data["currency_names_plural"]  # Babel has no function that gives all forms
    for code in sorted(codes):
        forms = [locale.currencies.get(code, ""), *(plural[code].values() if code in plural else ())]
        for form in dict.fromkeys(form.lower() for form in forms if form and form != code):
            yield form, code


def units(language: str, named: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the words for units, "peso" of "peso mexicano", with the currencies that they may be."""
    at = -1 if language in _UNIT_IS_LAST else 0
    found: dict[str, set[str]] = defaultdict(set)
    for name, code in named:
        words = name.replace("-", " ").replace("(", " ").split()
        if len(words) > 1 and words[at].isalpha():
            found[words[at]].add(code)
    return found


def decimal_marks() -> dict[str, list[str]]:
    """Return the locales of each decimal mark; one with a territory only where its language has another mark."""
    found: dict[str, list[str]] = {",": [], ".": []}
    of_language: dict[str, str] = {}
    for name in sorted(locale_identifiers(), key=lambda name: (name.count("_"), name)):
        locale = Locale.parse(name)
        mark = locale.number_symbols.get(locale.default_numbering_system, {}).get("decimal", "")
        key = f"{locale.language}_{locale.territory}" if locale.territory else locale.language
        if mark in found and not locale.variant and of_language.get(locale.language) != mark and key not in of_language:
            of_language[key] = mark
            found[mark].append(key)
    return found


def lines() -> Iterator[str]:
    """Yield the lines of the file."""
    territories = tender()
    codes = set(territories.values())
    yield "# Written by `python -m training.currencies` from the CLDR data of Babel (Unicode licence)."
    yield "[territories]"
    yield " ".join(f"{territory}={code}" for territory, code in sorted(territories.items()))
    for mark, locales in decimal_marks().items():
        yield f"[decimals {mark}]"
        yield " ".join(locales)
    yield "[signs]"
    yield from (f"{sign}={','.join(sorted(found))}" for sign, found in sorted(signs(territories).items()))
    local: dict[str, set[str]] = defaultdict(set)
    for territory, code in territories.items():
        if locale := main_locale(territory):
            local[locale.language].add(code)
    for language in sorted({*local, *FULL}):
        locale = Locale(language)
        named = list(names(locale, codes if language in FULL else local[language].union(_WORLD)))
        if language in FULL:
            yield f"[names {language}]"
            yield from (f"{name}={code}" for name, code in named)
        yield f"[units {language}]"
        whole = {name: {code} for name, code in named if " " not in name}
        for unit, found in sorted((units(language, named) | ({} if language in FULL else whole)).items()):
            yield f"{unit}={','.join(sorted(found))}"


if __name__ == "__main__":
    MONEY_PATH.write_text("\n".join(lines()) + "\n", encoding="utf-8")
