"""Fakes of AWS's, Docker's and Neuron's programs, and of an instance."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from infra.fleet.parts import REPOSITORY_ROOT

AMI = REPOSITORY_ROOT / "ami"


@dataclass(frozen=True)
class Programs:
    """A folder that comes first in PATH."""

    folder: Path

    def add(self, name: str, does: str = "") -> Path:
        """A program that notes its words, then runs these lines of shell."""
        file = self.folder / name
        file.write_text(f'#!/bin/bash\necho {name} "$@" >> {self.folder}/asked\n{does}\n', encoding="utf-8")
        file.chmod(0o755)
        return file

    def asked(self) -> list[str]:
        """Each call so far, in order."""
        log = self.folder / "asked"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def run(self, *command: str | Path, **environment: object) -> subprocess.CompletedProcess[str]:
        """Run a script that finds these programs before the machine's."""
        variables = {"PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}
        variables |= {name: str(value) for name, value in environment.items()}
        words = [str(word) for word in command]
        return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


def assert_refused(done: subprocess.CompletedProcess[str], words: str, code: int = 1) -> None:
    """See that a script failed with these words for a person."""
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


LIFECYCLE = AMI / "host" / "lifecycle.py"


@dataclass
class Host:
    """What it is to become, how its planner answers, and what was asked of AWS and systemd."""

    folder: Path
    url: str = ""
    service_url: str = ""  # of a real planner in the place of the test's own
    targets: list[str] = field(default_factory=lambda: ["InService"])  # one an ask, the last for ever
    unready_answers: int = 0
    sources: list[str] = field(default_factory=lambda: ["model"])  # of plans, likewise
    environment: dict[str, str] = field(default_factory=dict)  # what else its units start with

    def run(self, word: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "PEAKPLAN_METADATA_URL": self.url,
            "PEAKPLAN_SERVICE_URL": self.service_url or self.url,
            "PEAKPLAN_PAUSE_SECONDS": "0.01",
            "RUNTIME_DIRECTORY": str(self.folder),
            "PEAKPLAN_AUTO_SCALING_GROUP": "group",
            "PEAKPLAN_LAUNCH_HOOK": "prove-ready",
            "PEAKPLAN_TERMINATE_HOOK": "drain",
        }
        command = [sys.executable, str(LIFECYCLE), word]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    def asked(self) -> list[str]:
        return Programs(self.folder).asked()


@contextmanager
def present(folder: Path) -> Iterator[Host]:
    """A host whose metadata service listens."""
    host = Host(folder)

    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._say(200, "token")

        def do_POST(self) -> None:
            assert json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
            source = host.sources.pop(0) if len(host.sources) > 1 else host.sources[0]
            self._say(200, json.dumps({"source": source}))

        def do_GET(self) -> None:
            if self.path == "/readyz":
                host.unready_answers -= 1
                self._say(503 if host.unready_answers >= 0 else 200, "no replica of the model is up")
            elif self.headers.get("X-aws-ec2-metadata-token") != "token":
                self._say(401, "IMDSv2 only")
            elif self.path.endswith("target-lifecycle-state"):
                self._say(200, host.targets.pop(0) if len(host.targets) > 1 else host.targets[0])
            else:
                self._say(200, {"instance-id": "i-1", "region": "us-east-1"}[self.path.rpartition("/")[2]])

        def _say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            del words

    for program in ("aws", "systemctl"):
        Programs(folder).add(program)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host.url = f"http://127.0.0.1:{server.server_port}"
    yield host
    server.shutdown()
    server.server_close()
