"""What badges say of the sample shop's products: only what a field or the product's own words say."""

from pathlib import Path
from typing import Any

import pytest
from peakplan_client.shop import Findings, Option, Shop
from peakplan_client.wording import begins_a_name, calls_itself, ends_a_name, says, says_another


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder: Path = tmp_path_factory.mktemp("sample")
    return Shop.open(folder)


def found(shop: Shop, question: str, **plan: Any) -> Findings:
    return shop.find({"queries": [question], **plan}, question, timeout=60)


def badges(option: Option) -> dict[str, str]:
    named = {"✓": option.judged.met, "✗": option.judged.unmet, "?": option.judged.unknown}
    return {wish.says: sign for sign, wishes in named.items() for wish in wishes}


def test_a_skate_shoe_is_no_running_shoe_and_a_suede_one_is_of_leather(sample: Shop) -> None:
    """The shop's own running shoes cost more than $80."""
    facets, exclude = {"color": ["red"], "type": ["running shoes"]}, {"material": ["leather"]}
    planned = {"facets": facets, "exclude": exclude, "price": {"max": 80, "currency": "USD"}}
    findings = found(sample, "red running shoes", **planned)
    assert findings.found.nothing
    assert findings.found.missing == ("running shoes",)
    assert findings.found.nearest[0] == "sneaker"
    assert not any("Suede" in option.name for option in findings.options())
    for option in findings.options(0, 3):
        told = badges(option)
        assert told["running shoes"] != "✓", option.name
        assert not (told["not leather"] == "✓" and "canvas" not in option.snippet.lower() + option.name.lower())
    dear = found(sample, "running shoes", facets={"type": ["running shoes"]}).options(0, 2)
    assert {"Running Shoe" in option.name for option in dear} == {True}
    assert [badges(option)["running shoes"] for option in dear] == ["✓", "✓"]


def test_a_text_that_says_navy_is_not_red(sample: Shop) -> None:
    options = found(sample, "red skate shoe", facets={"color": ["red"], "type": ["skate shoe"]}).options()
    (navy,) = [option for option in options if option.name == "Classic Beachcomber Skate Shoe"]
    assert badges(navy)["color: red"] == "✗"
    assert badges(navy)["skate shoe"] == "✓"


def test_what_the_shop_has_not_got_is_said_and_no_tote_stands_for_it(sample: Shop) -> None:
    parts = [{"facets": {"type": [each]}, "queries": [each]} for each in ("tent", "sleeping bag")]
    findings = sample.find(
        {"queries": ["tent", "sleeping bag"], "parts": parts}, "a tent and a sleeping bag", timeout=60
    )
    assert not findings.found.nothing
    assert findings.found.missing == ("sleeping bag",)
    assert all("tent" in option.name.lower() for option in findings.options(0, 3))
    assert not any(badges(option).get("sleeping bag") == "✓" for option in findings.options())


def test_the_cheapest_is_the_cheapest_of_the_things_and_no_wall_art(sample: Shop) -> None:
    options = found(sample, "cheap guitar", facets={"type": ["guitar"]}, sort="price_asc").options()
    prices = [option.price for option in options if badges(option)["guitar"] == "✓"]
    assert prices[:3] == [299.99] * 3
    assert prices == sorted(prices)
    assert "Wall" not in options[0].name


def test_two_things_that_there_are_take_turns(sample: Shop) -> None:
    parts = [{"facets": {"type": [each]}, "queries": [each]} for each in ("tent", "backpack")]
    options = sample.find({"queries": ["tent", "backpack"], "parts": parts}, "", timeout=60).options(0, 4)
    assert [max(badges(option), key=badges(option).get) for option in options].count("tent") == 2


@pytest.mark.parametrize(
    ("name", "kind", "is_one"),
    [
        ("Classic Beachcomber Skate Shoe", "shoe", True),
        ("Vintage Acoustic Guitar Wall Art", "guitar", False),
        ("Retro Denim Jacket with Donut Pin", "jacket", True),
        ("Retro Denim Jacket with Donut Pin", "pin", False),
        ("Compact Drum Set", "drum", True),
        ("Farmhouse Chic Chest of Drawers", "chest of drawers", True),
        ("Cozy Loveseat", "couch", True),
        ("Cozy Sofa", "loveseat", False),
        ("Non-Stick Skillet", "frying pan", True),
        ("Rainbow Carrot Medley", "carrot", True),
    ],
)
def test_a_name_says_what_a_thing_is_where_it_ends(name: str, kind: str, is_one: bool) -> None:
    from peakplan_client.mapping import normal

    assert ends_a_name(name, normal(kind)) is is_one


