"""How many calls and sessions the gateway carries out, over all and of an address.

`CallAdmission` counts them, and `MessageRoom` the bytes of their messages and answers in sum.

Pure. A call that is refused uses no memory for its message: it is counted before gRPC reads it.
"""

from collections import Counter
from types import TracebackType
from typing import Self

from penstock.core.client_host import host_of
from penstock.edge.grpc_gateway.gateway_limits import (
    CALLS_MAX,
    CALLS_PER_ADDRESS_MAX,
    MESSAGES_BYTES_MAX,
)
from penstock.edge.grpc_gateway.gateway_statuses import RESOURCE_EXHAUSTED, GatewayRefusalError


class CallAdmission:
    """The calls that are under way."""

    def __init__(
        self, calls_max: int = CALLS_MAX, per_address_max: int = CALLS_PER_ADDRESS_MAX
    ) -> None:
        self._calls_max = calls_max
        self._per_address_max = per_address_max
        self._by_address: Counter[str] = Counter()
        self.count = 0
        self.refused = 0

    def begin(self, address: str) -> None:
        """Count a call; raise `GatewayRefusalError` above a bound."""
        host = host_of(address)
        found = self._by_address[host]
        if self.count >= self._calls_max or found >= self._per_address_max:
            self.refused += 1
            if not found:
                del self._by_address[host]
            bound = (
                f"{address} has {found} calls, the limit of an address is {self._per_address_max}"
                if found >= self._per_address_max
                else f"the gateway has {self.count} calls, its limit"
            )
            raise GatewayRefusalError(
                RESOURCE_EXHAUSTED, f"{bound}; wait for answers, and retry", retriable=True
            )
        self.count += 1
        self._by_address[host] += 1

    def end(self, address: str) -> None:
        """A call has ended."""
        self.count -= 1
        host = host_of(address)
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.count == sum(self._by_address.values()) <= self._calls_max
        assert all(0 < one <= self._per_address_max for one in self._by_address.values())


class MessageRoom:
    """The bytes of all messages and answers."""

    def __init__(self, bytes_max: int = MESSAGES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def share(self, size_bytes: int) -> "RoomShare":
        """Return room for the messages of one call; use it in a with statement."""
        return RoomShare(self, size_bytes)

    def change(self, size_bytes: int) -> None:
        """Use more bytes, or fewer; raise `GatewayRefusalError` above the bound.

        A lone answer above the bound is let through: no other one can be smaller.
        """
        if size_bytes > 0 and 0 < self.used_bytes > self._bytes_max - size_bytes:
            raise GatewayRefusalError(
                RESOURCE_EXHAUSTED,
                f"the messages of all calls and sessions have {self.used_bytes} bytes, the limit "
                f"is {self._bytes_max}; wait for answers, and retry",
                retriable=True,
            )
        self.used_bytes += size_bytes


class RoomShare:
    """The bytes of one call."""

    __slots__ = ("_room", "_size_bytes")

    def __init__(self, room: MessageRoom, size_bytes: int) -> None:
        self._room = room
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        self._room.change(self._size_bytes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._room.change(-self._size_bytes)

    def resize(self, size_bytes: int) -> None:
        """Use another number of bytes; raise `GatewayRefusalError` if there is no room."""
        self._room.change(size_bytes - self._size_bytes)
        self._size_bytes = size_bytes
