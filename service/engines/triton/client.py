"""A client for one model in a Triton server, over gRPC: ask, load and unload. It knows no pools and no restarts.

It declares the few messages that it uses, with the field numbers of Triton's grpc_service.proto: the Open Inference
Protocol v2 with Triton's repository extension
(https://github.com/triton-inference-server/common/blob/main/protobuf/grpc_service.proto). Fields that are not listed
here are left out or skipped, as protobuf does. `tritonclient` wants an older protobuf than the service has, and three
packages besides.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from service.engines.protocol import (
    EngineError,
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    RequestRefusedError,
)
from service.engines.triton.wire import (
    DATATYPE,
    QUESTION,
    ReplicaInfo,
    decode_info,
    decode_result,
    encode_request,
)

SERVICE = "/inference.GRPCInferenceService/"

_PACKAGE = "inference"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
}
# message -> field -> (number, type); [type] is repeated; any other type is a message of this table
_MESSAGES: dict[str, dict[str, tuple[int, str | list[str]]]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"version": (2, "string")},
    "InferTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, ["int64"])},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "inputs": (5, ["InferTensor"]),
        "raw_input_contents": (7, ["bytes"]),
    },
    "ModelInferResponse": {"outputs": (5, ["InferTensor"]), "raw_output_contents": (6, ["bytes"])},
    "RepositoryModelLoadRequest": {"model_name": (2, "string")},
    "RepositoryModelLoadResponse": {},
    "RepositoryModelUnloadRequest": {"model_name": (2, "string")},
    "RepositoryModelUnloadResponse": {},
}

T = TypeVar("T")
_MOST_BYTES = 16 * 1024 * 1024  # for one message, as between the server and its own replicas
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_send_message_length", _MOST_BYTES),
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.enable_http_proxy", 0),  # Triton is on this host, whatever proxy the environment names
]


def _build() -> dict[str, Any]:
    """Build the message classes by name, in a pool of their own: another library may have loaded the real file too."""
    file = descriptor_pb2.FileDescriptorProto(name="peakplan_triton.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated, kind_name = (True, kind[0]) if isinstance(kind, list) else (False, kind)
            added = message.field.add(name=field, number=number)
            added.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            added.type = _SCALARS.get(kind_name, _Field.TYPE_MESSAGE)
            if added.type == _Field.TYPE_MESSAGE:
                added.type_name = f".{_PACKAGE}.{kind_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _build()


def message(name: str) -> Any:
    return _CLASSES[name]


class ModelFailedError(EngineUnavailableError):
    """Raised when the model raised on this request. The replica stays alive."""


class TritonModel:
    """Calls about one model. Each raises EngineUnavailableError when it does not succeed in time."""

    def __init__(self, address: str, name: str) -> None:
        """Take `address`, host:port or unix:/path. Connects when first used; call inside the event loop."""
        self.name = name
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._methods = {
            method: self._channel.unary_unary(
                SERVICE + method,
                request_serializer=message(f"{method}Request").SerializeToString,
                response_deserializer=message(f"{method}Response").FromString,
            )
            for method in ("ServerLive", "ServerMetadata", "ModelInfer", "RepositoryModelLoad", "RepositoryModelUnload")
        }

    async def wait_until_live(self, seconds: float) -> None:
        """Return once the server answers, retrying until then."""
        await self._call("ServerLive", seconds, wait_for_ready=True)

    async def server_version(self, seconds: float) -> str:
        version: str = (await self._call("ServerMetadata", seconds)).version
        return version

    async def info(self, seconds: float) -> ReplicaInfo:
        """Return the replica's own information once it is free."""
        return self._read(decode_info, await self._infer(encode_request(None), seconds))

    async def generate(self, request: GenerationRequest, seconds: float | None) -> GenerationResult:
        """Answer a request. Also raises RequestRefusedError and ModelFailedError."""
        return self._read(decode_result, await self._infer(encode_request(request), seconds))

    async def load(self, seconds: float) -> None:
        """Load the model, and return once it is loaded; a loaded model with unchanged files stays as it is."""
        await self._call("RepositoryModelLoad", seconds, model_name=self.name)

    async def unload(self, seconds: float) -> None:
        """Take no more requests, finish those in flight, end the process. Returns at once; harmless when not loaded."""
        await self._call("RepositoryModelUnload", seconds, model_name=self.name)

    async def close(self) -> None:
        await self._channel.close()

    async def _infer(self, body: bytes, seconds: float | None) -> bytes:
        tensor = message("InferTensor")(name=QUESTION, datatype=DATATYPE, shape=[len(body)])
        answer = await self._call(
            "ModelInfer", seconds, model_name=self.name, inputs=[tensor], raw_input_contents=[body]
        )
        return b"".join(answer.raw_output_contents)

    def _read(self, decode: Callable[[bytes], T], body: bytes) -> T:
        try:
            return decode(body)
        except ValueError:
            raise EngineUnavailableError(f"{self.name} in Triton at {self._address} gave no answer of ours") from None

    async def _call(self, method: str, seconds: float | None, *, wait_for_ready: bool = False, **fields: Any) -> Any:
        request = message(f"{method}Request")(**fields)
        try:
            return await self._methods[method](request, timeout=seconds, wait_for_ready=wait_for_ready)
        except grpc.aio.AioRpcError as error:
            raise self._told(method, error) from None
        except asyncio.CancelledError:
            if _is_cancelled_from_outside():
                raise
            raise EngineUnavailableError(f"the connection to Triton at {self._address} is closed") from None

    def _told(self, method: str, error: grpc.aio.AioRpcError) -> EngineError:
        """Return our own error for Triton's. `host.py` uses two codes: a refused request, and a model that failed."""
        details = " ".join((error.details() or "").split())
        match method, error.code():
            case "ModelInfer", grpc.StatusCode.INVALID_ARGUMENT:
                return RequestRefusedError.of(details)
            case "ModelInfer", grpc.StatusCode.UNKNOWN:
                return ModelFailedError(details)
            case _, grpc.StatusCode.DEADLINE_EXCEEDED:
                return EngineUnavailableError(f"{self.name} in Triton at {self._address} did not answer in time")
        return EngineUnavailableError(f"{self.name} in Triton at {self._address}: {error.code().name}, {details}")


def _is_cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