def test_words_say_what_they_say_and_no_more() -> None:
    assert begins_a_name("Classic Striped Shirt and Watch Set", ("shirt",))
    assert calls_itself("Elevate it with this stunning silver laptop. Buy.", ("laptop",))
    assert not calls_itself("With our exclusive Graffiti Laptop Skin.", ("laptop",))
    assert says("soft suede upper", "leather", "material")
    assert not says("soft faux leather upper", "leather", "material")
    assert says_another(["a canvas upper"], "leather", "material")
    assert not says_another(["a vegan canvas upper"], "leather", "material"), "vegan what?"
    assert says_another(["navy and beige"], "red", "color")
    assert not says_another(["crimson and navy"], "red", "color")
    assert not says_another(["ruby and navy"], "red", "color"), "it may be red"


@pytest.mark.parametrize(
    ("text", "said", "facet", "is_said"),
    [
        ("soft khaki suede upper, contrasting white soles", "white", "color", False),
        ("A navy pack, complementing the vibrant yellow coat", "yellow", "color", False),
        ("these classic black and white sneakers", "white", "color", True),
        ("a vibrant red, white, and blue pattern", "blue", "color", True),
        ("a black base with vibrant purple and yellow accents", "purple", "color", False),
        ("this table, with wooden legs", "wooden", "material", False),
        ("a sturdy wooden table with slender white legs", "wooden", "material", True),
    ],
)
def test_the_colour_of_a_part_is_not_that_of_the_thing(text: str, said: str, facet: str, is_said: bool) -> None:
    assert says(text, said, facet) is is_said
    assert says(text, said, facet, whole=False)


def test_a_rubber_sole_does_not_tell_what_the_shoe_is_of() -> None:
    assert not says_another(["sneakers with rubber soles"], "leather", "material")
    assert says_another(["canvas sneakers with rubber soles"], "leather", "material")


def test_white_soles_make_no_white_sneaker_and_order_no_less_by_price(sample: Shop) -> None:
    plan: dict[str, Any] = {"facets": {"color": ["white"], "type": ["sneakers"]}}
    options = {each.name: each for each in found(sample, "white sneakers", **plan, sort="price_asc").options()}
    signs = {badges(each)["color: white"] for each in options.values()}
    assert signs == {"✓", "?"}, signs
    prices = [option.price or 0 for option in options.values()]
    assert prices == sorted(prices), "what may be white stands in its place"
    best = found(sample, "white sneakers", **plan).options(0, 3)
    assert [badges(each)["color: white"] for each in best] == ["✓"] * 3


def test_dining_chairs_filed_under_tables_are_no_dining_table(sample: Shop) -> None:
    options = found(sample, "dining table", facets={"type": ["dining table"]}).options()
    assert not [each.name for each in options if "Chair" in each.name and badges(each)["dining table"] == "✓"]


def test_a_wish_is_read_without_the_words_that_lead_to_it(sample: Shop) -> None:
    planned = {"facets": {"type": ["speaker"], "feature": ["that is waterproof"]}}
    best = found(sample, "speaker that is waterproof", **planned).options()[0]
    assert badges(best) == {"speaker": "✓", "feature: waterproof": "✓"}


def test_a_backpack_filed_under_handbags_is_none_and_a_set_of_other_tools_no_set_of_wrenches(sample: Shop) -> None:
    options = found(sample, "leather handbag", facets={"type": ["handbag"], "material": ["leather"]}).options()
    assert {badges(each)["handbag"] for each in options if "Backpack" not in each.name} == {"✓"}
    assert not [each.name for each in options if "Backpack" in each.name and badges(each)["handbag"] == "✓"]
    for each in found(sample, "wrench set", facets={"type": ["wrench set"]}).options():
        assert ("Wrench" in each.name) is (badges(each)["wrench set"] == "✓"), each.name


def test_who_wants_no_wood_gets_nothing_wooden(sample: Shop) -> None:
    planned = {"facets": {"type": ["chairs"]}, "exclude": {"material": ["wood"]}}
    options = found(sample, "chairs not wood", **planned).options()
    assert options
    assert not [each.name for each in options if "wooden" in (each.name + each.snippet).lower()]


def test_what_may_be_the_thing_comes_before_what_is_another_where_a_price_sorts(sample: Shop) -> None:
    options = found(sample, "cheap pub hammers", facets={"type": ["pub hammers"]}, sort="price_asc").options()
    assert badges(options[0])["pub hammers"] == "?"
    assert "Hammer" in options[0].name
