"""The sample shop's mapping is what `peakplan shop learn` learns of the sample catalogue."""

import json
from dataclasses import asdict
from pathlib import Path

from peakplan_client import catalogue
from peakplan_client.shop import MAPPING

from peakplan.shop.run import Task, learn

NAME = "sample-products.jsonl"
COMMAND = f"peakplan shop learn {NAME} --currency USD"


def test_it_is_what_the_command_learns(tmp_path: Path) -> None:
    source = tmp_path / NAME
    source.write_text("".join(json.dumps(asdict(each)) + "\n" for each in catalogue.read()), encoding="utf-8")
    task = Task(source, tmp_path / "shop", {}, currency="USD", quiet=True, command=COMMAND)
    learnt = (learn(task).output / "mapping.yaml").read_text(encoding="utf-8")
    assert MAPPING.read_text(encoding="utf-8") == learnt, f"take the mapping of `{COMMAND}`"
