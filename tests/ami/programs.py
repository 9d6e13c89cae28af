"""Programs of the tests' own in the places of AWS's, Docker's and Neuron's: they note how they were called."""

import os
import subprocess
from dataclasses import dataclass
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
