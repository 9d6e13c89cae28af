"""`peakplan doctor` says what is there and what lacks, on this machine and on ones that lack something."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from peakplan import doctor
from peakplan.__main__ import main
from peakplan.running import EXTRAS
from tests.server_process import ServerProcess


def findings(monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, doctor.Finding]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {finding.name: finding for finding in doctor.examine()}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_machine_that_serves_is_told_so_in_words_and_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", str(free_port()))
    said = CliRunner().invoke(main, ["doctor"])
    assert (said.exit_code, "has what it needs" in said.output) == (0, True), said.output
    told = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).output)
    assert told["can_serve"] is True
    assert {f"packages: {extra}" for extra in EXTRAS if extra != "cdk"} <= {each["name"] for each in told["findings"]}
    assert {"python", "machine", "packages: torch", "settings", "kernel", "base weights", "port"} <= {
        each["name"] for each in told["findings"]
    }


def test_what_lacks_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("torch", "pyarrow") else there(name))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = findings(monkeypatch)
    assert (found["packages: torch"].state, found["packages: shop"].state) == ("missing", "optional")
    assert "pip install" in found["packages: torch"].remedy
    assert "apt-get install chromium" in found["chromium"].remedy
    said = CliRunner().invoke(main, ["doctor"])
    assert (said.exit_code, "lacks what is marked NO" in said.output) == (1, True)


def test_a_wrong_setting_is_named_and_the_rest_is_looked_at_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(monkeypatch, PEAKPLAN_DTYPE="int4")
    assert found["settings"].state == "missing"
    assert "PEAKPLAN_DTYPE=int4" in found["settings"].found
    assert {"kernel", "port"} <= found.keys()


def test_a_processor_without_our_kernels_is_told_what_that_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.decoding.native.library.instructions", lambda _: frozenset())
    assert findings(monkeypatch)["kernel"].state == "optional"


def test_who_has_the_port_is_told(monkeypatch: pytest.MonkeyPatch, server: ServerProcess) -> None:
    assert "a Peakplan answers" in findings(monkeypatch, PORT=server.url.rpartition(":")[2])["port"].found
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        monkeypatch.setattr(doctor, "_SECONDS", 0.1)
        port = findings(monkeypatch, PORT=str(stranger.getsockname()[1]))["port"]
    assert (port.state, "--port 0" in port.remedy) == ("missing", True)
    assert findings(monkeypatch, PORT=str(free_port()))["port"].found.endswith("is free")


def test_a_full_disk_is_told_before_the_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = {"PEAKPLAN_CACHE_DIR": str(tmp_path / "not" / "yet")}
    assert "downloads 93 MB" in findings(monkeypatch, **cache)["base weights"].found
    monkeypatch.setattr(doctor, "_LEAST_FREE_GB", 1e9)
    assert findings(monkeypatch, **cache)["base weights"].state == "missing"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not installed: apt-get install bash")
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0, said.output
    assert "_PEAKPLAN_COMPLETE" in said.output
    if interpreter := shutil.which(shell):
        done = subprocess.run([interpreter, "-n"], input=said.output, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_doctor_imports_no_model_library_to_say_that_it_is_there() -> None:
    script = "import sys; from peakplan.doctor import examine; examine(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
