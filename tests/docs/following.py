"""Follows a tutorial to the letter: writes its files, types its commands, starts its servers. No tests in here."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.processes import PATIENCE
from tests.server_process import REPOSITORY

_BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_SERVES = re.compile(r"(peakplan serve|python -m http\.server)\b")
_STATE = 'export -p > "$STATE"; printf "cd %q\\n" "$PWD" >> "$STATE"'


class Block(NamedTuple):
    """A fenced block: its language, the name of the file that it is, if any, and its lines."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield a document's fenced blocks in order."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(match[1], match[2] or "", match[3])


@dataclass
class Reader:
    """Somebody who follows a tutorial in a folder; `ports` are free ones instead of those that the page names."""

    folder: Path
    ports: Mapping[str, int]
    said: list[str] = field(default_factory=list)
    _servers: ExitStack = field(default_factory=ExitStack)

    def follow(self, page: Path) -> None:
        """Do all that a page says; what it shows in ```text must be what was said last."""
        self._state.write_text(f". {REPOSITORY / '.venv/bin/activate'}\n", encoding="utf-8")
        for block in blocks(page):
            if block.file:
                (self.folder / block.file).write_text(self._moved(block.text), encoding="utf-8")
            elif block.language == "sh" and _SERVES.search(block.text):
                self._servers.enter_context(self._serving(block.text))
            elif block.language == "sh":
                self.said.append(self._typed(block.text))
            elif block.language == "text":
                assert self.said[-1] == self._moved(block.text), f"{page.name} shows something else"

    def close(self) -> None:
        """End what serves."""
        self._servers.close()

    @property
    def _state(self) -> Path:
        return self.folder / ".state"

    def _moved(self, text: str) -> str:
        for port, ours in self.ports.items():
            text = re.sub(rf"(?<=127\.0\.0\.1[: ]){port}\b", str(ours), text)
        return text

    def _command(self, text: str) -> list[str]:
        return ["bash", "-c", f'set -euo pipefail; . "$STATE"\n{self._moved(text)}']

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PEAKPLAN")}
        return {**kept, "STATE": str(self._state), "PORT": str(self.ports["8080"]), "PYTHONUNBUFFERED": "1"}

    def _typed(self, text: str) -> str:
        command = self._command(f"{text}\n{_STATE}")
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def _serving(self, text: str) -> Iterator[None]:
        log = (self.folder / "log").open("a+", encoding="utf-8")
        process = subprocess.Popen(
            self._command(text), cwd=self.folder, env=self._environment(), stderr=log, stdout=log, process_group=0
        )
        url = f"http://127.0.0.1:{self.ports['8000'] if 'http.server' in text else self.ports['8080']}"
        end = time.monotonic() + PATIENCE
        try:
            while not _answers(f"{url}/readyz" if "peakplan" in text else url):
                assert process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")
                assert time.monotonic() < end, f"{text} does not serve"
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
            log.close()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
