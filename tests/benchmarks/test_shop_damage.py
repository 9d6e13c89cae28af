"""Of what a damage takes from the sample catalogue, at least nine tenths come back."""

import pytest
from peakplan_client import catalogue

from benchmarks.shop_damage import run

pytestmark = pytest.mark.skipif(not catalogue.NEARBY.is_file(), reason="no sample catalogue beside the checkout")


def test_nine_tenths_of_a_damage_come_back() -> None:
    right, taken = run(list(catalogue.read(catalogue.NEARBY)))
    assert set(taken) == {"category", "brand", "color", "material", "height"}
    assert right.total() >= 0.9 * taken.total()
    assert right["category"] >= 0.8 * taken["category"]
