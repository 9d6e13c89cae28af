"""The commands of the runbooks and of event day run as they stand in the pages, against the emulator.

Their queries ask for fields that hosts really write: Neuron's are those of the CloudWatch agent's EMF, labels beside
values, and of neuron-monitor-prometheus.py's labels; the service's own code makes the others. `aws` is the AWS CLI
itself (aws_cli.py); `make` and `peakplan` run in a clone. A reader's values stand where page.md says so. Not run in an
account.
"""

import json
import logging
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings
from service.api.observation import Observer
from service.telemetry.logs import JsonFormatter
from service.telemetry.metrics import EmfCollector, Metrics, Outcome, Reading
from tests.infra.aws_cli import CLI, RECORD, Call, calls_in, lend_aws
from tests.infra.deployment import (
    CDK,
    LARGER,
    Deployment,
    bake,
    deploy,
    fresh_clone,
    operators_environment,
    prepare,
    synthesise,
    type_in,
    with_cdk,
)
from tests.infra.fleet.fleets import dev_with
from tests.infra.moto_server import running_moto

RUNBOOKS, EVENT_DAY = sorted(Path("docs/runbooks").glob("*.md")), Path("docs/event-day.md")
needs_clis = pytest.mark.skipif(
    not (CLI.exists() and CDK.exists()),
    reason="the AWS CLI or the CDK CLI is not installed: peakplan tools install awscli; npm ci",
)
_COMMAND = re.compile(r"(?:^|[\s$(;|])(?:aws [a-z0-9-]+ [a-z0-9-]+|make [a-z-]+|peakplan fleet [a-z-]+)", re.MULTILINE)


def target(block: str) -> str | None:
    """The target of a command of `make` or `peakplan` that stands alone: rollback, fleet cell out."""
    found = re.match(r"(?:make|peakplan) ([a-z-]+(?: [a-z-]+)*)", block)
    return found[1] if found else None


def operations(block: str) -> set[tuple[str, str]]:
    """The services and operations that it asks the AWS CLI for."""
    return set(re.findall(r"(?:^|[\s$(;|])aws ([a-z0-9-]+) ([a-z0-9-]+)", block))


def blocks_of(page: Path) -> list[str]:
    """The lines that are typed together: a block of code, or a command within a sentence.

    Each has a command of `aws`, `make` or `peakplan`; what has neither is typed on a host. Each line of a block that
    has `make` or `peakplan` alone is a block of its own, so that it runs once.
    """
    text, found = page.read_text(encoding="utf-8"), list[str]()
    for fenced, within in re.findall(r"^```\n(.*?)^```|`([^`]+)`", text, re.DOTALL | re.MULTILINE):
        said = fenced or " ".join(within.split())  # a sentence's command may break at any space
        if _COMMAND.search(said) and (fenced or re.match(r"aws |make |peakplan fleet ", said)):
            lines = said.strip().splitlines()
            found += lines if all(line.startswith(("make ", "peakplan ")) for line in lines) else [said]
    return found


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Return a block with a reader's values for the placeholders that docs/runbooks/page.md names."""
    for placeholder, value in values.items():
        text = re.sub(rf"(?<!\w){re.escape(placeholder)}(?!\w)", value, text)
    return text


# The commands that run here, in this order. Every other one that a page names exists, and has tests of its own.
TARGETS = ("fleet cell out", "fleet cell in", "fleet cost", "rollback")
# What the CLI accepts and the emulator does not know.
UNANSWERED = {
    ("autoscaling", "describe-instance-refreshes"),
    ("cloudtrail", "lookup-events"),
    ("elasticache", "describe-events"),
    ("elasticache", "test-failover"),
    ("ssm", "start-session"),
    ("synthetics", "get-canary-runs"),
    ("synthetics", "start-canary"),
    ("synthetics", "stop-canary"),
}
# What a stack refuses while nothing is under way.
AT_REST = {("cloudformation", "cancel-update-stack"): "CancelUpdateStack cannot be called from current stack status"}


