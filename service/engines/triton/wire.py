"""The messages between the gateway and a replica that Triton hosts: JSON in one UINT8 tensor each way.

JSON and not pickle, because anyone who reaches Triton's port may send anything. Both ends run the same version.
"""

import dataclasses
import os
import time
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError

QUESTION = "question"  # the tensors' names
ANSWER = "answer"
DATATYPE = "UINT8"

_PARENTHESES = ")"  # ends the command's name in /proc/PID/stat; the name itself may hold spaces
_START_FIELD = 19  # of the fields after the name: proc(5)'s field 22, starttime


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


_requests: TypeAdapter[GenerationRequest | None] = TypeAdapter(GenerationRequest | None)
_results = TypeAdapter(GenerationResult)
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
    """Encode this process's own ReplicaInfo."""
    return _infos.dump_json(ReplicaInfo(model_id, version, ProcessName.of(os.getpid())))


def decode_info(data: bytes) -> ReplicaInfo:
    """Decode a ReplicaInfo. Raises ValueError for bytes that are none."""
    return _infos.validate_json(data)
