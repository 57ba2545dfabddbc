"""`free_in_slices`: the objects of a wide message are freed a slice in each turn of the event loop.

The last reference to a message with a hundred thousand elements frees all of them at once, which
takes 10 to 15 ms of the loop; a thread that frees them keeps the interpreter as long. Here the
caller gives up its reference, and the elements are released one after the other. Elements that
another owner still refers to stay. It is for requests and answers above `ELEMENTS_ON_LOOP_MAX`.

`exempt_arrays`: garbage collections do not visit the large arrays of such a message.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.broker.pacing.slices import SLICE_ITEMS
from penstock.broker.pacing.turns import TurnBudget
from penstock.core.clock import Clock
from penstock.core.untracked import untracked
from penstock.protocol.codec import Message
from penstock.protocol.element_count import array_fields


def free_in_slices(holder: list[Message], turns: TurnBudget, clock: Clock) -> None:
    """Free the message that `holder` has, if any; the caller keeps no other reference."""
    if holder:
        turns.join(_Freeing(holder.pop(), turns, clock), 0.0)


def exempt_arrays(message: Message) -> None:
    """Exclude the arrays of a wide message and of its first parts from garbage collections.

    A message has one long array, or a few parts with long ones.
    """
    for elements in _arrays(message):
        untracked(elements)
        for structure in elements[:SLICE_ITEMS]:
            for inner in _arrays(structure):
                untracked(inner)


def _arrays(structure: object) -> Iterator[Sequence[Any]]:
    """The arrays of structures in a structure, without empty ones."""
    for name in array_fields(type(structure)):
        elements = getattr(structure, name)
        if elements:
            yield elements


class _Freeing:
    """`Resumable` that owns the rest of one message."""

    __slots__ = ("_clock", "_leaves", "_structures", "_turns", "turn_seconds", "turn_tag")

    def __init__(self, message: Message, turns: TurnBudget, clock: Clock) -> None:
        self._turns = turns
        self._clock = clock
        self._structures: list[Any] = untracked([message])
        """Objects with arrays of structures, which are taken apart."""
        self._leaves: list[Any] = untracked([])
        """Objects without such arrays, which are only released."""
        self.turn_tag = 0.0
        self.turn_seconds = 0.0

    def continue_turn(self) -> None:
        """Free some more."""
        begun = now = self._clock.monotonic()
        deadline = begun + self._turns.slice_seconds(self)
        while True:
            if self._leaves:
                del self._leaves[-SLICE_ITEMS:]
            else:
                self._take_apart()
            now = self._clock.monotonic()
            is_done = not self._leaves and not self._structures
            if is_done or now >= deadline:
                break
        self._turns.spend(self, now - begun)
        if not is_done:
            self._turns.join(self, now - begun)

    def _take_apart(self) -> None:
        """Replace some structures by the elements of their arrays."""
        for _ in range(min(SLICE_ITEMS, len(self._structures))):
            structure = self._structures.pop()
            for elements in _arrays(structure):
                has_arrays = bool(array_fields(type(elements[0])))
                (self._structures if has_arrays else self._leaves).extend(elements)