@dataclass(frozen=True)
class Shift:
    """Somebody on call: a clone, the programs, a fleet that serves, and the record of what was asked."""

    deployment: Deployment
    clone: Path
    environment: dict[str, str]

    def values(self, page: Path) -> dict[str, str]:
        """What this reader puts in the place of what a page writes."""
        file = str(self.deployment.file)
        names = {"FLEET=prime-day": f"FLEET={file if page == EVENT_DAY else 'dev'}", "FILE=prime-day": f"FILE={file}"}
        return names | {"prime-day": "dev", "cell-6": "cell-2", "i-...": self.deployment.instances()[-1], "N": "4"}

    def variables(self) -> str:
        """The lines that a reader types first."""
        page = (self.clone / "docs/runbooks/page.md").read_text(encoding="utf-8")
        lines = page.partition("```\n")[2].partition("\n\n")[0]
        assert [line.startswith(("export ", "  ")) for line in lines.splitlines()] == [True] * 5
        return filled_in(lines, self.values(RUNBOOKS[0]))

    def type(self, page: Path, text: str) -> tuple[subprocess.CompletedProcess[str], list[Call]]:
        """Type a page's text after page.md's variables."""
        record = Path(self.environment[RECORD])
        record.unlink(missing_ok=True)
        done = type_in(
            self.clone, self.environment, f"{self.variables()}\nset +e\n{filled_in(text, self.values(page))}"
        )
        return done, calls_in(record)


@contextmanager
def standing(folder: Path) -> Iterator[Deployment]:
    """A fleet of two cells, at the second of two releases, in an account of its own."""
    file, assembly = folder / "dev.yaml", folder / "assembly"
    file.write_text(yaml.safe_dump(dev_with(LARGER)), encoding="utf-8")
    with running_moto(folder / "server.log") as server:
        prepare(server)
        synthesise(server, str(file), assembly)
        for commit in ("0000aaaa", "0000bbbb"):
            bake(server, commit)
            done = deploy(server, str(file), assembly=assembly)
            assert done.returncode == 0, done.stdout + done.stderr
        yield Deployment(server, FleetSettings.from_yaml(file), file)


@pytest.fixture(scope="module")
def shift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shift]:
    folder = tmp_path_factory.mktemp("shift")
    clone, programs = with_cdk(fresh_clone(folder)), lend_aws(folder / "bin")
    with standing(folder) as deployment:
        environment = operators_environment(deployment.server, programs, clone / ".venv" / "bin") | {
            RECORD: str(folder / "calls")
        }
        environment["AWS_MAX_ATTEMPTS"] = "1"  # what the emulator does not know it will not learn
        yield Shift(deployment, clone, environment)


def well(call: Call) -> bool:
    """Whether the CLI took the call and the account answered it, as it does in this state."""
    refusal = AT_REST.get(call.operation)
    return call.code == 0 if refusal is None else refusal in call.said


@pytest.fixture
def as_before(shift: Shift) -> Iterator[None]:
    """Give the groups their sizes back: what a page adds to a cell is what `cell-out` refuses to move."""
    sizes = ("AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity")
    before = [{size: group[size] for size in sizes} for group in shift.deployment.groups().values()]
    yield
    for group in before:
        shift.deployment.client("autoscaling").update_auto_scaling_group(**group)


@pytest.mark.slow  # a fleet of its own, and some sixty starts of the CLI
@needs_clis
@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("page", [*RUNBOOKS, EVENT_DAY], ids=lambda page: page.stem)
def test_every_aws_command_runs_as_it_stands_in_the_page(page: Path, shift: Shift) -> None:
    blocks = [block for block in blocks_of(page) if operations(block)]
    done, calls = shift.type(page, "\n".join(blocks))
    said = done.stdout + done.stderr
    assert [(call.words, call.said) for call in calls if not well(call)] == []
    assert set().union(*map(operations, blocks)) <= {call.operation for call in calls}, said
    assert {call.operation for call in calls if not call.answered} <= UNANSWERED
    assert "unbound variable" not in said
    assert "command not found" not in said


@pytest.mark.slow
@needs_clis
def test_the_commands_move_a_cell_and_brings_the_release_before(shift: Shift) -> None:
    """Each command of the fleet once, as a page writes it."""
    named = {target(block): (page, block) for page in [EVENT_DAY, *RUNBOOKS] for block in blocks_of(page)}
    for page, block in (named[wanted] for wanted in TARGETS):
        done, _ = shift.type(page, block)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


def test_on_call_finds_every_reason_of_a_plan_by_the_reader() -> None:
    runbook = Path("docs/runbooks/degraded-share.md").read_text(encoding="utf-8")

    told = re.findall(r"^\| `(\w+)` \|", runbook, re.MULTILINE)
    assert sorted(told) == sorted(metrics().metric("Fallbacks").values["Reason"])


SYSTEM_FIELDS = {"@logStream", "@timestamp", "@message", "@log", "@ingestionTime"}
LANGUAGE = set(
    "filter stats sort limit fields by as desc asc and or not like in ispresent sum pct count avg max min".split()
)
# Labels of every metric of neuron-monitor-prometheus.py, and of its hardware counters.
NEURON_LABELS = set("instance_id instance_type availability_zone runtime_tag neuroncore neuron_device_index".split())


