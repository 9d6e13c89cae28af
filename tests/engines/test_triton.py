"""Replicas in a Triton server, which runs here, the watch over their processes, and what the server is given."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.neuron.packages import neuron_cores
from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult, RequestRefusedError
from service.engines.torch_engine import load
from service.engines.triton.engine import StubWatch, TritonEngine
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
    write_repository,
)
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL, Strategy
from service.settings.engines import EngineConfig
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.processes import PATIENCE
from tests.redis_server import free_port
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = pytest.mark.anyio


def real(test: Any) -> Any:
    """Mark a test of a real server."""
    return pytest.mark.slow(needs_triton(test))


def request(prompt: str = "hello", seconds: float | None = None) -> GenerationRequest:
    deadline = None if seconds is None else time.monotonic() + seconds
    return GenerationRequest(prompt=prompt, grammar="", deadline=deadline)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with triton_server(tmp_path_factory.mktemp("triton"), "tests.fake_models:fake_source", name="prompt_answer") as one:
        yield one


@pytest.fixture
async def engine(server: TritonServer) -> AsyncIterator[TritonEngine]:
    async with started(server) as engine:
        yield engine


@contextlib.asynccontextmanager
async def started(server: TritonServer, number: int = 0, version: str = "") -> AsyncIterator[TritonEngine]:
    engine = TritonEngine(server.url, number, version=version, start_seconds=PATIENCE, grace_seconds=1.0)
    await engine.start()
    yield engine
    await engine.close()


@real
async def test_each_chip_has_a_process_with_its_own_cores(server: TritonServer, engine: TritonEngine) -> None:
    async with started(server, 1) as other:
        assert other.process != engine.process
        asked = request("variable NEURON_RT_VISIBLE_CORES")
        assert [(await one.generate(asked)).text for one in (engine, other)] == ["0-1", "2-3"]
    async with started(server) as again:  # a gateway that comes back finds its replicas
        assert again.process == engine.process


@real
async def test_a_model_that_triton_does_not_have_is_told(server: TritonServer) -> None:
    with pytest.raises(EngineUnavailableError, match="peakplan_7"):
        async with started(server, 7):
            pass


@real
async def test_a_server_that_dies_with_an_answer_in_hand_leaves_no_stub(tmp_path: Path) -> None:
    with triton_server(tmp_path, "tests.fake_models:fake_source", replicas=1, name="prompt_answer") as server:
        async with started(server) as engine:
            work = asyncio.create_task(engine.generate(request("hang 0.5")))
            await asyncio.sleep(0.2)
            os.kill(server.pid, signal.SIGSTOP)
            await asyncio.sleep(1)  # the stub has answered, and waits for the server to say that it has it
            await asyncio.to_thread(server.kill)  # and for its stub to be gone
            with pytest.raises(EngineUnavailableError):
                await work


@real
async def test_another_version_of_the_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_text("v1", encoding="utf-8")
    with triton_server(tmp_path, "tests.fake_models:versioned_source", replicas=1, path=str(path)) as server:
        async with started(server, version="v1") as old, started(server, version="v1") as same:
            assert same.process == old.process
            path.write_text("v2", encoding="utf-8")
            async with started(server, version="v2") as new:
                assert (await new.generate(request())).text == "v2"
                await asyncio.wait_for(old.failed(), PATIENCE)
                with pytest.raises(EngineUnavailableError, match="newer"):
                    await old.start()  # as the pool does at once, which has yet to let go of it
                assert new.available


@pytest.mark.slow
async def test_no_server_is_told_after_the_start_seconds() -> None:
    engine = TritonEngine(f"127.0.0.1:{free_port()}", 0, start_seconds=0.3)
    with pytest.raises(EngineUnavailableError, match="peakplan_0 in Triton"):
        await engine.start()
    assert not engine.available
    with pytest.raises(EngineUnavailableError, match="not started"):
        await engine.generate(request())
    await engine.close()


QUESTIONS = 200
STRATEGIES: tuple[Strategy, ...] = ("medusa", "autoregressive")


@contextlib.contextmanager
def serving(folder: Path, settings: Settings) -> Iterator[TritonServer]:
    config = settings.engine_config.as_json()
    with triton_server(folder, "service.engines.factory:source_from_json", 1, config=config) as server:
        yield server


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[TritonServer]:
    settings = Settings(replicas=1, model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32")
    with serving(tmp_path_factory.mktemp("triton"), settings) as server:
        yield server


def ask(server: TritonServer, requests: list[GenerationRequest], strategy: Strategy) -> list[GenerationResult]:
    async def answers() -> list[GenerationResult]:
        engine = TritonEngine(server.url, 0, strategy=strategy)
        await engine.start()
        try:
            return [await engine.generate(request) for request in requests]
        finally:
            await engine.close()

    return asyncio.run(answers())


def about(question: Question, strategy: Strategy = "medusa", *, trace: bool = False) -> GenerationRequest:
    return GenerationRequest(
        prompt=render_prompt(question),
        grammar=plan_grammar(question, shipped_vocabulary()),
        strategy=strategy,
        trace=trace,
    )


@real
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tiny_model_gives_what_it_gives_in_process(
    tiny: TritonServer, tiny_model_dir: Path, strategy: Strategy
) -> None:
    model = load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))
    asked = [about(question, strategy, trace=True) for question in own_questions(10)]
    for ours, theirs in zip(map(model.generate, asked), ask(tiny, asked, strategy), strict=True):
        assert (ours.tokens, ours.text, ours.stop_reason) == (theirs.tokens, theirs.text, theirs.stop_reason)
        assert (ours.forwards, ours.accepted_per_step) == (theirs.forwards, theirs.accepted_per_step)
        assert [step.nodes for step in ours.steps] == [step.nodes for step in theirs.steps]


@real
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_import_gives_transformers_tokens(architecture: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "hub", architecture)
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(base)), beside=beside)
    expected = transformers_greedy(base)
    shutil.rmtree(base)

    settings = Settings(replicas=1, model_dir=made.folder, cache_dir=tmp_path, dtype="float32")
    with serving(tmp_path, settings) as server:
        (result,) = ask(server, [about(Question.parse(QUERY))], "medusa")

    assert result.tokens == expected
    assert result.stop_reason == "finished"


@real
def test_the_shipped_model_gives_the_same_tokens(tmp_path: Path) -> None:
    settings = Settings(replicas=1)
    model = load(settings.engine_config)
    questions = dev_questions(QUESTIONS) if has_dev_data() else own_questions(QUESTIONS)
    asked = [about(question) for question in questions]
    ours = [model.generate(one).tokens for one in asked]
    with serving(tmp_path, settings) as server:
        assert [result.tokens for result in ask(server, asked, "medusa")] == ours


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("by_watch", [False, True])
async def test_the_end_of_a_process_is_noticed(process: subprocess.Popen[bytes], by_watch: bool) -> None:
    ends: list[str] = []
    closed, watch = (StubWatch(ProcessName.of(process.pid), lambda: ends.append("ended")) for _ in range(2))
    closed.close()
    assert watch.sees
    assert not await watch.wait(0.01)
    (watch if by_watch else process).kill()  # and nobody collects it, as Triton does not
    assert await watch.wait(20)
    watch.kill()  # once more does no harm
    assert not await closed.wait(0.05)
    assert (ends, watch.sees) == (["ended"], False)


async def test_another_process_with_the_same_number_is_not_watched(process: subprocess.Popen[bytes]) -> None:
    name = ProcessName.of(process.pid)
    assert name is not None
    for unknown in (ProcessName(name.pid, name.started - 1), ProcessName(2**22 + 1, 0), None):
        watch = StubWatch(unknown, lambda: None)
        assert not watch.sees
        watch.kill()
    assert process.poll() is None


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


def test_the_wheels_server_is_found_with_the_stub_of_its_python(wheel: Path, tmp_path: Path) -> None:
    found = Installation.find(wheel)
    assert found.stub is not None
    assert (found.server.name, found.stub.parent.name, found.python) == ("tritonserver", "3.11", wheel / "bin")
    for _ in range(2):  # a second start finds the links of the first
        linked = sorted((found.link_backends(tmp_path / "linked") / "python").iterdir())
    assert [path.name for path in linked] == ["libtriton_python.so", "triton_python_backend_stub"]
    assert all(path.resolve().is_file() for path in linked)
    environment = found.environment({"PATH": "/bin", "KEPT": "1"})
    assert environment["PATH"] == os.pathsep.join([str(wheel / "bin"), "/bin"])
    assert (environment["OMP_NUM_THREADS"], environment["KEPT"]) == ("1", "1")
    assert environment["LD_LIBRARY_PATH"].endswith("nvidia_pytriton.libs")


def test_no_server_or_none_with_a_stub_for_its_python_is_told_with_what_to_do(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(NoTritonError, match="PEAKPLAN_TRITON_HOME"):
        Installation.find(tmp_path / "nowhere")
    (wheel / "lib" / "python3.11").rename(wheel / "lib" / "python3.7")
    with pytest.raises(NoTritonError, match="peakplan tools install triton"):
        Installation.find(wheel)


def test_nvidias_own_layout_is_found(tmp_path: Path) -> None:
    touch(tmp_path / "bin" / "tritonserver")
    (tmp_path / "backends" / "python").mkdir(parents=True)
    found = Installation.find(tmp_path)
    assert (found.stub, found.libraries) == (None, None)
    assert found.link_backends(tmp_path / "linked") == tmp_path / "backends"


def test_the_server_starts_empty_and_on_loopback_only(wheel: Path) -> None:
    command = Installation.find(wheel).command(
        wheel / "models", wheel / "backends", "[::1]:9001", replicas=12, stop_seconds=7
    )
    assert "--model-control-mode=explicit" in command
    assert not [word for word in command if word.startswith("--load-model")]
    assert {"--grpc-address=::1", "--grpc-port=9001", "--allow-http=false", "--allow-metrics=false"} <= set(command)
    assert {"--model-load-thread-count=12", "--exit-timeout-secs=7"} <= set(command)


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


def test_each_replica_has_one_model_of_one_instance_and_its_own_cores(tmp_path: Path) -> None:
    assert len(write_repository(tmp_path, REPLICA, replicas=4, cores=2)) == 4
    names = write_repository(tmp_path, REPLICA, replicas=3, cores=2)  # which leaves nothing of before
    assert names == ["peakplan_0", "peakplan_1", "peakplan_2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name, cores in zip(names, ["0-1", "2-3", "4-5"], strict=True):
        config = (tmp_path / name / "config.pbtxt").read_text(encoding="utf-8")
        assert f'name: "{name}"' in config
        assert "instance_group [{ count: 1 kind: KIND_CPU }]" in config
        # Each of these makes Triton hold requests of a one-instance model back.
        assert not {"dynamic_batching", "max_queue_size", "priority_levels", "timeout"} & set(config.split())
        written = Replica.read(tmp_path / name / "1" / REPLICA_FILE)
        assert written == replace(REPLICA, environment={"TAG": "x", "NEURON_RT_VISIBLE_CORES": cores})
    assert [neuron_cores(*each) for each in ((0, 1), (3, 1), (1, 8))] == ["0", "3", "8-15"]


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


def test_a_request_arrives_as_it_was_sent_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_request(encode_request(REQUEST)) == REQUEST
    assert decode_request(encode_request(None)) is None
    sent = encode_request(replace(REQUEST, deadline=time.monotonic() + 100))
    later = time.monotonic() + 5000  # another host, another clock
    monkeypatch.setattr(time, "monotonic", lambda: later)
    arrived = decode_request(sent)
    assert arrived is not None
    assert arrived.deadline == pytest.approx(later + 100, abs=50)


@pytest.mark.parametrize("body", [b"", b"nnnn", b"{}", b"null", b'{"prompt": "secret", "grammar": 5}', b"\x80\x04."])
def test_what_is_no_request_or_result_is_refused_without_its_words(body: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        decode_result(body)
    if body != b"null":  # a hello's
        with pytest.raises(RequestRefusedError) as caught:
            decode_request(body)
        assert "secret" not in str(caught.value)


def test_a_hello_names_its_process() -> None:
    own = ProcessName.of(os.getpid())
    assert own is not None
    assert decode_info(encode_info("model", "v1")) == ReplicaInfo("model", "v1", own)
    assert ProcessName.of(2**22 + 1) is None  # no process has so high a number
