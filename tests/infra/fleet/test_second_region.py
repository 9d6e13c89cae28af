"""A second region is a file of one line, which is like the first but for its own keys."""

from pathlib import Path

import pytest
import yaml

from infra.fleet.settings import FleetFileError, FleetSettings
from tests.infra.fleet.fleets import dev_with

LINE = "{like: mine.yaml, name: mine-eu, region: eu-west-1, availability_zones: [eu-west-1a, eu-west-1b, eu-west-1c]}\n"


def fleet(folder: Path, line: str = LINE) -> FleetSettings:
    (folder / "mine.yaml").write_text(yaml.safe_dump(dev_with({"name": "mine"})), encoding="utf-8")
    (folder / "mine-eu.yaml").write_text(line, encoding="utf-8")
    return FleetSettings.from_yaml(folder / "mine-eu.yaml")


def test_it_is_the_first_fleet_in_another_region(tmp_path: Path) -> None:
    other = fleet(tmp_path)
    first = FleetSettings.from_yaml(tmp_path / "mine.yaml")
    own = ("name", "region", "availability_zones")
    assert (other.name, other.region, other.availability_zones[0]) == ("mine-eu", "eu-west-1", "eu-west-1a")
    assert other.model_dump(exclude=set(own)) == first.model_dump(exclude=set(own))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{like: mine.yaml, region: eu-west-1}", "name: mine.yaml has the same"),
        ("{like: nowhere.yaml, name: b}", "nowhere.yaml: cannot be read"),
        ("{like: mine-eu.yaml, name: b}", "mine-eu.yaml is itself like another"),
        ("{like: [mine.yaml], name: b}", "is no file; name the fleet file"),
        ("{like: mine.yaml, name: b, region: nowhere}", "region: String should match pattern"),
    ],
)
def test_what_it_cannot_be_like_is_refused_in_words(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(FleetFileError) as refused:
        fleet(tmp_path, line)
    assert said in str(refused.value)
