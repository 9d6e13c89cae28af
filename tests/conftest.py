import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.server_process import ServerProcess, serving

# How long an example takes says how busy the machine is; time is measured in rehearsal/bench/.
settings.register_profile("peakplan", deadline=None)
settings.load_profile("peakplan")

_LINES_OF_A_FIRST_TRY = 30
_COMMAND = re.compile(r"(?:apt-get install|pip install|npm ci|make|peakplan (?:tools|fleet|bench)) ?[^`;):]*")
_OPTIONS = re.compile(r" -\S+(?= )")
NOTHING = "another machine, or files that are not in the repository"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run fast tests first, so that their failures show within seconds."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="fail where a test skips for want of what a command brings")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `--whole`, fail where a test was skipped that need not be."""
    skipped = _skipped(session.config)
    if session.config.getoption("whole") and session.exitstatus == 0 and any(map(bringing, skipped)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [reason_of(report) for report in reporter.stats.get("skipped", ())] if reporter else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped and what brings it, and why a test failed that was tried once more.

    The second try may fail for another reason, or pass.
    """
    if reasons := _skipped(terminalreporter.config):
        terminalreporter.write_sep("=", f"{len(reasons)} skipped")
        terminalreporter.write_line("\n".join(table(reasons)))
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_sep("_", f"first try of {report.nodeid}")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-_LINES_OF_A_FIRST_TRY:]))


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a whole module was skipped."""
    _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
    return reason.removeprefix("Skipped: ")


def bringing(reason: str) -> str:
    """Return the commands that a reason names, in one line; "" where it names none."""
    found = dict.fromkeys(match.strip() for match in _COMMAND.findall(reason))
    wanted = [package for command in found if command.startswith("apt") for package in _packages(command)]
    others = [command for command in found if not command.startswith("apt")]
    return " && ".join([*([f"apt-get install {' '.join(dict.fromkeys(wanted))}"] if wanted else []), *others])


def _packages(command: str) -> list[str]:
    return _OPTIONS.sub("", f"{command} ").removeprefix("apt-get install").split()


def table(reasons: Iterable[str]) -> list[str]:
    """Return the lines of the table, most tests first, and one command for all that Debian's packages would bring."""
    rows: dict[str, list[str]] = defaultdict(list)
    for reason in reasons:
        rows[bringing(reason) or NOTHING].append(reason)
    lines = [f"{'tests':>5}  what brings it"]
    for command, needing in sorted(rows.items(), key=lambda row: -len(row[1])):
        lines.append(f"{len(needing):>5}  {command}")
        if command == NOTHING:
            lines += [f"       - {reason}" for reason in sorted(set(needing))]
    debian = [part for command in rows for part in command.split(" && ") if part.startswith("apt")]
    packages = sorted({package for command in debian for package in _packages(command)})
    return [*lines, f"all of Debian's: apt-get install {' '.join(packages)}"] if len(debian) > 1 else lines


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, as the service does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _as_no_conversation() -> None:
    """What one test's conversation had looked up is not the next one's: a request has a context of its own."""
    from service.planner.spelling import LOOKED_UP  # what the fleet's tests alone do without

    LOOKED_UP.set(None)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model folder that loads in an instant; its plans are random and valid."""
    from tests.tiny_model import write_tiny_model  # imports torch, which most tests do without

    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def server(tiny_model_dir: Path) -> Iterator[ServerProcess]:
    """Run the real service over one replica of the tiny model. It is shared: leave it as you found it."""
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1) as server:
        yield server


@pytest.fixture(scope="session")
def service_url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture(scope="session")
def shipped_model() -> Path:
    """Name the shipped model's folder, for what depends on what a plan says; skip where its base cannot be had."""
    from service.settings import Settings
    from service.settings.choices import SHIPPED_MODEL
    from service.weights.base_weights import BaseWeightsError, ensure_base_weights

    try:
        ensure_base_weights(Settings().cache_dir)
    except BaseWeightsError as error:
        pytest.skip(str(error))
    return SHIPPED_MODEL


@pytest.fixture(scope="session")
def planner_url(shipped_model: Path) -> Iterator[str]:
    """Run the real service over the shipped model. It is shared, too."""
    with serving(PEAKPLAN_MODEL_DIR=shipped_model, PEAKPLAN_REPLICAS=1) as server:
        yield server.url
