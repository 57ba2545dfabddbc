"""`RefusedBatches`: how many batches producers were refused, and why. It decides nothing."""


class RefusedBatches:
    """The counts of one broker."""

    __slots__ = ("by_code", "without_room")

    def __init__(self) -> None:
        self.by_code: dict[int, int] = {}
        """By the error code that producers were told."""
        self.without_room = 0
        """Those among them that the disk had no room for."""

    def count(self, code: int, *, is_for_room: bool = False) -> None:
        """A producer is told this error of one batch."""
        self.by_code[code] = self.by_code.get(code, 0) + 1
        self.without_room += is_for_room
