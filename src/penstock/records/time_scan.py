"""Finds a record by time in a decompressed batch, in slices, without an object for a record.

Guarantees: `find_time` reads only the bytes it is given, walks at most `count` records and returns
where it stopped, so that a caller can continue there, let other threads run in between, or stop. It
takes time in proportion to the records; bytes that cannot be records raise `CorruptBatchError`.

It reads two numbers of most records, the length and the timestamp. It does not check records: the
broker did when they were produced (`records.scan`).

The file is compiled. It is plain Python; `time_scan.pxd` beside it gives the C types. Uncompiled it
does the same, about thirty times slower. Every change here must be correct for 64-bit integers that
wrap: no operation may overflow, because uncompiled it would not.
"""

from penstock.core.errors import CorruptBatchError


class _Walker:
    """A position in the bytes that never passes `end`; a fault stays in `faults`."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0
        self.end = 0
        self.faults = 0

    def number(self, bits: int) -> int:
        """A zigzag varint of at most `bits` bits, 32 or 64; 0 after a fault."""
        position = self.position
        end = self.end
        raw = 0
        shift = 0
        while position < end:
            byte = self.data[position]
            position += 1
            # The last allowed byte has room for 4 (or 1) of its 7 bits.
            if shift + 7 > bits and byte >> (bits - shift):
                self.faults = 1
                return 0
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.faults = 1
        return 0


def find_time(
    data: memoryview, position: int, count: int, delta_ms_min: int, offset_delta_min: int
) -> tuple[int, int, int, int]:
    """Walk `count` records, starting at `position`, or to the first that is late and far enough.

    Returns the position behind the last record walked, how many were walked, and the timestamp
    delta and offset delta of the record found; the offset delta is -1 when there is none. Both
    minima count from the base of the batch. `data` has the format "B".
    """
    size = len(data)
    walker = _Walker(data)
    walked = 0
    while walked < count:
        # Numbers of one byte, which are most, cost no call.
        if position < size and data[position] < 0x80:
            byte = data[position]
            length = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            walker.position = position
            walker.end = size
            length = walker.number(32)
            position = walker.position
        if walker.faults != 0 or length < 2 or length > size - position:
            break
        end = position + length
        position += 1
        byte = data[position]
        if byte < 0x80:
            delta_ms = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            walker.position = position
            walker.end = end
            delta_ms = walker.number(64)
            position = walker.position
            if walker.faults != 0:
                break
        walked += 1
        if delta_ms >= delta_ms_min:
            walker.position = position
            walker.end = end
            offset_delta = walker.number(32)
            if walker.faults != 0 or offset_delta < 0:
                break
            if offset_delta >= offset_delta_min:
                return end, walked, delta_ms, offset_delta
        position = end
    else:
        return position, walked, 0, -1
    raise CorruptBatchError(f"the record at byte {position} of an unfolded batch is damaged")
