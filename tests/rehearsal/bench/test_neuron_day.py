"""The day's parts over a runtime of the tests' own that keeps NeuronCores for a process, as the driver does."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.bench.neuron_day.__main__ import best, host_settings, lines, model_settings
from rehearsal.bench.neuron_day.day import Day, Graph, Task, graphs, inputs, result_file, run_task, tasks
from service.engines.neuron.packages import PINS
from service.requirement_parts import FILE, lines_of
from tests.ami.programs import Programs
from tests.infra.fleet.fleets import dev_with

ON_HOST = REPOSITORY_ROOT / "rehearsal" / "bench" / "neuron_day" / "on-host.sh"
STAND_IN = Path(__file__).with_name("neuron_stand_in")
TREE, WIDE, BATCH = Graph(), Graph(48), Graph(0, 8)
COMMAND = (sys.executable, "-m", "rehearsal.bench.neuron_day")
# What a host has whose runtime has to lock memory, and whose cores stay taken for some seconds after their process.
DOCKER = """
if [[ $* == *device.py ]]; then
  [[ $* == *memlock* ]] || exit 1
  if [[ -e $0.taken ]]; then rm "$0.taken"; exit 1; fi
  [[ -e $0.asked ]] || touch "$0.asked" "$0.taken"
elif [[ $* == *neuron_day* ]]; then
  while [[ $1 != -m ]]; do shift; done
  exec {python} "$@"
fi
"""
TIMED = {"questions": 150, "finished": 150, "forwards": 3.5, "p50_ms": 9.0}


def timed(mean: float, p99: float, rate: float, **changes: Any) -> dict[str, Any]:
    return TIMED | {"mean_ms": mean, "p99_ms": p99, "plans_a_second_a_core": rate} | changes


PLANS = {
    TREE.name: {"autoregressive": timed(14.5, 41, 69), "medusa": timed(9.25, 30.5, 108)},
    WIDE.name: {"medusa": timed(8.5, 28, 117)},
    BATCH.name: {"medusa": timed(4.5, 90, 222)},
}
COMPILED = {
    graph.name: {"rows": rows, "sequence_length": length, "context_buckets": [64, 384]}
    for graph, rows, length in ((TREE, 13, 512), (WIDE, 48, 576), (BATCH, 13, 512))
}


def test_most_plans_a_second_a_core_are_deployed_where_the_slowest_leave_room() -> None:
    every = (TREE, WIDE, BATCH)
    assert best(every, PLANS, slo_ms=300) == (BATCH, "medusa")
    assert best(every, PLANS, slo_ms=150) == (WIDE, "medusa"), "90 ms of 150 are too many before the line"
    assert best(every, PLANS, slo_ms=20) == (WIDE, "medusa"), "none leaves room: the quickest"
    assert best((TREE,), {TREE.name: {"medusa": timed(9, 30, 99, finished=149)}}, 300) is None, (
        "a plan was not finished"
    )
    assert best(every, {TREE.name: {"failed": "nrt_init"}}, 300) is None


@pytest.mark.parametrize("graph", [TREE, WIDE, BATCH], ids=["the tree", "more rows", "a batch"])
def test_a_fleet_file_takes_what_was_measured(graph: Graph) -> None:
    found = {"compile": COMPILED, "plans": PLANS}
    advised = yaml.safe_load(lines(model_settings(found, graph, "medusa", "measured: peakplan bench neuron-day")))

    whole = yaml.safe_load((FLEETS / "dev.yaml").read_text(encoding="utf-8"))
    model = FleetSettings.model_validate(whole | {"model": whole["model"] | advised}).model
    assert (model.batch_size, model.speculation_length) == (graph.batch, COMPILED[graph.name]["rows"])
    assert (model.sequence_length, model.context_buckets) == (COMPILED[graph.name]["sequence_length"], (64, 384))
    assert model.service_time.mean_ms == PLANS[graph.name]["medusa"]["mean_ms"]
    assert model.service_time.is_measured


def test_chains_are_advised_as_what_they_are() -> None:
    chain = replace(TREE, kind="chain", layout=True)
    assert chain.name == f"{TREE.name}-chain-layout"
    found = {"compile": {chain.name: COMPILED[TREE.name]}, "plans": {chain.name: PLANS[TREE.name]}}
    settings = model_settings(found, chain, "medusa", "measured: peakplan bench neuron-day")
    assert (settings["graph"], settings["weight_layout"]) == ("chain", True)


def test_each_graph_has_parts_of_its_own_and_all_are_compiled_first() -> None:
    day = Day(FLEETS, FLEETS, FLEETS, "inf2", 2, 3, graphs(batches=(1, 4)))
    named = [task.name for task in tasks(day)]
    assert named[0] == "machine"
    assert [task.part for task in tasks(day)] == ["machine", *["compile"] * 4, "order", *["steps"] * 4, *["plans"] * 4]
    assert len(set(named)) == len(named)


@pytest.fixture
def day(tmp_path: Path) -> Day:
    (tmp_path / "results").mkdir()
    return Day(tmp_path / "model", tmp_path, tmp_path, "inf2", 2, 3, (TREE,))


def interpreter(tmp_path: Path, does: str) -> list[str]:
    """A Python of the test's own; the result's file is its fifth word."""
    file = tmp_path / "python"
    file.write_text(f'#!/bin/bash\necho "$4" >> {tmp_path}/asked\n{does}\n', encoding="utf-8")
    file.chmod(0o755)
    return [str(file)]


def test_a_result_is_kept_until_what_was_asked_changes(day: Day, tmp_path: Path) -> None:
    python = interpreter(tmp_path, """echo '{"seconds": 3}' > "$5" """)
    again = Day(day.model_dir, day.cache_dir, day.folder, "inf2", 3, 3, (TREE,))
    for each in (day, day, again):
        assert run_task(each, Task("plans", TREE), python) == {"seconds": 3}
    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["plans", "plans"]
    assert json.loads(result_file(again, f"plans:{TREE.name}").read_text(encoding="utf-8"))["of"] == inputs(again)


def test_a_process_that_dies_is_told_with_its_last_words_and_tried_again(day: Day, tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo nrt_init failed; kill -9 $$")
    for _ in range(2):
        failed = run_task(day, Task("steps", TREE), python)["failed"]
        assert "ended with status -9" in failed
        assert failed.endswith("nrt_init failed")
    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["steps", "steps"]


def test_a_part_that_hangs_is_ended_with_all_that_it_started(day: Day, tmp_path: Path) -> None:
    lock = tmp_path / "core"
    python = interpreter(tmp_path, f"exec 9>{lock}; flock 9; sleep 600 & sleep 600")
    failed = run_task(day, Task("steps", TREE, limit=0.5), python)["failed"]
    assert "ended after 0 s" in failed
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its child held it, too


_ONLY = """
import sys, importlib.metadata as metadata
allowed = set(sys.argv[2].split(","))
known = metadata.packages_distributions()
def names(package): return {name.lower().replace("_", "-") for name in known[package]}
class Refusing:
    def find_spec(self, name, path, target=None):
        if name in known and not names(name) & allowed:
            raise ModuleNotFoundError(f"{name} is not in that image")
