"""`LoginWire`: one bare connection to a listener with SASL, on Apache Kafka or Penstock.

Frames and bytes are sent as given: whole, in pieces, several at once. Each connection has an
address of its own on the loopback network, because Penstock delays addresses with failed logins.
"""

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, Self

from penstock.protocol import codec, headers
from penstock.protocol.codec import Message
from tests.oracle.running_broker import HOST
from tests.oracle.secured_kafka import SASL_PLAINTEXT
from tests.oracle.secured_penstock import SecuredBroker

ANSWER_SECONDS: Final = 15.0
PIECE_SECONDS: Final = 0.003
"""Between two pieces, so that they arrive one by one."""

_connections = itertools.count()
"""Threads share it: a generator would refuse the second of two at once."""


def _address() -> str:
    """Return an address that no other connection comes from."""
    number, last = divmod(next(_connections), 254)
    return f"127.{1 + number // 256}.{number % 256}.{1 + last}"


class LoginWire:
    """A connection; `Wire` of `tests.security.sasl.conversations`."""

    def __init__(self, broker: SecuredBroker, protocol: str = SASL_PLAINTEXT) -> None:
        self._broker = broker
        target = (HOST, broker.ports[protocol])
        source = (_address(), 0)
        self.socket = socket.create_connection(target, ANSWER_SECONDS, source_address=source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")
        self._numbers = itertools.count(100)

    def send(self, frame: bytes) -> None:
        """Send a frame behind its length; a closed connection is seen by `receive`."""
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes, cuts: Sequence[int] = ()) -> None:
        """Send bytes, cut at these places."""
        with contextlib.suppress(ConnectionError):
            for start, stop in itertools.pairwise((0, *sorted(cuts), len(data))):
                self.socket.sendall(data[start:stop])
                if stop < len(data):
                    time.sleep(PIECE_SECONDS)

    def receive(self) -> bytes | None:
        """The next frame; None when the connection is closed."""
        try:
            head = self._reader.read(4)
            return self._reader.read(struct.unpack(">i", head)[0]) if head else None
        except ConnectionError:
            return None

    def is_open(self, seconds: float = 0.3) -> bool:
        """Whether the broker neither sends nor closes for this long."""
        self.socket.settimeout(seconds)
        try:
            return self._reader.peek(1) != b""
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        finally:
            self.socket.settimeout(ANSWER_SECONDS)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self, subject: str, lifetime_seconds: float) -> str:
        """A token that the broker accepts until it expires; an empty subject: one it refuses."""
        tokens = self._broker.tokens
        if not subject:
            return tokens.token(claims={"aud": "another"})
        return tokens.token(subject=subject, lifetime_seconds=lifetime_seconds)

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def request_bytes(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """A request frame with its length."""
    api_key = int(vars(type(message))["API_KEY"])
    head = headers.write_request_head(api_key, version, correlation_id, "conversation")
    content = head + codec.encode_request(message, version)
    return struct.pack(">i", len(content)) + content


def answered(frame: bytes | None, api_key: int, version: int) -> tuple[int, Message] | None:
    """The correlation id and the message of an answer; None for a closed connection."""
    if frame is None:
        return None
    view = memoryview(bytearray(frame))
    body = view[headers.response_body_start(api_key, version, view) :]
    return headers.read_correlation_id(view), codec.decode_response(api_key, version, body)
