"""Cost: the arithmetic adds up, is printed, and comes from the price file."""

import json
from pathlib import Path

import pytest

from infra.fleet.__main__ import main
from infra.fleet.cost import PRICES, Prices, bills
from infra.fleet.instances import catalogue
from infra.fleet.settings import FLEETS, FleetSettings

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


def test_every_known_instance_type_has_a_price() -> None:
    assert set(Prices.from_json().instance_hour) == set(catalogue().types)


def test_prime_day_is_sized_for_a_million_plans_a_minute() -> None:
    peak = max(bills(PRIME_DAY, Prices.from_json()), key=lambda bill: bill.plans_per_minute)
    assert peak.plans_per_minute == 1_000_000
    assert peak.per_million_plans == pytest.approx(peak.hourly / 60)
    instances = sum(item.count for item in peak.items if item.what.endswith("in service"))
    plans_a_second = instances * 2 / 3 * 0.6162 / 0.020  # one zone of three lost, each replica 61.62% busy
    assert plans_a_second >= 1_000_000 / 60


def test_the_bill_follows_the_price_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = json.loads(PRICES.read_text(encoding="utf-8"))
    prices["instance_hour"]["inf2.xlarge"] = 100
    dearer = tmp_path / "prices.json"
    dearer.write_text(json.dumps(prices), encoding="utf-8")
    assert main(["cost", "dev", "--prices", str(dearer)]) == 0
    assert "300.00  inf2.xlarge in service: 3 x 100" in capsys.readouterr().out


def test_the_arithmetic_source_and_date_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "prime-day"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "16,666.7 plans a second",
        "1 - 20 ln(100) / (300 - 60)",
        "a million plans",
        "not measured on hardware",
    ):
        assert words in printed
    assert Prices.from_json().date in printed


def test_a_broken_price_file_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prices.json").write_text("{}", encoding="utf-8")
    assert main(["cost", "dev", "--prices", str(tmp_path / "prices.json")]) == 2
    assert "not a price file" in capsys.readouterr().err


def test_an_unknown_fleet_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere"]) == 2
    assert "Fleets that ship: dev, prime-day" in capsys.readouterr().err
