"""The image's units: verified by systemd, and a machine that boots them."""

import contextlib
import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from configparser import RawConfigParser, SectionProxy
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infra.constructs.host import user_data
from tests.ami.programs import AMI
from tests.processes import eventually

UNITS = sorted((AMI / "systemd").iterdir())
# Units of the base image that ours lean on.
OTHERS = ("docker.service", "network-online.target", "sysinit.target", "basic.target", "shutdown.target")


def executables(unit: Path) -> set[str]:
    """The programs that a unit starts."""
    text = unit.read_text(encoding="utf-8")
    return set(re.findall(r"^Exec\w+=[-@:+!]*(/\S+)", text, re.MULTILINE))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with our units and stand-ins for what is beside them."""
    system = tmp_path / "etc/systemd/system"
    system.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(unit, system)
        for program in executables(unit):
            file = tmp_path / program.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("#!/bin/sh\n", encoding="ascii")
            file.chmod(0o755)
    for name in OTHERS:
        service = "[Service]\nExecStart=/bin/true\n" if name.endswith(".service") else ""
        (system / name).write_text(f"[Unit]\nDescription={name}\nDefaultDependencies=no\n{service}", encoding="ascii")
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/true").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "bin/true").chmod(0o755)
    return tmp_path


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)"
)
def test_systemd_finds_nothing_wrong_and_would_find_a_misspelt_line(root: Path) -> None:
    command = ["systemd-analyze", "verify", f"--root={root}", "--recursive-errors=yes", "--man=no", "--generators=no"]
    done = subprocess.run([*command, *(unit.name for unit in UNITS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit = root / "etc/systemd/system/peakplan.service"
    unit.write_text(unit.read_text(encoding="utf-8").replace("ExecStart=", "ExecStrat="), encoding="utf-8")
    done = subprocess.run([*command, "peakplan.service"], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_the_target_starts_every_unit() -> None:
    target = (AMI / "systemd" / "peakplan.target").read_text(encoding="utf-8")
    wanted = {name for line in re.findall(r"^Wants=(.+)$", target, re.MULTILINE) for name in line.split()}
    started_otherwise = {"peakplan.target", "peakplan-logrotate.service"}  # by user data, by its timer
    assert wanted == {unit.name for unit in UNITS} - started_otherwise


def test_every_program_of_ours_is_installed() -> None:
    install = "\n".join(path.read_text(encoding="utf-8") for path in (AMI / "components").glob("*.yaml"))
    ours = {program for unit in UNITS for program in executables(unit) if program.startswith("/usr/local/bin/peakplan")}
    assert ours
    for program in ours:
        assert f" {program}" in install, program


def service_of(unit: Path) -> SectionProxy:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]


def test_systemd_waits_longer_for_the_stop_than_docker_may_take() -> None:
    """If systemd killed a host during its longest drain, the host would drop requests from the balancer."""
    (after,) = re.findall(r"after_drain_seconds=(\d+)", (AMI / "host" / "serve.sh").read_text(encoding="utf-8"))
    longest_drain = 300  # infra/fleet/settings.py: drain_seconds
    assert int(service_of(AMI / "systemd/peakplan.service")["TimeoutStopSec"]) > longest_drain + int(after)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name)
def test_every_service_is_kept_from_what_it_does_not_need(unit: Path) -> None:
    service = service_of(unit)
    assert [service.get(name) for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp")] == ["yes"] * 3
    assert service.get("ProtectSystem") in ("strict", "full")


SYSTEMD = Path("/usr/lib/systemd/system")
# Of the machine's own units only what a boot and a halt need; the rest of them is not under test.
TARGETS = "basic sysinit multi-user halt shutdown umount final network-online timers slices".split()
METADATA = "127.0.0.1:1338"

# The metadata service, and the planner: each says what it is asked for by the last word of a path.
ANSWERS = """
    import http.server, json, pathlib, sys
    KNOWN = {"instance-id": "i-1", "region": "us-east-1", "readyz": "ready", "plan": json.dumps({"source": "model"})}
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_PUT(self): self.say("token")
        def do_GET(self):
            self.say(KNOWN.get(self.path.rpartition("/")[2]) or pathlib.Path("/opt/test/target").read_text())
        do_POST = do_GET
        def say(self, text):
            self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
            self.wfile.write(text.encode())
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""
DOCKER = """
    case $1 in
      run) echo $$ > /run/docker-peakplan; exec python3 /opt/test/answers.py 8080 ;;
      stop) kill "$(cat /run/docker-peakplan)" ;;
    esac
"""
STAND_INS = {
    "docker.service": "[Service]\nExecStart=/usr/bin/sleep infinity\n",
    "metadata.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=python3 /opt/test/answers.py 1338\n",
    # As cloud-init does it: user data runs on an instance's first boot, after the machine's own units.
    "cloud-final.service": """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'test -e /var/lib/cloud/sem || { touch /var/lib/cloud/sem; exec /bin/bash /opt/test/user-data; }'
""",
}


