"""Every command whose result is printed prints it as one line of JSON, too."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile

import click
import pytest
from click.testing import CliRunner
from peakplan_client.progress import progress_on_stderr

from infra.operations.command import Told, fleet_parser, operate
from peakplan.__main__ import main

# Those that have no result of their own, and why.
EXCUSED = {
    "serve": "serves until it is stopped; its log is lines of JSON",
    "triton": "serves until it is stopped",
    "completion": "a shell reads what it prints",
    "fleet synth": "the CDK's command: its result is cdk.out",
    "fleet diff": "the CDK's command, in its own words",
    "fleet checkov": "checkov's command, in its own words",
    "rehearse figures": "its result is docs/figures, which is JSON, and the documents that show it",
    "rehearse live": "its result is a file of docs/figures",
}
# Groups whose commands write files of the checkout: figures, which are JSON, and what is generated.
WRITERS = ("bench", "tools")


def commands(group: click.Group = main, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def help_of(name: str, command: click.Command, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a command's own help, of the module that it becomes where it is one; no process is started."""
    if any("--json" in parameter.opts for parameter in command.params):
        return "--json"
    became: list[list[str]] = []
    monkeypatch.setattr("peakplan.running.execute", lambda line, **_: became.append(list(line)))
    monkeypatch.setattr("peakplan.fleet_commands.execute", lambda line, **_: became.append(list(line)))
    fleet = ["dev"] if name.startswith("fleet") and command.params else ["--help"]
    done = CliRunner().invoke(main, [*name.split(), *fleet], prog_name="peakplan")
    assert done.exit_code == 0, done.output
    line = became[0]
    module, rest = line[line.index("-m") + 1], line[line.index("-m") + 2 :]
    words = list(takewhile(lambda word: word not in ("dev", "--help"), rest))
    return printed(module, [*words, "--help"], monkeypatch)


def printed(module: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [module, *words])
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    return said.getvalue()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy, of what other tests imported
@pytest.mark.parametrize(
    "name", [name for name, _ in commands() if name not in EXCUSED and name.split()[0] not in WRITERS]
)
def test_every_command_takes_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.getcwd())  # the fleet's commands go to the checkout
    assert "--json" in help_of(name, dict(commands())[name], monkeypatch)


def test_nothing_is_excused_that_is_not_there() -> None:
    assert EXCUSED.keys() <= dict(commands()).keys()


def test_progress_leaves_the_standard_output_to_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(True):
        print("epoch 1/3")
        subprocess.run([sys.executable, "-c", "print('of a process')"], check=True)
    print(json.dumps({"model": "mine"}))
    said = capfd.readouterr()
    assert (json.loads(said.out), said.err) == ({"model": "mine"}, "epoch 1/3\nof a process\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_operator_s_command_says_what_it_came_to(capfd: pytest.CaptureFixture[str], as_json: bool) -> None:
    given = fleet_parser("moves").parse_args(["dev", *(["--json"] if as_json else [])])

    def act(*_: object) -> Told:
        print("cell-1 goes to ami-1")
        return Told("1 cell went back", {"moved": {"cell-1": "ami-1"}}, code=1)

    assert operate(given, act, {}) == 1
    said = capfd.readouterr()
    if as_json:
        assert json.loads(said.out) == {"fleet": "dev", "moved": {"cell-1": "ami-1"}}
        assert said.err == "cell-1 goes to ami-1\n"
    else:
        assert said.out == "cell-1 goes to ami-1\n1 cell went back\n"
