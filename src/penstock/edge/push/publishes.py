"""`PublishesInFlight`: records of one session that are published and not on disk yet. Pure."""

from penstock.edge.push.limits import PUBLISH_BYTES_IN_FLIGHT_MAX, PUBLISHES_IN_FLIGHT_MAX


class PublishesInFlight:
    """Message ids and sizes; at a bound, the session receives nothing more."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return (
            len(self._sizes) >= PUBLISHES_IN_FLIGHT_MAX
            or self.size_bytes >= PUBLISH_BYTES_IN_FLIGHT_MAX
        )

    def begin(self, message_id: int, size_bytes: int) -> bool:
        """Add a publish; False if its message id is in use."""
        if message_id in self._sizes:
            return False
        self._sizes[message_id] = size_bytes
        self.size_bytes += size_bytes
        return True

    def end(self, message_id: int) -> None:
        """The publish was answered."""
        self.size_bytes -= self._sizes.pop(message_id)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.size_bytes == sum(self._sizes.values())
