"""What the gateway and the replicas that Triton hosts agree on: the model repository, and the messages.

    DIR/peakplan_0/config.pbtxt         for Triton: tensors, one instance, its default scheduler
    DIR/peakplan_0/1/model.py           for the python backend: three lines that import `host.py`
    DIR/peakplan_0/1/replica.json       for `host.py`: which model, on which NeuronCores

For why each replica has its own single-instance model, see docs/decisions/0014-triton.md. Messages are JSON in one
UINT8 tensor each way: JSON and not pickle, because anyone who reaches Triton's port may send anything. Both ends run
the same version.
"""

import dataclasses
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import service
from service.engines.neuron.packages import VISIBLE_CORES, neuron_cores
from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError

QUESTION = "question"  # the tensors' names
ANSWER = "answer"
DATATYPE = "UINT8"

_PARENTHESES = ")"  # ends the command's name in /proc/PID/stat; the name itself may hold spaces
_START_FIELD = 19  # of the fields after the name: proc(5)'s field 22, starttime

_requests: TypeAdapter[GenerationRequest | None] = TypeAdapter(GenerationRequest | None)
_results = TypeAdapter(GenerationResult)
REPLICA_FILE = "replica.json"
_NAME = "peakplan_{number}"
_VERSION = "1"
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)  # Triton starts a stub with a line of bash, without quotes
_SOURCE_ROOT = Path(service.__file__).parents[1]
# No dynamic batching, queue policy or priorities: with any of them a one-instance model stops prefetching, and requests
# wait up to half a second for nothing. The gateway owns the queue.
_CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: 0
input [{{ name: "{question}" data_type: TYPE_{datatype} dims: [ -1 ] }}]
output [{{ name: "{answer}" data_type: TYPE_{datatype} dims: [ -1 ] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
"""
_MODEL = """\
# Written by service/engines/triton/wire.py.
import sys

sys.path.insert(0, {root!r})
from service.engines.triton.host import TritonPythonModel

__all__ = ["TritonPythonModel"]
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessName:
    """A process identity that is unique on this host since boot; in another PID namespace it matches nothing."""

    pid: int
    started: int  # clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> "ProcessName | None":
        """Return the identity of a process id; None when there is no such process here."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        return cls(pid, int(stat.rpartition(_PARENTHESES)[2].split()[_START_FIELD]))


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica's own information, the answer to an empty request; it also proves that the replica is free."""

    model_id: str
    version: str
    process: ProcessName | None


_infos = TypeAdapter(ReplicaInfo)


def encode_request(request: GenerationRequest | None) -> bytes:
    """Encode a request, or None to ask for a ReplicaInfo. The deadline is sent as seconds left: clocks differ."""
    if request is not None and request.deadline is not None:
        request = dataclasses.replace(request, deadline=request.deadline - time.monotonic())
    return _requests.dump_json(request)


def decode_request(data: bytes) -> GenerationRequest | None:
    """Decode a request, its deadline on this host's clock. Raises RequestRefusedError, which quotes nothing."""
    try:
        request = _requests.validate_json(data)
    except ValidationError as error:
        fields = sorted({str(problem["loc"][-1]) if problem["loc"] else "body" for problem in error.errors()})
        raise RequestRefusedError(f"it is no generation request: {', '.join(fields)}") from None
    if request is not None and request.deadline is not None:
        request = dataclasses.replace(request, deadline=request.deadline + time.monotonic())
    return request


def encode_result(result: GenerationResult) -> bytes:
    return _results.dump_json(result)


def decode_result(data: bytes) -> GenerationResult:
    """Decode a result. Raises ValueError for bytes that are none."""
    return _results.validate_json(data)


def encode_info(model_id: str, version: str) -> bytes:
    return _infos.dump_json(ReplicaInfo(model_id, version, ProcessName.of(os.getpid())))


def decode_info(data: bytes) -> ReplicaInfo:
    """Decode a ReplicaInfo. Raises ValueError for bytes that are none."""
    return _infos.validate_json(data)


@dataclass(frozen=True, slots=True)
class Replica:
    """The description of what one stub process hosts.

    `make_source` is "module:function", which called with `arguments` (JSON) gives the current `ModelSource`: loading a
    model again loads what is there at that time. `environment` is set before it is called.
    """

    make_source: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Replica":
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def model_name(number: int) -> str:
    return _NAME.format(number=number)


def write_repository(folder: Path, replica: Replica, *, replicas: int, cores: int) -> list[str]:
    """Write a repository of `replicas` models into `folder`, replacing what is there, and return their names.

    `replica` is what each of them hosts; its environment gets `cores` NeuronCores of its own. Raises OSError, and
    ValueError where `folder` holds anything else.
    """
    _refuse_foreign(folder)
    names = [model_name(number) for number in range(replicas)]
    for old in folder.glob(_NAME.format(number="*")):
        shutil.rmtree(old)
    for number, name in enumerate(names):
        environment = {**replica.environment, VISIBLE_CORES: neuron_cores(number, cores)}
        own = Replica(replica.make_source, replica.arguments, environment)
        _write_model(folder / name, own)
    return names


def _write_model(folder: Path, replica: Replica) -> None:
    version = folder / _VERSION
    version.mkdir(parents=True)
    config = _CONFIG.format(name=folder.name, question=QUESTION, answer=ANSWER, datatype=DATATYPE)
    (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    (version / "model.py").write_text(_MODEL.format(root=str(_SOURCE_ROOT)), encoding="utf-8")
    (version / REPLICA_FILE).write_text(json.dumps(asdict(replica), indent=1) + "\n", encoding="utf-8")


def _refuse_foreign(folder: Path) -> None:
    if not _PLAIN_PATH.fullmatch(str(folder.resolve())):
        raise ValueError(f"{folder.resolve()} has letters that Triton's shell would stumble over: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    foreign = sorted(path.name for path in folder.iterdir() if not path.match(_NAME.format(number="*")))
    if foreign:
        raise ValueError(f"{folder} holds other things than our models ({', '.join(foreign[:3])}): name another folder")
