"""The few gRPC messages of Triton that we use, with the field numbers of its grpc_service.proto.

That file is the Open Inference Protocol v2 with Triton's repository extension
(https://github.com/triton-inference-server/common/blob/main/protobuf/grpc_service.proto); fields that are not listed
here are left out or skipped, as protobuf does. Declared here and not taken from `tritonclient`, which wants an older
protobuf than the service has, and three packages besides.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
    """Return a message's class."""
    return _CLASSES[name]
