"""`MemoryBudget`: records and bytes of a consumer in memory, with a limit for each. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class MemoryBudget:
    """Records and bytes in memory; full at the limit, until half of it is free again."""

    records_max: int
    bytes_max: int
    records: int = 0
    size_bytes: int = 0
    is_full: bool = False

    def add(self, size_bytes: int) -> None:
        """Count a record."""
        self.records += 1
        self.size_bytes += size_bytes
        self.is_full |= self.records >= self.records_max or self.size_bytes >= self.bytes_max

    def remove(self, size_bytes: int) -> None:
        """Count a record that is done or dropped."""
        self.records -= 1
        self.size_bytes -= size_bytes
        if 2 * self.records <= self.records_max and 2 * self.size_bytes <= self.bytes_max:
            self.is_full = False