def queries(text: str) -> list[str]:
    """The Logs Insights queries of a runbook."""
    return re.findall(r"--query-string\s*\\?\s*'([^']*)'", text)


def filter_fields(text: str) -> set[str]:
    """The fields of its JSON filter patterns."""
    return {
        field
        for pattern in re.findall(r"--filter-pattern '\{(.*?)\}'", text)
        for field in re.findall(r"\$\.(\w+)", pattern)
    }


def fields(query: str) -> set[str]:
    """The names in a query that are not the language's own, a value, or a name that the query itself gives."""
    bare = re.sub(r'"[^"]*"|/[^/]*/', " ", query)
    given = set(re.findall(r"\bas (\w+)", bare))
    return set(re.findall(r"@?[A-Za-z_]\w*", bare)) - LANGUAGE - given


@cache
def emf_events() -> tuple[dict[str, Any], ...]:
    """What the service writes of two requests: values that are counted are numbers, all others lists."""
    collecting = Metrics(
        lambda: Reading(totals={"CacheHits": 1, "ReplicaRestarts": 1}, replicas=1, model_version="m"),
        300,
        EmfCollector({"Fleet": "dev", "Cell": "cell-1", "Group": "inf2"}),
    )
    for milliseconds in (10.0, 400.0):
        collecting.arrived()
        collecting.planned(
            Outcome(source="model", milliseconds=milliseconds, degraded=True, queue_milliseconds=milliseconds)
        )
    collecting.shed()
    return tuple(json.loads(line) for line in collecting.lines())


@cache
def log_events() -> tuple[dict[str, Any], ...]:
    """What the service logs of a request, and of an error."""
    handler, records = logging.Handler(), list[logging.LogRecord]()
    handler.emit = records.append  # type: ignore[method-assign]
    api = logging.getLogger("service.api")
    level = api.level
    api.addHandler(handler)
    api.setLevel(logging.INFO)
    try:
        state = {"request_id": "r", "route": "/plan", "log": {}}
        scope = {"type": "http", "method": "POST", "path": "/plan", "state": state}
        Observer(Metrics(Reading, 300)).ended(scope, 200, 0.05)
        api.error("a request failed", extra={"exception": "routes.py:1 plan > ValueError"})
    finally:
        api.removeHandler(handler)
        api.setLevel(level)
    return tuple(json.loads(JsonFormatter().format(record)) for record in records)


def written() -> set[str]:
    """Every field that holds one value queries can compute with: of a list, Logs Insights makes Latency.0 and so on."""
    own = {
        name
        for event in (*emf_events(), *log_events())
        for name, value in event.items()
        if not isinstance(value, list | dict)
    }
    neuron = {name: metric for name, metric in metrics().metrics.items() if metric.source == "neuron"}
    labels = {label for metric in neuron.values() for label in metric.values}
    return own | set(neuron) | labels | NEURON_LABELS | SYSTEM_FIELDS


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_field_of_every_query_is_written_and_every_text_that_it_compares_with_occurs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for query in queries(text):
        assert fields(query) <= written(), query
    assert filter_fields(text) <= {name for event in log_events() for name in event}
    values: dict[str, set[str]] = {}
    for event in log_events():
        for name, value in event.items():
            values.setdefault(name, set()).add(str(value))
    for metric in metrics().metrics.values():
        for name, known in metric.values.items():
            values.setdefault(name, set()).update(known)
    compared = [pair for query in queries(text) for pair in re.findall(r'(\w+) = "([^"]*)"', query)]
    for name, value in compared + re.findall(r'\$\.(\w+) = "([^"]*)"', text):
        assert value in values[name], f"{name} is never {value!r}"


def test_queries_are_found_and_a_dreamt_field_is_seen() -> None:
    assert sum(len(queries(path.read_text(encoding="utf-8"))) for path in RUNBOOKS) >= 3
    assert fields(
        'filter Latency > 0 and kind = "x y" | stats pct(Latency, 99) as p99 by @logStream | sort p99 desc'
    ) == {"Latency", "kind", "@logStream"}
    assert "Latency" not in written(), "a list"
    assert {"SloBad", "milliseconds", "event", "@logStream"} <= written()


def test_the_properties_of_the_list_are_those_that_the_service_writes() -> None:
    known = set(metrics().metrics) | set(metrics().dimensions) | {"_aws"}
    assert {name for event in emf_events() for name in event} - known == set(metrics().properties)
