"""What Triton is given: its installation, its model repository, and bytes on the wire."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from service.engines.neuron.packages import neuron_cores
from service.engines.protocol import GenerationRequest, RequestRefusedError, TraceNode, TraceStep
from service.engines.triton.installation import (
    EnvironmentFailedError,
    Installation,
    NoTritonError,
    main,
    make_environment,
)
from service.engines.triton.wire import (
    REPLICA_FILE,
    ProcessName,
    Replica,
    ReplicaInfo,
    decode_info,
    decode_request,
    decode_result,
    encode_info,
    encode_request,
    encode_result,
    write_repository,
)
from tests.fake_models import result


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
        wheel / "models", wheel / "backends", "[::1]:9001", replicas=12, stop_seconds=7
    )
    assert "--model-control-mode=explicit" in command
    assert not [word for word in command if word.startswith("--load-model")]
    assert {"--grpc-address=::1", "--grpc-port=9001", "--allow-http=false", "--allow-metrics=false"} <= set(command)
    assert {"--model-load-thread-count=12", "--exit-timeout-secs=7"} <= set(command)


def test_stubs_find_their_python_and_use_one_thread(wheel: Path) -> None:
    environment = Installation.find(wheel).environment({"PATH": "/bin", "KEPT": "1"})
    assert environment["PATH"] == os.pathsep.join([str(wheel / "bin"), "/bin"])
    assert (environment["OMP_NUM_THREADS"], environment["KEPT"]) == ("1", "1")
    assert environment["LD_LIBRARY_PATH"].endswith("nvidia_pytriton.libs")


def test_a_python_that_is_not_there_or_makes_no_environment_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "home"), "--python", str(tmp_path / "no-python")]) == 1
    assert "No Triton: " in capsys.readouterr().err
    broken = tmp_path / "python"
    broken.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no venv here')\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(EnvironmentFailedError, match="no venv here"):
        make_environment(tmp_path / "home", broken)


REPLICA = Replica("module:function", {"model_dir": "/a model"}, {"TAG": "x"})


def test_each_replica_has_one_model_of_one_instance(tmp_path: Path) -> None:
    names = write_repository(tmp_path / "models", REPLICA, replicas=3, cores=2)
    assert names == ["peakplan_0", "peakplan_1", "peakplan_2"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == names
    for name in names:
        config = (tmp_path / "models" / name / "config.pbtxt").read_text(encoding="utf-8")
        assert f'name: "{name}"' in config
        assert "instance_group [{ count: 1 kind: KIND_CPU }]" in config
        # Each of these makes Triton hold requests of a one-instance model back.
        assert not {"dynamic_batching", "max_queue_size", "priority_levels", "timeout"} & set(config.split())


def test_each_replica_gets_its_own_neuron_cores(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=3, cores=2)
    written = [Replica.read(tmp_path / f"peakplan_{number}" / "1" / REPLICA_FILE) for number in range(3)]
    assert [one.environment["NEURON_RT_VISIBLE_CORES"] for one in written] == ["0-1", "2-3", "4-5"]
    assert {one.environment["TAG"] for one in written} == {"x"}
    assert all((one.make_source, one.arguments) == (REPLICA.make_source, REPLICA.arguments) for one in written)


@pytest.mark.parametrize(("number", "cores", "said"), [(0, 1, "0"), (3, 1, "3"), (1, 8, "8-15")])
def test_cores_are_named_as_the_runtime_takes_them(number: int, cores: int, said: str) -> None:
    assert neuron_cores(number, cores) == said


def test_writing_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=4, cores=2)
    assert write_repository(tmp_path, REPLICA, replicas=1, cores=2) == ["peakplan_0"]
    assert [path.name for path in tmp_path.iterdir()] == ["peakplan_0"]


def test_the_models_program_is_python_and_finds_our_code(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=1, cores=2)
    program = (tmp_path / "peakplan_0" / "1" / "model.py").read_text(encoding="utf-8")
    compile(program, "model.py", "exec")
    root = program.partition("sys.path.insert(0, ")[2].partition(")")[0]
    assert (Path(json.loads(root.replace("'", '"'))) / "service" / "engines" / "triton" / "host.py").is_file()


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "resnet").mkdir()
    with pytest.raises(ValueError, match="resnet"):
        write_repository(tmp_path, REPLICA, replicas=1, cores=2)
    assert [path.name for path in tmp_path.iterdir()] == ["resnet"]


@pytest.mark.parametrize("name", ["two words", "a;b", "$HOME", "é"])
def test_a_path_that_a_shell_would_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="shell"):
        write_repository(tmp_path / name, REPLICA, replicas=1, cores=2)
    assert not (tmp_path / name).exists()


REQUEST = GenerationRequest(
    prompt="日本のカメラ 👟 \0 \"'", grammar="start: /[^\\n]+/", max_tokens=7, strategy="autoregressive", trace=True
)


def test_a_request_arrives_as_it_was_sent() -> None:
    assert decode_request(encode_request(REQUEST)) == REQUEST
    assert decode_request(encode_request(None)) is None


def test_the_deadline_travels_as_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = encode_request(replace(REQUEST, deadline=time.monotonic() + 100))
    later = time.monotonic() + 5000  # another host, another clock
    monkeypatch.setattr(time, "monotonic", lambda: later)
    arrived = decode_request(sent)
    assert arrived is not None
    assert arrived.deadline == pytest.approx(later + 100, abs=50)


def test_a_result_arrives_as_it_was_given() -> None:
    node = TraceNode(token_text=" ré", parent=-1, depth=0, status="accepted")
    step = TraceStep(nodes=[node], emitted=[" ré"], milliseconds=0.125)
    sent = replace(result(" find Any", seconds=1 / 3), steps=[step], accepted_per_step=[])
    assert decode_result(encode_result(sent)) == sent


@pytest.mark.parametrize("body", [b"", b"nnnn", b"{}", b'{"prompt": "secret", "grammar": 5}', b"\x80\x04."])
def test_what_is_no_request_is_refused_without_its_words(body: bytes) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        decode_request(body)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
def test_what_is_no_result_is_told(body: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        decode_result(body)


def test_a_hello_names_its_process() -> None:
    own = ProcessName.of(os.getpid())
    assert own is not None
    assert decode_info(encode_info("model", "v1")) == ReplicaInfo("model", "v1", own)
    assert ProcessName.of(2**22 + 1) is None  # no process has so high a number
