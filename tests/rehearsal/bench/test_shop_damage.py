"""Of what a damage takes from the sample catalogue, at least nine tenths come back."""

from peakplan_client import catalogue

from rehearsal.bench.shop_damage import run


def test_nine_tenths_of_a_damage_come_back() -> None:
    right, taken = run(list(catalogue.read()))
    assert set(taken) == {"category", "brand", "color", "material", "height"}
    assert right.total() >= 0.9 * taken.total()
    assert right["category"] >= 0.8 * taken["category"]