sys.meta_path.insert(0, Refusing())
importlib = __import__("importlib"); importlib.import_module(sys.argv[1])
"""


def packages(part: str) -> set[str]:
    lines = lines_of(part, REPOSITORY_ROOT / FILE)
    return {line.partition("==")[0].lower() for line in lines if "==" in line}


@pytest.mark.parametrize(
    ("module", "has"),
    [
        # What the SDK's container has of itself (its pins, read in aws-neuron/deep-learning-containers).
        (
            "rehearsal.bench.neuron_day.parts",
            packages("replica") | {"torch", "numpy", "safetensors", "tokenizers"},
        ),
        ("rehearsal.bench.neuron_day.__main__", packages("triton")),
        ("service.__main__", packages("triton")),  # the gateway itself, which has no torch and no numpy there
    ],
)
def test_each_python_of_the_image_has_what_it_imports(module: str, has: set[str]) -> None:
    torch_needs = {"filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "setuptools"}
    allowed = ",".join(has | (torch_needs if "torch" in has else set()))
    done = subprocess.run(
        [sys.executable, "-c", _ONLY, module, allowed], cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def device(tmp_path: Path) -> dict[str, str]:
    """An environment whose model's Python, and no other, has a Neuron SDK and a chip of two cores."""
    sdk, cores = tmp_path / "sdk", tmp_path / "cores"
    cores.mkdir()
    for name, pin in PINS.items():
        described = sdk / f"{name.replace('-', '_')}-{pin}0.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {pin}0\n", encoding="utf-8")
    paths = f"{STAND_IN}:{sdk}:{REPOSITORY_ROOT}"
    python = tmp_path / "replica-python"
    python.write_text(
        f'#!/bin/bash\necho "$*" >> {tmp_path}/asked\nPYTHONPATH=$PYTHONPATH:{paths} exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    return {"PEAKPLAN_REPLICA_PYTHON": str(python), "STAND_IN_CORES": str(cores)}


def neuron_day(
    device: dict[str, str], model: Path, folder: Path, *options: str, command: tuple[str, ...] = COMMAND
) -> subprocess.CompletedProcess[str]:
    words = [*command, "--model", str(model), "--folder", str(folder), "--questions", "2", "--steps", "3"]
    return subprocess.run(
        [*words, "--output", str(folder / "day"), "--rows", "0", "--batches", "1", "2", *options],
        env=os.environ | device, cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def asked(folder: Path) -> Iterator[str]:
    """What the device's Python was started for, replicas aside."""
    for line in (folder / "asked").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "rehearsal.bench.neuron_day.parts" in words:
            yield words[3]


@pytest.mark.slow  # seven processes that load torch, and the service
def test_the_day_comes_to_its_end_and_goes_on_where_it_was_broken_off(
    device: dict[str, str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    done = neuron_day(device, tiny_model_dir, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "day").read_text(encoding="utf-8"))
    pair = {"tree-rows-batch-1-core-1", "tree-rows-batch-2-core-1"}
    assert [name for name in found if name not in ("command", "chip")] == [
        "machine", "compile", "order", "steps", "plans", "triton", "boot", "deploy",
    ]  # fmt: skip
    assert set(found["compile"]) == set(found["steps"]) == set(found["plans"]) == pair
    (order,) = found["order"].values()
    assert order["medusa_is_greedy"] == order["questions"] == 2
    assert found["boot"]["first_plan"]["source"] == "model", "the service plans on the cores that the parts have left"
    assert found["triton"] == {"skipped": "there is no Triton here; the service's image has one"}
    assert "To be put into the fleet file" in done.stdout
    assert yaml.safe_load(done.stdout.partition("fleet file:")[2])["model"] == found["deploy"]
    assert list(asked(tmp_path)) == ["machine", "compile", "compile", "order", "steps", "steps", "plans", "plans"]

    (tmp_path / "results" / "inf2-plans-tree-rows-batch-2-core-1.json").unlink()
    again = neuron_day(device, tiny_model_dir, tmp_path)

    assert again.returncode == 0, again.stdout + again.stderr
    assert list(asked(tmp_path))[8:] == ["plans"]


@pytest.mark.slow
def test_a_day_on_which_all_fails_that_may_ends_with_a_plan_and_its_lines(
    device: dict[str, str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "neuron0").touch()
    (tmp_path / "programs").mkdir()
    programs = Programs(tmp_path / "programs")
    programs.add("docker", DOCKER.replace("{python}", sys.executable))
    failing = device | {"STAND_IN_REFUSES": "is_medusa", "STAND_IN_KEEPS": "5", "PEAKPLAN_DEVICES": str(tmp_path)}
    failing["PATH"] = f"{programs.folder}:{os.environ['PATH']}"

    done = neuron_day(failing, tiny_model_dir, tmp_path, "--batches", "1", command=("bash", str(ON_HOST)))

    found = json.loads((tmp_path / "day").read_text(encoding="utf-8"))
    assert "NCC_ITEN404" in found["compile"][TREE.name]["failed"]
    assert "no graph that reads a tree plans here" in done.stdout
    assert "the runtime starts with device_rights: memory" in done.stdout
    assert "the NeuronCores were free only" in done.stdout
    assert found["plans"][f"{TREE.name}-chain"]["waited_seconds"] >= 1
    assert found["boot"]["first_plan"]["source"] == "model"
    advised = yaml.safe_load(done.stdout.partition("To be put into the fleet file:")[2])["model"]
    wanted = {"graph": "chain", "device_rights": "memory", "weight_layout": False, "lost_replica_seconds": 300}
    assert {name: advised[name] for name in wanted} == wanted
    whole = dev_with({"surge.times": 1})
    model = FleetSettings.model_validate(whole | {"model": whole["model"] | advised}).model
    assert (model.graph, model.service_time.is_measured) == ("chain", True)


def test_cores_that_come_late_are_waited_for_twice_as_long_on_hosts() -> None:
    assert host_settings("", 0) == {}
    assert host_settings("aws", 30) == {"device_rights": "aws", "lost_replica_seconds": 300}
    assert host_settings("", 200.2) == {"lost_replica_seconds": 401}


@pytest.mark.slow
def test_cores_that_another_process_holds_are_said_to_be_so(
    device: dict[str, str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    with (Path(device["STAND_IN_CORES"]) / "0").open("a") as core:
        fcntl.flock(core, fcntl.LOCK_EX)
        done = neuron_day(
            device, tiny_model_dir, tmp_path, "--batches", "1", "--boot-seconds", "20", "--cores-seconds", "0"
        )
    found = json.loads((tmp_path / "day").read_text(encoding="utf-8"))
    assert done.returncode == 1
    assert "bytes" in found["compile"][TREE.name], "what needs no core is done all the same"
    assert "NeuronCore(s) not available" in found["steps"][TREE.name]["failed"]
    assert "was not ready" in found["boot"]["failed"]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    (tmp_path / "programs").mkdir()
    found = Programs(tmp_path / "programs")
    found.add("getent", "echo neuron:x:998:")
    return found


def started(programs: Programs, does: str, **environment: object) -> subprocess.CompletedProcess[str]:
    programs.add("docker", does)
    places = {"PEAKPLAN_DEVICES": programs.folder.parent / "dev", "PEAKPLAN_DATA": programs.folder} | environment
    return programs.run("bash", ON_HOST, "--chip", "trn1", "--cores", "1", "2", **places)


def test_one_command_mounts_all_that_the_image_lacks(programs: Programs) -> None:
    done = started(programs, "")
    assert done.returncode == 0, done.stderr
    command = programs.asked()[-1]
    for words in (
        f"--volume {REPOSITORY_ROOT}:/checkout --workdir /checkout --env PYTHONPATH=/checkout:/checkout/clients ",
        f"--device={programs.folder.parent}/dev/neuron0", "--group-add 998", f"--user {os.getuid()}:{os.getgid()}",
        f"--volume {programs.folder}:/data:ro --env PEAKPLAN_DATA=/data",
        "--entrypoint python peakplan:baked -m rehearsal.bench.neuron_day --device-rights none --cores-waited 0 ",
        "--chip trn1 --cores 1 2",
    ):  # fmt: skip
        assert words in command


@pytest.mark.parametrize(
    ("needs", "rights"),
    [
        ("--cap-drop ALL", "none"),
        ("--ulimit memlock=-1:-1", "memory"),
        ("--cap-add SYS_ADMIN --cap-add IPC_LOCK", "aws"),
    ],
)
def test_the_runtime_is_tried_with_more_and_more_rights(programs: Programs, needs: str, rights: str) -> None:
    done = started(programs, f'[[ $* != *device.py || "$*" == *"{needs}"* ]]')
    assert done.returncode == 0, done.stderr
    assert f"the runtime starts with device_rights: {rights}" in done.stdout
    assert f"-m rehearsal.bench.neuron_day --device-rights {rights} " in programs.asked()[-1]


def test_the_image_that_was_built_here_serves_where_none_was_baked(programs: Programs) -> None:
    assert started(programs, "[[ $* != *peakplan:baked* ]]").returncode == 0
    assert " peakplan:latest -m rehearsal.bench.neuron_day" in programs.asked()[-1]


@pytest.mark.parametrize(
    ("does", "environment", "words"),
    [
        ("[[ $1 != image ]]", {}, "build it (docker build --file service/Dockerfile"),
        ("[[ $1 != image ]]", {"PEAKPLAN_IMAGE": "mine:1"}, "no image mine:1"),
        ("[[ $1 == ps ]] && echo 0123; true", {}, "stop it first (sudo systemctl stop peakplan.service)"),
        ("", {"PEAKPLAN_DEVICES": "/nowhere"}, "is the Neuron driver loaded?"),
        ("[[ $* != *device.py ]]", {}, "the runtime does not start with any rights"),
        ("[[ $* != *'command -v g++'* ]]", {}, "build it again with this checkout's service/Dockerfile"),
        (
            'if [[ $* == *device.py ]]; then [[ ! -e "$0.held" ]] && touch "$0.held"; fi',
            {"PEAKPLAN_CORES_SECONDS": 1},
            "for its file, under model: lost_replica_seconds: 1",
        ),
    ],
    ids=[
        "no image",
        "no image of that name",
        "the service holds the cores",
        "no chip",
        "no rights help",
        "no compiler",
        "cores that stay taken",
    ],
)
def test_what_would_fail_later_is_said_first(
    programs: Programs, does: str, environment: dict[str, str], words: str
) -> None:
    done = started(programs, does, **environment)
    assert done.returncode == 2
    assert words in done.stderr
    assert not [line for line in programs.asked() if "rehearsal.bench.neuron_day" in line]


def test_shellcheck_finds_nothing() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, ON_HOST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
