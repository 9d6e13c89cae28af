"""Tests of the `peakplan` command as a person at a terminal uses it.

Every command whose result is printed prints it as one line of JSON, too.
"""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from peakplan_client.progress import progress_on_stderr

from infra.operations.command import Told, fleet_parser, operate
from peakplan import running
from peakplan.__main__ import main
from peakplan.bench_commands import bench, tools
from peakplan.passing import Passing
from tests.server_process import REPOSITORY, ServerProcess


def peakplan(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peakplan", *words]
    return subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_help_teaches_a_first_session() -> None:
    said = CliRunner().invoke(main, ["--help"], prog_name="peakplan").output
    for words in (
        "peakplan plan 'nike running shoes under $100'",
        "peakplan serve",
        "peakplan completion bash",
        "fleet",
    ):
        assert words in said


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command of a group and of its groups, by what is typed."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


@pytest.mark.parametrize("command", [pytest.param(one, id=name) for name, one in commands(main)])
def test_every_command_has_a_line_of_help(command: click.Command) -> None:
    assert command.get_short_help_str()


def test_the_list_of_commands_fits_a_screen() -> None:
    assert len(CliRunner().invoke(main, ["--help"]).output.splitlines()) <= 50
    assert {"serve", "plan", "shop", "value", "fleet", "train", "bench", "rehearse", "doctor"} < set(main.commands)


def test_a_bench_shows_its_figure_only_if_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr("peakplan.passing.need", lambda *_: None)
    codes = {"rehearsal.bench.question_cost": 1}

    def call(command: list[str], **_: object) -> int:
        ran.append(command[3])
        return codes.get(command[3], 0)

    monkeypatch.setattr(running, "call", call)
    assert CliRunner().invoke(main, ["bench", "costs"]).exit_code == 1
    assert CliRunner().invoke(main, ["bench", "load"]).exit_code == 0
    assert ran == ["rehearsal.bench.question_cost", "rehearsal.load.figures", "rehearsal.tools.readme"]


def test_a_bench_of_another_engine_installs_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr("peakplan.passing.need", lambda *_: None)
    monkeypatch.setattr("peakplan.passing.have", lambda *names: did.extend(names))

    def call(command: list[str], **_: object) -> int:
        did.append(command[3])
        return 0

    monkeypatch.setattr(running, "call", call)
    assert CliRunner().invoke(main, ["bench", "triton"]).exit_code == 0
    assert did == ["triton", "rehearsal.triton", "rehearsal.tools.readme"]


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in ("load", "train", "eval", "export", "import", "compile")),
        *(["fleet", name] for name in ("cost", "drift", "cell")),
        *(["bench", name] for name, one in bench.commands.items() if isinstance(one, Passing) and name != "neuron-day"),
        *(["rehearse", name] for name in ("run", "search", "validate")),
        *(["tools", name] for name, one in tools.commands.items() if isinstance(one, Passing)),
    ],
)
def test_a_delegated_command_is_a_module_that_exists(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    became: list[str] = []
    for module in ("peakplan.__main__", "peakplan.passing"):
        monkeypatch.setattr(f"{module}.need", lambda *_: None)
        monkeypatch.setattr(f"{module}.become", lambda module, *_, **__: became.append(module))
    assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
    (module,) = became
    spec = find_spec(module)
    assert spec is not None
    assert spec.submodule_search_locations is None or find_spec(f"{module}.__main__") is not None


def test_help_and_completion_import_none_of_the_programs() -> None:
    script = "import sys, peakplan.__main__; print({'torch', 'fastapi', 'aws_cdk', 'service'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()"


def test_completion_knows_the_commands() -> None:
    done = peakplan(_PEAKPLAN_COMPLETE="bash_complete", COMP_WORDS="peakplan fleet co", COMP_CWORD="2")
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == ["cost"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("peakplan load --ra", ["plain,--rate"]),
        ("peakplan finetune rows.jsonl --acc", ["plain,--accept-worse"]),
        ("peakplan fleet cost prime-day-", ["plain,prime-day-small"]),
        ("peakplan fleet synth prime-day-", ["plain,prime-day-small"]),
        ("peakplan shop learn prod", ["file,prod"]),
    ],
)
def test_completion_knows_what_a_command_that_becomes_a_module_takes(
    monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    said = CliRunner().invoke(main, [], prog_name="peakplan", env={"_PEAKPLAN_COMPLETE": "bash_complete"}).output
    assert said.splitlines() == completed


def test_a_plan_comes_from_a_running_service(server: ServerProcess) -> None:
    done = peakplan("plan", "red nike running shoes", "--url", server.url, "--deadline-ms", "2000", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["plan"]["queries"]
    assert answer["source"] in ("model", "cache")


def test_a_trace_shows_both_decodings_forward_by_forward(server: ServerProcess) -> None:
    done = peakplan("trace", "red nike running shoes", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert "medusa: " in done.stdout
    assert "greedy: " in done.stdout
    assert "forwards" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--port", "99999"], "Invalid value for '--port': 99999 is not in the range 0<=x<=65535"),
        (["serve", "--replicas", "-1"], "Invalid value for '--replicas': -1 is not in the range x>=0"),
        (["plan", "boots", "--url", "localhost:18500"], "is no address of a service: write it as http://HOST:PORT"),
        (["plan", "boots", "--url", "file:///etc/passwd"], "is no address of a service"),
    ],
)
def test_an_option_that_cannot_be_is_blamed_by_its_own_name(words: list[str], said: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code != 0
    assert said in done.output


def test_a_question_that_is_refused_says_why(server: ServerProcess) -> None:
    done = peakplan("plan", " ", "--url", server.url)
    assert done.returncode == 1
    assert "visible character" in done.stderr


def test_a_file_of_questions_becomes_a_file_of_plans(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('"red shoes"\n\n{"query": "in blue", "history": ["red nike shoes"]}\n', encoding="utf-8")
    done = peakplan("plan", "--file", str(file), "--url", server.url)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["request"] == {"query": "red shoes"}
    assert second["request"]["history"] == ["red nike shoes"]
    assert all(each["answer"]["plan"]["queries"] for each in (first, second))

    file.write_text('"red shoes"\n{"query": " "}\n', encoding="utf-8")
    done = peakplan("plan", "--file", str(file), "--url", server.url, "--deadline-ms", "2000")
    planned, wrong = map(json.loads, done.stdout.splitlines())
    assert planned["request"]["deadline_ms"] == 2000
    assert wrong["problem"]["status"] == 422
    assert (done.returncode, "1 of 2 questions have no plan" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        ('"red shoes"\nred shoes\n', [], "line 2: a question is"),
        ('{"question": "red shoes"}', [], "line 1: a question is"),
        ("\n", [], "has no question"),
        ('"red shoes"', ["red shoes"], "either a QUERY or --file"),
        ('"red shoes"', ["--local"], "does not go with --local"),
        ('"red shoes"', ["--url", "localhost:1"], "names no endpoint"),
        ('"red shoes"', ["--url", "http://127.0.0.1:9"], "1 of 1 questions have no plan"),
    ],
)
def test_a_file_that_cannot_be_planned_says_why(
    content: str, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peakplan.asking._BATCH_SECONDS", 2.1)
    file = tmp_path / "questions.jsonl"
    file.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(main, ["plan", "--file", str(file), *words])
    assert done.exit_code != 0
    assert said in done.output


def test_no_service_is_told_with_what_to_do() -> None:
    done = peakplan("plan", "red shoes", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "peakplan serve" in done.stderr
    assert "--local" in done.stderr
    assert "Traceback" not in done.stderr


def test_local_loads_the_model_for_one_question(tiny_model_dir: Path) -> None:
    done = peakplan("plan", "red nike shoes", "--local", "--json", PEAKPLAN_MODEL_DIR=str(tiny_model_dir))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source"] == "model"


def test_local_says_what_is_wrong_with_the_settings() -> None:
    done = peakplan("plan", "red shoes", "--local", PEAKPLAN_DTYPE="int4")
    assert (done.returncode, "PEAKPLAN_DTYPE=int4" in done.stderr) == (1, True)


def test_serve_becomes_the_service_with_its_options(tiny_model_dir: Path) -> None:
    done = peakplan("serve", "--model", str(tiny_model_dir), "--replicas", "200", HOST="127.0.0.1", PORT="0")
    assert done.returncode == 1
    assert "200 replicas" in done.stderr


def test_a_delegated_command_answers_as_its_module_does() -> None:
    assert peakplan("fleet", "check", "dev").stdout == "fleet dev is sound\n"
    assert peakplan("fleet", "check", "nowhere").returncode == 2
    assert "--rate" in peakplan("load", "--help").stdout


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda _: None)
    result = CliRunner().invoke(main, ["train"])
    assert result.exit_code == 1
    assert "[service,torch,train]'" in result.output


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


def leaves(group: click.Group = main, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
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
    "name", [name for name, _ in leaves() if name not in EXCUSED and name.split()[0] not in WRITERS]
)
def test_every_command_takes_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.getcwd())  # the fleet's leaves go to the checkout
    assert "--json" in help_of(name, dict(leaves())[name], monkeypatch)


def test_nothing_is_excused_that_is_not_there() -> None:
    assert EXCUSED.keys() <= dict(leaves()).keys()


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
