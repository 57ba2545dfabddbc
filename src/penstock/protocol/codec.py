"""The only module that uses kio: bytes and (API key, version) to a message, and a message to bytes.

A message is one class for all versions (`messages/`). Decoding lifts: fields that an old version
lacks keep their defaults. Encoding lowers: fields that the version lacks are dropped if they may be
(`ignorable_fields`), else `LostFieldError`. kio has the schema of each version; the decoder and the
encoder of a (message, version) are compiled from it when it is first used (1 to 10 ms), so no
schema is imported at start-up. `decoder_source` says why kio's reader never sees a peer's bytes.

Every failure of decoding is `MalformedRequestError` or `MalformedResponseError`. Which versions are
served is NOT known here: a version that kio does not have is an `UnsupportedApiError`.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Final, Protocol, cast

import kio

from penstock.core.errors import (
    MalformedRequestError,
    MalformedResponseError,
    UnsupportedApiError,
)
from penstock.core.limits import ELEMENTS_PER_REQUEST_MAX
from penstock.core.untracked import untracked
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder_source import DecoderSource
from penstock.protocol.encoder_source import Buffer, EncoderSource
from penstock.protocol.schema import StructShape, describe
from penstock.protocol.wire import WIRE_ERRORS

JOINED_BYTES_MAX: Final = 4_096
"""Buffers smaller than this are joined with their neighbours: a copy is cheaper than an iovec."""

JOINED_PARTS_MAX: Final = 4_000
"""Buffers joined in one step of a thread: about 0.2 ms."""


class Message(Protocol):
    """The attributes of every generated top-level message."""

    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_SINCE: ClassVar[int | None]


Decoder = Callable[[memoryview, int, int, int], Message]
Encoder = Callable[[Message, Callable[[Buffer], None]], None]


def decode_request(
    api_key: int, version: int, body: Buffer, elements_max: int = ELEMENTS_PER_REQUEST_MAX
) -> Message:
    """The request in a body; records in it are slices of `body`.

    More array elements than `elements_max` are an error, raised before their objects are created.
    """
    decode = request_decoder(api_key, version)
    view = memoryview(body)
    try:
        return decode(view, 0, len(view), elements_max)
    except WIRE_ERRORS as error:
        raise MalformedRequestError(f"{_name(api_key)} request v{version}: {error}") from error


def decode_response(api_key: int, version: int, body: Buffer) -> Message:
    """The response in a body; records in it are slices of `body`."""
    decode = response_decoder(api_key, version)
    view = memoryview(body)
    try:
        # A response may list every partition of a cluster; its frame bounds it, not a budget.
        return decode(view, 0, len(view), len(view))
    except WIRE_ERRORS as error:
        raise MalformedResponseError(f"{_name(api_key)} response v{version}: {error}") from error


def encode_request(message: Message, version: int) -> bytes:
    """The body of a request in one version."""
    return b"".join(encode_buffers(message, version))


def encode_response(message: Message, version: int) -> bytes:
    """The body of a response in one version."""
    return b"".join(encode_buffers(message, version))


def encode_buffers(message: Message, version: int, *, is_wide: bool = False) -> list[Buffer]:
    """The body as buffers in order; records are in it uncopied.

    Garbage collections do not visit the buffers of a wide message, half a million or more.
    """
    parts: list[Buffer] = untracked([]) if is_wide else []
    message_encoder(type(message), version)(message, parts.append)
    return parts


def join_small(parts: list[Buffer], total_bytes: int) -> list[Buffer]:
    """The same bytes in fewer buffers: large ones stay unchanged, small neighbours are joined."""
    if total_bytes < JOINED_BYTES_MAX:
        return [b"".join(parts)]
    joined: list[Buffer] = []
    pending: list[Buffer] = []
    for part in parts:
        if len(part) < JOINED_BYTES_MAX:
            pending.append(part)
            continue
        if pending:
            joined.append(b"".join(pending))
            pending = []
        joined.append(part)
    if pending:
        joined.append(b"".join(pending))
    return joined


def join_in_steps(parts: list[Buffer]) -> list[Buffer]:
    """As `join_small`, for very many buffers on a thread; `parts` is empty afterwards.

    The thread keeps the interpreter during one step only: to join and to free half a million
    buffers takes 20 ms, in which no other thread runs.
    """
    joined: list[Buffer] = []
    parts.reverse()
    while parts:
        step = parts[-JOINED_PARTS_MAX:]
        del parts[-JOINED_PARTS_MAX:]
        step.reverse()
        joined += join_small(step, sum(map(len, step)))
    return joined


@cache
def request_decoder(api_key: int, version: int) -> Decoder:
    """The compiled decoder of a request."""
    return message_decoder(_message_class(api_key, "Request"), version)


@cache
def response_decoder(api_key: int, version: int) -> Decoder:
    """The compiled decoder of a response."""
    return message_decoder(_message_class(api_key, "Response"), version)


@cache
def message_decoder(message_class: type[Message], version: int) -> Decoder:
    """The compiled decoder of any message, also of messages that are no request or response."""
    shape = message_shape(message_class, version)
    return cast("Decoder", DecoderSource(shape, nested_classes(shape, message_class)).compile())


@cache
def message_encoder(message_class: type[Message], version: int) -> Encoder:
    """The compiled encoder of any message."""
    shape = message_shape(message_class, version)
    return cast("Encoder", EncoderSource(shape, nested_classes(shape, message_class)).compile())


def message_shape(message_class: type[Message], version: int) -> StructShape:
    """The shape of a version of a message, read from kio's class of it."""
    low, high = message_class.VERSIONS
    if not low <= version <= high:
        api_key: int = getattr(message_class, "API_KEY", -1)
        raise UnsupportedApiError(api_key, version)
    api_name = message_class.__module__.rpartition(".")[2]
    module = importlib.import_module(f"{kio.__name__}.schema.{api_name}.v{version}")
    return describe(getattr(module, message_class.__name__))


def _message_class(api_key: int, suffix: str) -> type[Message]:
    try:
        name = ApiKey(api_key).name
        module = importlib.import_module(f"penstock.protocol.messages.{name.lower()}")
    except (ValueError, ModuleNotFoundError):
        # An API key that Kafka has retired is in the enum and has no messages.
        raise UnsupportedApiError(api_key, -1) from None
    message_class: type[Message] = getattr(module, name.title().replace("_", "") + suffix)
    return message_class


def nested_classes(shape: StructShape, message_class: type[Message]) -> dict[str, type]:
    """Our class for each structure of a shape; names shared by a request and a response differ."""
    module = importlib.import_module(message_class.__module__)
    prefix = "Request" if message_class.__name__.endswith("Request") else "Response"
    found: dict[str, type] = {}
    pending = [shape]
    while pending:
        struct = pending.pop()
        found[struct.name] = getattr(module, prefix + struct.name, None) or getattr(
            module, struct.name
        )
        pending += [field.struct for field in struct.fields if field.struct is not None]
    return found


def _name(api_key: int) -> str:
    return ApiKey(api_key).name
