"""A machine that really boots: systemd as the first process of a container whose file system outlives its stops.

What EC2, AWS and Docker are to a host stands in as small programs: an instance metadata service, an `aws` that notes
what it is asked, a `docker` that answers plans. The units, the host's scripts and the user data are the project's own.
"""

import contextlib
import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.ami.programs import AMI
from tests.processes import eventually

SYSTEMD = Path("/usr/lib/systemd/system")
# Of the machine's own units only what a boot and a halt need; the rest of them is not under test.
TARGETS = (
    "basic",
    "sysinit",
    "multi-user",
    "halt",
    "shutdown",
    "umount",
    "final",
    "network-online",
    "timers",
    "slices",
)
METADATA, SERVICE = "127.0.0.1:1338", "127.0.0.1:8080"

IMDS = """
    import http.server, pathlib
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_PUT(self): self.say("token")
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            known = {"instance-id": "i-1", "region": "us-east-1"}
            self.say(known.get(name) or pathlib.Path("/opt/test/target").read_text())
        def say(self, text):
            self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
            self.wfile.write(text.encode())
    http.server.HTTPServer(("127.0.0.1", 1338), Answers).serve_forever()
"""
PLANNER = """
    import http.server, json
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.say("ready")
        def do_POST(self): self.say(json.dumps({"source": "model"}))
        def say(self, text):
            self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
            self.wfile.write(text.encode())
    http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Answers).serve_forever()
"""
DOCKER = """
    case $1 in
      run) echo $$ > /run/docker-peakplan; exec python3 /opt/test/planner.py ;;
      stop) kill "$(cat /run/docker-peakplan)" ;;
    esac
"""
UNITS = {
    "docker.service": "[Service]\nExecStart=/usr/bin/sleep infinity\n",
    "metadata.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/usr/bin/python3 /opt/test/imds.py\n",
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
    for name, text in UNITS.items():
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
    """What 30-container.yaml installs, and stand-ins for what the base image has."""
    system = root / "etc/systemd/system"
    for unit in (AMI / "systemd").iterdir():
        shutil.copy(unit, system)
    for script, name in (("lifecycle.py", "lifecycle"), ("telemetry.py", "telemetry"), ("serve.sh", "serve")):
        shutil.copy(AMI / "host" / script, programs / f"peakplan-{name}")
    shutil.copytree(AMI / "agent", root / "opt/peakplan/host/agent", dirs_exist_ok=True)
    (root / "etc/peakplan/image.env").write_text("PEAKPLAN_TENSOR_PARALLEL=2\n", encoding="ascii")
    (root / "etc/group").write_text("root:x:0:\nneuron:x:998:\n", encoding="ascii")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n", encoding="ascii")
    (root / "opt/test/imds.py").write_text(textwrap.dedent(IMDS), encoding="utf-8")
    (root / "opt/test/planner.py").write_text(textwrap.dedent(PLANNER), encoding="utf-8")
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
