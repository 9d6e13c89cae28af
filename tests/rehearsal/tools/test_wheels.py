"""Tests of which wheels are asked for, and of what pip's answers mean."""

import subprocess
from typing import Any

import pytest

from rehearsal.tools.wheels import PLATFORMS, has_wheel, pinned, render_wheels

LINES = (
    "# a comment",
    "anyio==4.16.0 \\",
    "    --hash=sha256:00",
    "colorama==0.4.6 ; sys_platform == 'win32' \\",
    "hf-xet==1.8.0 ; platform_machine == 'arm64' or platform_machine == 'aarch64' \\",
    "networkx==3.7 ; python_full_version >= '3.12' \\",
    "torch==2.13.0",
)


def test_releases_are_those_that_the_platform_takes() -> None:
    _, mac = PLATFORMS["macOS 14, arm64"]
    assert pinned(LINES, mac) == ["anyio==4.16.0", "hf-xet==1.8.0", "torch==2.13.0"]
    _, linux = PLATFORMS["Linux, glibc 2.36, x86-64"]
    assert pinned(LINES, linux) == ["anyio==4.16.0", "torch==2.13.0"]


@pytest.mark.parametrize(
    ("code", "said", "answer"),
    [(0, "", True), (1, "ERROR: No matching distribution found for torch==2.13.0", False)],
)
def test_what_pip_answers(monkeypatch: pytest.MonkeyPatch, code: int, said: str, answer: bool) -> None:
    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], code, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    assert has_wheel("torch==2.13.0", ["musllinux_1_2_x86_64"]) is answer


def test_an_index_that_does_not_answer_is_no_missing_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "timed out"))
    with pytest.raises(RuntimeError, match=r"pip could not ask for torch==2\.13\.0: timed out"):
        has_wheel("torch==2.13.0", ["musllinux_1_2_x86_64"])


def test_the_table_names_what_is_missing() -> None:
    platforms = {"here": {"asked": 2, "without": []}, "there": {"asked": 2, "without": ["torch==2.13.0"]}}
    table = render_wheels({"python": "3.11", "platforms": platforms}).splitlines()
    assert table[2:] == ["| here | 2 | none |", "| there | 2 | torch==2.13.0 |"]
