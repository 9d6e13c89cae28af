"""docs/alarms.md, what Prometheus and Grafana get, and the runbooks cannot go stale unseen."""

from pathlib import Path

import pytest

from infra.fleet import alarm_table
from infra.fleet.alarm_kinds import Alarm, Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.settings import FleetSettings

RUNBOOK = "# x\n\n## Symptom\n\n## First look\n\n## Mitigation\n\n## Follow-up\n"


@pytest.fixture(scope="module")
def alarms() -> tuple[Alarm, ...]:
    return cell_alarms(FleetSettings.from_yaml(alarm_table.SHOWN))


@pytest.fixture
def runbooks(tmp_path: Path, alarms: tuple[Alarm, ...]) -> Path:
    """A folder of runbooks with which nothing is wrong."""
    for alarm in alarms:
        (tmp_path / f"{alarm.runbook}.md").write_text(RUNBOOK)
    return tmp_path


def test_what_the_project_ships_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert alarm_table.main(["--check"]) == 0, capsys.readouterr().err


def test_the_table_shows_everything_that_tells_somebody(alarms: tuple[Alarm, ...]) -> None:
    rows = alarm_table.table(alarms).splitlines()[2:]

    assert len(rows) == sum(alarm.severity is not Severity.PART for alarm in alarms)
    assert all("](runbooks/" in row for row in rows)


def test_nothing_is_wrong_with_whole_runbooks(runbooks: Path, alarms: tuple[Alarm, ...]) -> None:
    assert list(alarm_table.complaints(alarms, runbooks)) == []


def test_an_alarm_without_a_runbook_is_named(runbooks: Path, alarms: tuple[Alarm, ...]) -> None:
    (runbooks / "p99.md").unlink()

    (complaint,) = alarm_table.complaints(alarms, runbooks)
    assert "p99.md does not exist" in complaint


def test_a_runbook_without_an_alarm_is_named(runbooks: Path, alarms: tuple[Alarm, ...]) -> None:
    (runbooks / "moon-phase.md").write_text(RUNBOOK)

    (complaint,) = alarm_table.complaints(alarms, runbooks)
    assert "moon-phase.md belongs to no alarm" in complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (RUNBOOK.replace("## Mitigation\n", ""), "its parts are Symptom, First look, Follow-up"),
        (RUNBOOK + "See [that](nowhere.md).", "its link to nowhere.md leads nowhere"),
    ],
)
def test_half_a_runbook_is_named(runbooks: Path, alarms: tuple[Alarm, ...], text: str, complaint: str) -> None:
    (runbooks / "page.md").write_text(text)

    assert complaint in " ".join(alarm_table.complaints(alarms, runbooks))


def test_stale_files_fail_the_check_and_the_command_mends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(alarm_table, "DOCS", tmp_path)
    (tmp_path / "alarms.md").write_text("old")

    assert alarm_table.main(["--check"]) == 1
    assert capsys.readouterr().err.count("run `python -m infra.fleet.alarm_table`") == 3
    assert (tmp_path / "alarms.md").read_text() == "old", "a check changes nothing"
    assert alarm_table.main([]) == 0
    assert alarm_table.main(["--check"]) == 0
    assert (tmp_path / "alarms.md").read_text().startswith("# Alarms\n")