def missing() -> str:
    """Why no machine can boot here, and what to do; "" when one can."""
    wanted = [name for name in ("podman", "runc") if shutil.which(name) is None]
    wanted += [path for path in ("/lib/systemd/systemd", "/usr/bin/python3") if not Path(path).exists()]
    if wanted:
        return f"needs {', '.join(wanted)} (Debian: apt-get install podman runc systemd python3)"
    return "" if os.geteuid() == 0 else "systemd in a container needs root"


@dataclass(frozen=True)
class Machine:
    """An EC2 instance's disk in `folder`; `target` is what Auto Scaling wants of it."""

    folder: Path

    def target(self, state: str) -> None:
        """What the instance metadata service says under autoscaling/target-lifecycle-state."""
        (self.folder / "root/opt/test/target").write_text(state, encoding="ascii")

    def asked(self) -> list[str]:
        """The lifecycle hooks that were told to continue, in order."""
        log = self.folder / "root/opt/test/asked"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [line.split("--lifecycle-hook-name ")[1].split()[0] for line in lines]

    def comes_to_ask(self, *hooks: str) -> None:
        """Wait until exactly these hooks were told to continue."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: len(self.asked()) >= len(hooks), "")
        assert self.asked() == list(hooks), self.units()

    def units(self) -> str:
        """The units' states, for a failure's message."""
        return self._podman("exec", "machine", "systemctl", "--no-pager", "--all", "list-units", "peakplan*").stdout

    def boots(self) -> None:
        """Wait until systemd has nothing left to start: what is inactive then was not started at all."""
        state = partial(self._podman, "exec", "machine", "systemctl", "is-system-running")
        eventually(lambda: state().stdout.strip() in {"running", "degraded"}, "the machine does not come up")

    def state(self, unit: str) -> str:
        """What systemd says of a unit: active, inactive ..."""
        return self._podman("exec", "machine", "systemctl", "is-active", unit).stdout.strip()

    @contextmanager
    def running(self) -> Iterator[None]:
        """From the start to the stop of the instance; what it wrote stays."""
        root = self.folder / "root"
        done = self._podman(
            *("run", "--detach", "--name", "machine", "--network", "none", "--systemd=always", "--log-driver", "none"),
            *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"),  # more is not ours to give in a container
            *("--volume", "/usr:/usr:ro", "--volume", f"{self.folder}/programs:/usr/local/bin:ro"),
            *("--volume", f"{self.folder}/no-units:{SYSTEMD}:ro", "--volume", f"{self.folder}/neuron0:/dev/neuron0"),
            *("--rootfs", str(root), "/lib/systemd/systemd"),
        )
        assert done.returncode == 0, done.stderr
        try:
            yield
        finally:
            self._podman("stop", "--time", "20", "machine")  # as EC2 does: an orderly shutdown, then the power
            self._podman("rm", "--force", "--time", "0", "machine")
            # Its monitor cleans up behind podman's back, in a process that opens the store once more.
            eventually(lambda: not self._processes(), f"podman still works in {self.folder}")

    def _processes(self) -> list[str]:
        """The command lines of all processes that name this machine's folder."""
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line for line in found if str(self.folder) in line]

    def _podman(self, *words: str) -> subprocess.CompletedProcess[str]:
        # The machine's disk is a plain folder; podman's usual driver would mount its own beside it, and leave it so.
        store = ("--storage-driver", "vfs", "--root", f"{self.folder}/store", "--runroot", f"{self.folder}/state")
        command = ["podman", *store, "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def machine(folder: Path, user_data: str) -> Machine:
    """An instance that was never started, of an image as ami/components bakes it."""
    root = folder / "root"
    for name in (
        *("proc", "sys", "dev", "run", "tmp", "var/log/peakplan", "var/lib/cloud", "etc/systemd/system", "opt/test"),
        *("etc/peakplan", "opt/peakplan/compiled/inf2", "opt/peakplan/host/agent"),
        *("opt/aws/neuron/bin", "opt/aws/amazon-cloudwatch-agent/bin"),
    ):
        (root / name).mkdir(parents=True)
    for name in ("no-units", "programs"):  # beside the disk: what is mounted over it must not lie under it
        (folder / name).mkdir()
    (folder / "neuron0").touch()
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    _install(root, folder / "programs")
    system = root / "etc/systemd/system"
    for name in TARGETS:
        shutil.copy(SYSTEMD / f"{name}.target", system)
    shutil.copy(SYSTEMD / "systemd-halt.service", system)
    for name, text in STAND_INS.items():
        (system / name).write_text(text, encoding="ascii")
    (system / "default.target").symlink_to("multi-user.target")
    wants = system / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    for name in ("metadata.service", "cloud-final.service"):
        (wants / name).symlink_to(f"../{name}")
    environment = f"PEAKPLAN_METADATA_URL=http://{METADATA} PEAKPLAN_PAUSE_SECONDS=0.1"
    (root / "etc/systemd/system.conf").write_text(f"[Manager]\nDefaultEnvironment={environment}\n", encoding="ascii")
    (root / "opt/test/user-data").write_text(user_data, encoding="utf-8")
    return Machine(folder)


def _install(root: Path, programs: Path) -> None:
    """Install the files of 30-container.yaml, and stand-ins for those of the base image."""
    system = root / "etc/systemd/system"
    for unit in (AMI / "systemd").iterdir():
        shutil.copy(unit, system)
    for script, name in (("lifecycle.py", "lifecycle"), ("telemetry.py", "telemetry"), ("serve.sh", "serve")):
        shutil.copy(AMI / "host" / script, programs / f"peakplan-{name}")
    shutil.copytree(AMI / "agent", root / "opt/peakplan/host/agent", dirs_exist_ok=True)
    (root / "etc/peakplan/image.env").write_text("PEAKPLAN_TENSOR_PARALLEL=2\n", encoding="ascii")
    (root / "etc/group").write_text("root:x:0:\nneuron:x:998:\n", encoding="ascii")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n", encoding="ascii")
    (root / "opt/test/answers.py").write_text(textwrap.dedent(ANSWERS), encoding="utf-8")
    scripts = {
        programs / "docker": DOCKER,
        programs / "aws": 'echo aws "$@" >> /opt/test/asked\n',
        root / "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl": "true\n",
        root / "opt/aws/neuron/bin/neuron-monitor": "exec sleep infinity\n",
    }
    for file, text in scripts.items():
        file.write_text(f"#!/bin/bash\n{textwrap.dedent(text)}", encoding="utf-8")
    (root / "opt/aws/neuron/bin/neuron-monitor-prometheus.py").write_text("import time\ntime.sleep(1e6)\n", "utf-8")
    for file in (*programs.iterdir(), *scripts):
        file.chmod(0o755)
    _enable(system)


def _enable(system: Path) -> None:
    """`systemctl enable` of what the image's document enables, offline."""
    document = (AMI / "components/30-container.yaml").read_text(encoding="utf-8")
    enabled = [line.split()[-1] for line in document.splitlines() if "systemctl enable peakplan" in line]
    for unit in enabled:
        subprocess.run(["systemctl", f"--root={system.parents[2]}", "enable", unit], capture_output=True, check=True)


WORDS = (
    "FLEET=dev CELL=cell-1 GROUP=inf2 AUTO_SCALING_GROUP=group LOG_GROUP=/peakplan/dev/cell-1 LAUNCH_HOOK=prove-ready "
    "TERMINATE_HOOK=drain DRAIN_SECONDS=1"
)
HOST = dict(f"PEAKPLAN_{word}".split("=") for word in WORDS.split())
needs_podman = pytest.mark.skipif(bool(missing()), reason=missing() or "every need is met")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder whose name is short enough for podman."""
    with TemporaryDirectory(prefix="peakplan-") as folder:
        yield Path(folder)


@pytest.mark.slow
@needs_podman
def test_a_warm_host_serves_at_every_start_and_leaves_at_once(disk: Path) -> None:
    instance = machine(disk, user_data(HOST).render())
    instance.target("Warmed:Stopped")
    with instance.running():  # launched into the warm pool
        instance.comes_to_ask("prove-ready")
    instance.target("InService")
    with instance.running():  # taken out of it: user data does not run again
        instance.comes_to_ask("prove-ready", "prove-ready")
        instance.target("Warmed:Stopped")  # scaled in, and kept
        instance.comes_to_ask("prove-ready", "prove-ready", "drain")
        assert instance.state("peakplan.service") == "inactive"
    instance.target("InService")
    with instance.running():
        instance.comes_to_ask("prove-ready", "prove-ready", "drain", "prove-ready")
        instance.target("Terminated")
        instance.comes_to_ask("prove-ready", "prove-ready", "drain", "prove-ready", "drain")


@pytest.mark.slow
@needs_podman
def test_an_image_that_nobody_told_who_it_is_starts_nothing(disk: Path) -> None:
    """An image is baked and tested outside any Auto Scaling group."""
    nobody = machine(disk, "#!/bin/bash\ntrue\n")
    nobody.target("")
    with nobody.running():
        nobody.boots()
        started = [nobody.state(f"peakplan{part}") for part in (".service", "-ready.service", "-drain.service")]
    assert started == ["inactive"] * 3
    assert nobody.asked() == []
