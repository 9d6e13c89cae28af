"""What `make` and `peakplan tools install` install, in which order, and when again."""

import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from peakplan import environment

FILES = ("pyproject.toml", "hatch_build.py", "requirements.txt", "requirements-dev.txt", "requirements-image.txt")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the steps that are made, in order; their stamps and inputs are in a folder of the test's."""
    for name in FILES:
        (tmp_path / name).write_bytes((environment.ROOT / name).read_bytes())
    made: list[str] = []

    def step(name: str, old: environment.Step) -> environment.Step:
        stamp = tmp_path / old.stamp.relative_to(environment.ROOT)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        return environment.Step(old.needs, old.inputs, lambda: made.append(name), stamp, old.text)

    steps = {name: step(name, old) for name, old in environment.STEPS.items()}
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "STEPS", steps)
    return made


def test_what_a_step_needs_is_made_before_it_and_nothing_twice(run: list[str]) -> None:
    environment.have("stack")
    assert run == ["command", "service", "test", "stack"]
    environment.have("stack", "service", "kernels")
    assert run[4:] == ["kernels"]


def test_a_changed_lock_installs_again_what_is_of_it(run: list[str], tmp_path: Path) -> None:
    environment.have("test", "kernels")
    run.clear()
    (tmp_path / "requirements-dev.txt").write_text("click==1\n", encoding="utf-8")
    environment.have("kernels")
    assert run == ["test"]


def test_a_changed_group_installs_again_that_group_alone(run: list[str], tmp_path: Path) -> None:
    environment.have("kernels", "checkov")
    run.clear()
    project = tmp_path / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8").replace('"ziglang==', '"ziglang>='), encoding="utf-8")
    environment.have("kernels", "checkov")
    assert run == ["command", "kernels"]


def test_the_environment_of_peers_holds_one_group_at_a_time(run: list[str]) -> None:
    python = environment.made("peers")
    assert environment.made("vllm") == python
    environment.made("peers")
    assert [name for name in run if name in ("peers", "vllm")] == ["peers", "vllm", "peers"]


def test_a_step_that_fails_is_not_noted(monkeypatch: pytest.MonkeyPatch, run: list[str]) -> None:
    def fails() -> None:
        environment._run(sys.executable, "-c", "raise SystemExit(3)")

    old = environment.STEPS["command"]
    failing = environment.Step(old.needs, old.inputs, fails, old.stamp, old.text)
    monkeypatch.setitem(environment.STEPS, "command", failing)
    with pytest.raises(SystemExit, match=r"command was not installed: .* ended with 3"):
        environment.have("command")
    assert not environment.is_there("command")
    assert run == []


def test_there_are_four_environments() -> None:
    folders = {step.stamp.parent for step in environment.STEPS.values() if "node_modules" not in step.stamp.parts}
    assert sorted(folder.name for folder in folders) == [".venv", ".venv-checkov", ".venv-peers", ".venv-triton"]


def test_an_older_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "sys", SimpleNamespace(version_info=(3, 10), exit=sys.exit))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer; name one with PYTHON="):
        environment.have("service")


@pytest.mark.parametrize(
    ("abi", "is_refused"), [("cpython-312-x86_64-linux-musl", True), ("cpython-312-darwin", False)]
)
def test_musl_is_refused_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, abi: str, is_refused: bool
) -> None:
    """On Alpine pip would build llguidance for minutes, then find no PyTorch, and end in a page of its own words."""
    asked: list[str] = []
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: abi)
    monkeypatch.setattr(environment, "_pip_lines", lambda *_: asked.append("pip"))
    monkeypatch.setattr(environment, "_UNUSED", ())
    if is_refused:
        with pytest.raises(SystemExit, match="use the container image"):
            environment._service()
    else:
        environment._service()
    assert bool(asked) is not is_refused


def test_a_fleet_gets_the_root_s_packages_by_hash_and_no_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(environment, "_pip_lines", given.extend)
    environment._fleet()
    packages = {line.partition("==")[0] for line in given if "==" in line}
    named = {line.partition("==")[0] for line in (environment.ROOT / "requirements.txt").read_text().splitlines()}
    assert packages == {name for name in named if not name.startswith("#")} - {"torch"}
    assert sum("--hash=" in line for line in given) >= len(packages)


def test_a_tool_is_installed_beside_the_versions_of_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[list[str], tuple[str, ...], str]] = []
    monkeypatch.setattr(environment, "_pip_lines", lambda lines, *words, option: given.append((lines, words, option)))
    environment._group("stack")()
    ((lines, words, option),) = given
    assert (words, option) == (("--quiet", "--group", "stack"), "--constraint")
    assert not [line for line in lines if "--hash" in line or "[" in line.partition(";")[0]]
    assert any(line.startswith("click==") for line in lines)
