"""The sizes of the growing parts of one buffer: levels of items, or columns of texts (pure).

Guarantees: no size is above `SIZE_MAX`, the limit of 32-bit offsets, and `grow` enlarges nothing if
the buffer would exceed its limit. The number of growths of one batch is at most `GROWTHS_MAX`, so
that the time for copies does not depend on the number of columns.

Each growth copies the whole buffer, and the row begins again. So several parts grow at once: those
that are more than half full, and after a few growths all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

SIZE_MAX: Final = 2**31 - 1
GROWTHS_MAX: Final = 64
_GROWTHS_ALONE: Final = 4
"""After this number of growths in a batch, all parts grow at once, up to half of the limit."""


class Rooms:
    """The sizes of several parts, by their numbers."""

    def __init__(
        self, numbers: Sequence[int], smallest: int, total: Callable[[Mapping[int, int]], int]
    ) -> None:
        """`total` returns the bytes of the buffer for some sizes."""
        self._smallest = smallest
        self._total = total
        self._growths = 0
        self.sizes = dict.fromkeys(numbers, smallest)

    def begin(self, least: int, limit: int) -> None:
        """Begin a batch: with the remembered sizes, and `least` for each within the limit."""
        self._growths = 0
        wider = {one: max(size, min(least, SIZE_MAX)) for one, size in self.sizes.items()}
        if self._total(wider) <= limit:
            self.sizes = wider
        elif self._total(self.sizes) > limit:
            self.reset()

    def reset(self) -> None:
        """Forget the sizes of earlier batches."""
        self.sizes = dict.fromkeys(self.sizes, self._smallest)

    def grow(self, full: int, used: Callable[[int], int], limit: int) -> bool:
        """Double at least this part; return whether there was room for that."""
        self._growths += 1
        if self._growths > GROWTHS_MAX or self.sizes[full] >= SIZE_MAX:
            return False
        doubled = {one: min(2 * size, SIZE_MAX) for one, size in self.sizes.items()}
        alone = {**self.sizes, full: doubled[full]}
        if self._total(alone) > limit:
            return False
        self.sizes = alone
        if self._growths > _GROWTHS_ALONE and self._total(doubled) <= limit // 2:
            self.sizes = doubled
            return True
        busy = {one: doubled[one] for one, size in alone.items() if 2 * used(one) > size}
        wider = {**alone, **busy, full: doubled[full]}
        if self._total(wider) <= limit:
            self.sizes = wider
        return True

    def remember(self, used: Callable[[int], int]) -> None:
        """Keep slightly more than what was used for the next batch; shrink by half at most."""
        self.sizes = {
            one: min(max(_more(used(one)), size // 2, self._smallest), SIZE_MAX)
            for one, size in self.sizes.items()
        }


def _more(size: int) -> int:
    return size + size // 8
