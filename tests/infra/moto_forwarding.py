"""CloudFormation types for moto that send a template's properties to the service's own API on the same server.

Knows how to forward; `moto_models` says which types and which calls. botocore refuses what the real API would not
understand.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.parsers import ResponseParserError
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import CloudFormationModel

Properties = dict[str, Any]
Call = Callable[[str, Properties], Properties]  # region, properties -> the API's answer


@dataclass(frozen=True)
class Forwarded:
    """One CloudFormation type and the calls that stand behind it; `put` both creates and updates."""

    kind: str
    put: Call
    delete: Call
    name: str = ""  # the API's name parameter, generated where the template gives none
    ref: str = ""  # the property or the answer's field that `Ref` gives; `name` where it is empty


@cache  # a client reads its API's whole model, and takes as long as a hundred calls
def client(service: str, region: str) -> Any:
    """The service's API on this very server; a failure is a failure at once, without botocore's retries."""
    return boto3.client(
        service,
        region_name=region,
        endpoint_url=f"http://127.0.0.1:{os.environ['MOTO_PORT']}",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(retries={"max_attempts": 0}),
    )


def fit(value: Any, shape: Shape) -> Any:
    """A template's value as the API's type: CloudFormation also takes "60" for 60 and "true" for true."""
    if isinstance(shape, StructureShape):
        return {name: fit(part, shape.members[name]) if name in shape.members else part for name, part in value.items()}
    if isinstance(shape, ListShape):
        return [fit(part, shape.member) for part in value]
    if isinstance(shape, MapShape):
        return {name: fit(part, shape.value) for name, part in value.items()}
    convert: dict[str, Callable[[Any], Any]] = {
        "integer": int,
        "long": int,
        "double": float,
        "string": str,
        "boolean": lambda flag: str(flag).lower() == "true",
    }
    return convert[shape.type_name](value) if shape.type_name in convert else value


def call(service: str, operation: str, *only: str) -> Call:
    """An API operation as a function of a template's properties, of the named ones only where names are given.

    The function raises botocore's ParamValidationError for a property that the API does not know.
    """

    def send(region: str, properties: Properties) -> Properties:
        api = client(service, region)
        chosen = {name: properties[name] for name in only if name in properties} if only else properties
        parameters = fit(chosen, api.meta.service_model.operation_model(operation).input_shape)
        method = next(name for name, known in api.meta.method_to_api_mapping.items() if known == operation)
        answer: Properties = getattr(api, method)(**parameters)
        return answer

    return send


def gone_is_fine(delete: Call) -> Call:
    """CloudFormation may have deleted what the resource hung on, and the resource with it."""

    def send(region: str, properties: Properties) -> Properties:
        try:
            return delete(region, properties)
        except (ClientError, ResponseParserError):  # moto answers 500 for a warm pool without its group
            return {}

    return send


def nothing(region: str, properties: Properties) -> Properties:
    """Do nothing: for deletions without an API call, and for creations that moto only stores."""
    del region, properties
    return {}


class Resource:
    """What moto asks of a CloudFormation resource, for the type in `forwarded`."""

    forwarded: Forwarded

    def __init__(self, name: str, properties: Properties, region: str) -> None:
        given = {self.forwarded.name: name} if self.forwarded.name else {}
        self.name, self.region, self.properties = name, region, given | properties
        try:
            self.answer = self.forwarded.put(region, self.properties)
        except (
            BotoCoreError,
            ClientError,
        ) as error:  # an answer to the client, where anything else is a 500 it retries
            raise ValidationError(name, f"{self.forwarded.kind}: {error}") from error

    @property
    def physical_resource_id(self) -> str:
        ref = self.forwarded.ref or self.forwarded.name
        return str(self.answer.get(ref) or self.properties.get(ref) or self.name)

    def get_cfn_attribute(self, attribute: str) -> Any:
        if attribute == "Arn" and self.forwarded.name == "AlarmName":
            return f"arn:aws:cloudwatch:{self.region}:123456789012:alarm:{self.physical_resource_id}"
        return self.answer.get(attribute) or self.properties[attribute]

    def is_created(self) -> bool:
        return True

    def delete(self, account_id: str, region_name: str) -> None:  # noqa: ARG002  # moto's signature
        self.forwarded.delete(region_name, self.properties | self.answer)

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:  # noqa: ARG003  # the value is asked for, and missed, later
        return True

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.forwarded.kind

    @classmethod
    def cloudformation_name_type(cls) -> str:
        return cls.forwarded.name

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Properties, account_id: str, region_name: str, **_: Any
    ) -> "Resource":
        del account_id  # moto_server has one account
        return cls(resource_name, cloudformation_json["Properties"], region_name)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: "Resource",
        new_resource_name: str,
        cloudformation_json: Properties,
        account_id: str,
        region_name: str,
    ) -> "Resource":
        del account_id
        properties = cloudformation_json["Properties"]
        named = cls.forwarded.name in properties
        if named and new_resource_name != original_resource.name:  # a new name is a replacement
            original_resource.delete("", region_name)
        return cls(new_resource_name if named else original_resource.name, properties, region_name)


def register(forwarded: Forwarded) -> None:
    """Make the type known to moto, which looks up CloudFormationModel's direct subclasses when it first needs them."""
    type(forwarded.kind.replace("::", ""), (Resource, CloudFormationModel), {"forwarded": forwarded})


_changes: list[Callable[[], None]] = []


def instead(owner: type, name: str, *, of_class: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function stand for a method of moto's, which it gets before all other arguments: None where there is none.

    `change_moto` does so, in the order in which the functions are written; a class's method is bound already.
    """

    def noted(made: Callable[..., Any]) -> Callable[..., Any]:
        def change() -> None:
            bare = getattr(owner, name, None)

            def method(it: Any, /, *given: Any, **named: Any) -> Any:
                return made(bare, *given, **named) if of_class else made(bare, it, *given, **named)

            setattr(owner, name, classmethod(method) if of_class else method)

        _changes.append(change)
        return made

    return noted


def change_moto() -> None:
    """Extend moto in this process, before it has its first stack."""
    for change in _changes:
        change()
