"""The wheel as its users have it: the same bytes whenever it is built, and a service from any folder."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import httpx
import pytest

from tests.server_process import REPOSITORY

pytestmark = pytest.mark.slow


def build(folder: Path) -> Path:
    """Build the wheel without a network, as `make dist` does; return it."""
    words = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e .[test]")
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own; return its `peakplan`.

    The packages that it needs are read from this environment, where they have the versions that the wheel names: pip
    would download half a gigabyte. Nothing of the checkout can be seen from there.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    words = ["--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "zz_of_this_environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin" / "peakplan"


def run(command: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_is_the_same_bytes_whenever_it_is_built(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_it_claims_one_name_and_names_what_serving_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    assert {name.partition("/")[0] for name in names} == {"peakplan", metadata.partition("/")[0]}
    carried = {name.removeprefix("peakplan/_house/") for name in names}
    assert {"service/__main__.py", "models/qp-smollm2-135m/seal.json", "peakplan_client/client.py"} <= carried
    assert any(name.endswith(".so") for name in carried)
    assert not any("__pycache__" in name or name.startswith(("infra", "tests")) for name in carried)
    assert "serve" in (fields.get_all("Provides-Extra") or [])
    needs = [line for line in fields.get_all("Requires-Dist") or [] if line.endswith("extra == 'serve'")]
    names = {line.partition("==")[0].partition("[")[0] for line in needs}
    assert {"fastapi", "torch", "uvicorn", "llguidance"} <= names
    assert "psycopg" not in names, "only those who want its licence install it (rehearsal/tools/licences.py)"


def test_it_serves_from_any_folder(installed: Path, tmp_path: Path, tiny_model_dir: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEAKPLAN"))}
    environment |= {"PEAKPLAN_MODEL_DIR": str(tiny_model_dir), "PEAKPLAN_REPLICAS": "1"}
    command = [installed, "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if line.startswith("{") and (event := json.loads(line))["event"] == "ready":
                    break
            else:
                pytest.fail("it did not start:\n" + "".join(said))
            answer = httpx.post(f"{event['url']}/plan", json={"query": "red shoes", "deadline_ms": 2000}, timeout=60)
            assert answer.json()["source"] == "model"
            assert "<title>" in httpx.get(event["url"], timeout=60).text
            done = run(installed, tmp_path, "plan", "red shoes", "--url", event["url"], "--json")
            assert (done.returncode, done.stderr) == (0, "")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
    assert process.returncode == 0


def test_it_plans_without_a_service_and_knows_the_machine(installed: Path, tmp_path: Path) -> None:
    told = json.loads(run(installed, tmp_path, "doctor", "--json").stdout)
    kernel = next(each for each in told["findings"] if each["name"] == "kernel")
    assert "_house" in kernel["found"] or kernel["state"] == "ok"
    assert run(installed, tmp_path, "--version").stdout.startswith("peakplan ")


def test_it_learns_a_shop_for_whoever_has_a_catalogue(installed: Path, tmp_path: Path) -> None:
    lines = ["title,brand,price", *(f"Orlo Kite {number} daypack,Orlo,{number}.00" for number in range(20, 40))]
    (tmp_path / "products.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run(installed, tmp_path, "shop", "learn", "products.csv", "--output", "shop", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shop" / "mapping.yaml").is_file()


def test_what_is_not_in_it_says_so(installed: Path, tmp_path: Path) -> None:
    """First of all: nobody is told to install what a command needs that is not there."""
    for words in (("fleet", "check", "dev"), ("fleet", "synth", "dev"), ("train",), ("finetune", "--help")):
        done = run(installed, tmp_path, *words)
        assert (done.returncode, "runs from a checkout" in done.stderr) == (1, True)
    told = json.loads(run(installed, tmp_path, "doctor", "--json").stdout)
    assert {each["name"] for each in told["findings"] if each["found"].startswith("not in the wheel")} == {
        "packages: fleet",
        "packages: train",
        "packages: load",
    }


def test_what_lacks_is_installed_from_the_same_file(installed: Path, tmp_path: Path, wheel: Path) -> None:
    """No index has this name: `pip install peakplan[...]` would find nothing, or somebody else's."""
    script = "from peakplan.running import how_to_install; print(how_to_install('shop'))"
    assert run(installed.with_name("python"), tmp_path, "-c", script).stdout == f"pip install '{wheel}[shop]'\n"
