"""`RefusedBatches`: counts refused batches by error code. It decides nothing."""


class RefusedBatches:
    """The counts of one broker."""

    __slots__ = ("by_code", "without_room")

    def __init__(self) -> None:
        self.by_code: dict[int, int] = {}
        """By the error code in the answer."""
        self.without_room = 0
        """Batches among them that were refused because the disk was full."""

    def count(self, code: int, *, is_for_room: bool = False) -> None:
        """Count one batch that was refused with this error."""
        self.by_code[code] = self.by_code.get(code, 0) + 1
        self.without_room += is_for_room
