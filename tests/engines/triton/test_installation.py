import os
import sys
from pathlib import Path

import pytest

from service.engines.triton.environment import EnvironmentFailedError, main, make_environment
from service.engines.triton.installation import Installation, NoTritonError


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Make a virtual environment as nvidia-pytriton leaves it."""
    triton = tmp_path / "lib" / "python3.11" / "site-packages" / "pytriton" / "tritonserver"
    touch(triton / "bin" / "tritonserver")
    touch(triton / "backends" / "python" / "libtriton_python.so")
    touch(triton / "python_backend_stubs" / "3.11" / "triton_python_backend_stub")
    return tmp_path


def test_the_wheels_server_is_found_with_the_stub_of_its_python(wheel: Path) -> None:
    found = Installation.find(wheel)
    assert found.server.name == "tritonserver"
    assert found.stub is not None
    assert found.stub.parent.name == "3.11"
    assert found.python == wheel / "bin"


def test_an_environment_without_a_stub_for_its_python_is_none(wheel: Path) -> None:
    (wheel / "lib" / "python3.11").rename(wheel / "lib" / "python3.7")
    with pytest.raises(NoTritonError, match="peakplan tools install triton"):
        Installation.find(wheel)


def test_the_stub_is_linked_beside_the_backend(wheel: Path, tmp_path: Path) -> None:
    found = Installation.find(wheel)
    for _ in range(2):  # a second start finds the links of the first
        folder = found.link_backends(tmp_path / "linked")
    assert sorted(path.name for path in (folder / "python").iterdir()) == [
        "libtriton_python.so",
        "triton_python_backend_stub",
    ]
    assert all(path.resolve().is_file() for path in (folder / "python").iterdir())


def test_nvidias_own_layout_is_found(tmp_path: Path) -> None:
    touch(tmp_path / "bin" / "tritonserver")
    (tmp_path / "backends" / "python").mkdir(parents=True)
    found = Installation.find(tmp_path)
    assert (found.stub, found.libraries) == (None, None)
    assert found.link_backends(tmp_path / "linked") == tmp_path / "backends"


def test_no_server_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoTritonError, match="PEAKPLAN_TRITON_HOME"):
        Installation.find(tmp_path)


def test_the_server_starts_empty_and_on_loopback_only(wheel: Path) -> None:
    command = Installation.find(wheel).command(
        wheel / "models", wheel / "backends", "127.0.0.1:9001", replicas=12, stop_seconds=7
    )
    assert "--model-control-mode=explicit" in command
    assert not [word for word in command if word.startswith("--load-model")]
    assert {"--grpc-address=127.0.0.1", "--grpc-port=9001", "--allow-http=false", "--allow-metrics=false"} <= set(
        command
    )
    assert {"--model-load-thread-count=12", "--exit-timeout-secs=7"} <= set(command)


def test_metrics_are_on_the_same_address(wheel: Path) -> None:
    command = Installation.find(wheel).command(
        wheel / "models", wheel / "backends", "[::1]:9001", replicas=1, stop_seconds=7, metrics_port=9002
    )
    assert {"--grpc-address=::1", "--metrics-address=::1", "--metrics-port=9002", "--allow-metrics=true"} <= set(
        command
    )


def test_stubs_find_their_python_and_use_the_threads_they_are_given(wheel: Path) -> None:
    environment = Installation.find(wheel).environment({"PATH": "/bin", "KEPT": "1"}, threads=3)
    assert environment["PATH"] == os.pathsep.join([str(wheel / "bin"), "/bin"])
    assert (environment["OMP_NUM_THREADS"], environment["KEPT"]) == ("3", "1")
    assert environment["LD_LIBRARY_PATH"].endswith("nvidia_pytriton.libs")


def test_a_python_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EnvironmentFailedError, match="--python"):
        make_environment(tmp_path / "home", tmp_path / "no-python")
    assert main([str(tmp_path / "home"), "--python", str(tmp_path / "no-python")]) == 1
    assert "No Triton: " in capsys.readouterr().err


def test_a_python_that_makes_no_environment_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no venv here')\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(EnvironmentFailedError, match="no venv here"):
        make_environment(tmp_path / "home", broken)
