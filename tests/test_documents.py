"""What documents say is so: links lead somewhere, code can be typed, commands exist, claims about the code hold."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from peakplan.__main__ import main
from rehearsal.bench.question_cost import GATEWAY_MS, OPERATIONS, OPERATIONS_OF_WEIGHT
from service.planner.question import MAX_HISTORY_TOKENS, MAX_QUESTION_TOKENS

REPOSITORY = Path(__file__).parents[1]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[str]:
    done = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:  # an archive of the sources
        return [str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("docs/**/*.md")] + ["README.md"]
    return done.stdout.split()


def anchors(page: Path) -> set[str]:
    """Return the anchors that code hosts make of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_relative_links_lead_somewhere(page: str) -> None:
    path = REPOSITORY / page
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{page} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page} links to {link}, and there is no such heading"


def test_every_decision_is_in_the_index() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for decision in folder.glob("0*.md"):
        assert f"({decision.name})" in index, f"docs/decisions/README.md does not list {decision.name}"


def test_the_walks_of_contributing_lead_to_code_that_is_there() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text[text.index("## Five walks") : text.index("What vLLM calls")]
    rows = re.findall(r"`(\w+)[\w.()]*`(?: and `(\w+)`)? in `(\w+/[\w/]+\.py)`", walks)
    assert len(rows) == walks.count("\n| ") - 1  # the first line of a table names its columns
    for *names, file in rows:
        code = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in filter(None, names):
            assert re.search(rf"^(def|class) {name}\b", code, re.MULTILINE), f"{file} has no {name}"


