"""Checks of the documents: their links lead somewhere, and what they say of the code is so."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

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
