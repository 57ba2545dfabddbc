"""The errors of a response are found wherever Kafka puts them, in every API."""

import importlib
import pkgutil
import typing
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, cast

import pytest

from penstock.protocol import messages
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.response_errors import error_codes

PLAIN = {int: 0, str: "", bool: False, bytes: b"", float: 0.0}


def responses() -> list[type[Message]]:
    found = []
    for module_info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{module_info.name}")
        found += [
            kind
            for name, kind in vars(module).items()
            if name.endswith("Response") and hasattr(kind, "API_KEY")
        ]
    return found


def filled(kind: Any, placed: list[ErrorCode]) -> Any:  # noqa: ANN401 (a value of any field)
    """A value with one element in every array and an error in every field that can hold one."""
    choices = [choice for choice in typing.get_args(kind) if choice is not NoneType]
    if typing.get_origin(kind) is tuple:
        return (filled(choices[0], placed),)
    if NoneType in typing.get_args(kind):
        return filled(choices[0], placed)
    if kind is ErrorCode:
        placed.append(ErrorCode(len(placed) % 50 + 1))
        return placed[-1]
    if is_dataclass(kind):
        values = {field.name: filled(field.type, placed) for field in fields(kind)}
        return cast("type", kind)(**values)
    return PLAIN.get(kind)


@pytest.mark.parametrize("kind", responses(), ids=lambda kind: kind.__name__)
def test_every_error_is_found(kind: type[Message]) -> None:
    placed: list[ErrorCode] = []
    message = filled(kind, placed)
    assert sorted(error_codes(message)) == sorted(placed)


def test_there_are_responses_to_look_at() -> None:
    assert len(responses()) > 60


def test_no_error_is_none() -> None:
    good = PartitionData(
        partition_index=0, error_code=ErrorCode.NONE, high_watermark=0, records=b""
    )
    bad = PartitionData(
        partition_index=1,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        high_watermark=0,
        records=b"",
    )
    answer = FetchResponse(
        responses=(FetchableTopicResponse(topic="a", partitions=(good, bad, bad)),)
    )
    assert list(error_codes(answer)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert not error_codes(FetchResponse(responses=()))
    assert not error_codes(MetadataResponse(brokers=(), topics=()))


def test_an_error_at_the_top() -> None:
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
    assert list(error_codes(answer)) == [ErrorCode.UNSUPPORTED_VERSION]