def test_the_arrows_of_contributing_are_those_that_lint_imports_holds() -> None:
    text = " ".join((REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (service,) = [each for each in contracts["contracts"] if each.get("containers") == ["service"]]
    first, last = service["layers"].index("api"), service["layers"].index("settings")
    arrows = " -> ".join(service["layers"][first : last + 1])
    assert f"`{arrows}`" in text
    assert service["name"] == f"The service: {arrows}"


def test_security_tells_the_budget_that_is_tested() -> None:
    """There were two: 500,000 operations here, and 750,000 in what was fuzzed."""
    said = " ".join(Path("SECURITY.md").read_text(encoding="utf-8").split())
    assert f"more than {OPERATIONS:,} operations of the interpreter, nor" in said
    assert f"for {OPERATIONS_OF_WEIGHT:,} operations each" in said
    assert f"nor the whole gateway more than {GATEWAY_MS:g} ms" in said
    assert f"{MAX_QUESTION_TOKENS} tokens of the newest utterance and {MAX_HISTORY_TOKENS} of those before it" in said
    figure = json.loads(Path("docs/figures/question_cost.json").read_text(encoding="utf-8"))
    for machine, one in figure["machines"].items():
        assert one["budget"]["operations"] == OPERATIONS, machine
        assert one["gateway"]["ms"] <= GATEWAY_MS, machine
        assert one["operations"] <= OPERATIONS, machine


_BLOCK = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
# Languages that nobody reads here, and why.
EXCUSED = {
    "mermaid": "drawn in a browser by tests/docs",
    "ts": "compiled by tests/clients/test_typescript.py",
    "js": "held against Python by tests/clients/test_experiments.py",
    "html": "opened in a browser by tests/docs",
    "csv": "learnt by tests/docs",
    "text": "output, which tests/docs compares",
    "sql": "what tests/clients/test_tables.py makes its table with",
}
_NO_COMMANDS = {"CONTRIBUTING.md": "the tree of folders"}
_PROGRAMS = re.compile(r"^(?:[A-Z_]+=\S* )*(?:\.venv/bin/)?(make|peakplan|python -m) (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a document."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in pages():
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            language = match[1].split(" ", 1)[0].strip()
            yield Block(page, text[: match.start()].count("\n") + 1, language, match[2])


def commands(text: str) -> str:
    """Return what a reader types of a block: with a prompt, only its lines, and never `...` for something of theirs."""
    if re.search(r"^\$ ", text, re.MULTILINE):
        typed, goes_on = [], False
        for line in text.splitlines():
            if line.startswith("$ ") or goes_on:
                typed.append(line.removeprefix("$ "))
                goes_on = line.endswith("\\")
        return "\n".join(typed)
    return text


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@cache
def options() -> str:
    """Return the sources that define options."""
    folders = (
        "peakplan",
        "service",
        "training",
        "rehearsal",
        "infra",
        "clients",
        "tests",
    )
    files = (
        path for folder in folders for path in (REPOSITORY / folder).rglob("*.py") if "node_modules" not in path.parts
    )
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def unknown(program: str, rest: str) -> Iterator[str]:
    """Yield what of a command is not there: targets, subcommands, modules, options."""
    words = shlex.split(re.split(r" #| && ", rest)[0].rstrip("\\ ;&|)"), comments=True)
    if program == "make":
        named = [word for word in words if re.fullmatch(r"[a-z-]+", word)]
        yield from (f"make {word}" for word in named if word not in targets())
        return
    if program == "python -m":
        module = words[0].replace(".", "/")
        ours = (REPOSITORY / module.partition("/")[0]).is_dir() or module.startswith("peakplan_client")
        places = (REPOSITORY / f"{root}{module}{end}" for root in ("", "clients/") for end in (".py", "/__main__.py"))
        if ours and not any(place.is_file() for place in places):
            yield words[0]
    else:
        group: click.Command = main
        for word in words:
            if not isinstance(group, click.Group) or word.startswith("-"):
                break
            if (found := group.commands.get(word)) is None:
                yield f"peakplan {word}"
                break
            group = found
    for word in words:
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]+", name) and name not in ("--help",) and f'"{name}"' not in options():
            yield f"{program} … {name}"


def check_shell(block: Block) -> None:
    typed = commands(block.text)
    done = subprocess.run(["bash", "-n"], input=typed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block}: {done.stderr}"
    joined = re.sub(r"\\\n\s*", "", typed)
    replaced = re.findall(r'"[^"\n]*\$\d[^"\n]*"', re.sub(r"'[^'\n]*'| #.*", "", joined))
    assert replaced == [], f"{block}: a shell reads $1 as its first argument, which is empty: {replaced}"
    missing = [each for program, rest in _PROGRAMS.findall(joined) for each in unknown(program, rest)]
    assert missing == [], block


def check(block: Block) -> None:
    """Read a block as its language says. Raises whatever its reader does."""
    if block.language == "python":
        compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "jsonl":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language in ("", "sh", "bash"):
        check_shell(block)
    else:
        assert block.language in EXCUSED, f"{block}: nothing reads {block.language!r}"


@pytest.mark.parametrize("page", sorted({block.page for block in blocks()}))
def test_every_block_can_be_typed(page: str) -> None:
    wrong = []
    for block in blocks():
        if block.page == page and not (block.language == "" and page in _NO_COMMANDS):
            try:
                check(block)
            except (AssertionError, SyntaxError, ValueError, yaml.YAMLError) as error:
                wrong.append(f"{block}: {error}")
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in pages() if page != "CHANGELOG.md"])  # which tells what went
def test_every_command_in_a_sentence_exists(page: str) -> None:
    text = re.sub(r"```.*?```", "", (REPOSITORY / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    said = (" ".join(each.split()) for each in re.findall(r"`([^`]+)`", text))
    typed = (found for each in said for found in _PROGRAMS.findall(each.partition(", ")[0]))
    assert [each for program, rest in typed for each in unknown(program, re.sub("[\"'<>…]", "", rest))] == []


def test_every_target_that_the_sources_name_exists() -> None:
    """Messages, comments and tests say `make X` of a target; what comes after a stop or a quote is no command."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    wrong = []
    for name in files.stdout.split("\0"):
        if name.endswith((".py", ".sh", ".yaml", ".yml", ".toml", ".json")) or "/" not in name.removeprefix(".ci/"):
            path = REPOSITORY / name
            text = path.read_text(encoding="utf-8") if path.is_file() and path.suffix != ".png" else ""
            named = re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z]+(?:-[a-z]+)*)", text)
            wrong += [f"{name}: make {each}" for each in named if each not in targets()]
    assert [each for each in wrong if not each.startswith("CHANGELOG.md")] == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("", "make sevre"),
        ("", "peakplan plna 'red shoes'"),
        ("", "peakplan plan 'red shoes' --no-such-option"),
        ("", "python -m rehearsal.bench.no_such_module"),
        ("", "echo 'open"),
        ("", 'peakplan plan "shoes under $100"'),
        ("cobol", "MOVE A TO B."),
    ],
)
def test_what_is_not_there_is_seen(language: str, text: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(Block("a page", 1, language, text))
