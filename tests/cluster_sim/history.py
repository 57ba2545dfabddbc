"""`Recorder`: the operations of the simulated clients, for the history checker of `tests.checker`.

A process has one operation at a time. An operation of a client that is never answered stays open
and counts as unknown. Times are virtual.
"""

from collections.abc import Callable, Sequence

from tests.checker.history import Action, Name, Op, Type
from tests.cluster_sim.loop import SimulatedLoop


class Recorder:
    """The history of one run."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.operations: list[Op] = []
        self.on_acknowledged: Callable[[int, int], None] | None = None
        """Called with the key and the offset of each acknowledged record."""
        self._values = 0
        self._processes = 0

    def new_process(self) -> int:
        """Return the number of a new process."""
        self._processes += 1
        return self._processes

    def new_value(self) -> int:
        """Return a value that no other record has."""
        self._values += 1
        return self._values

    def add(
        self,
        process: int,
        kind: Type,
        name: Name,
        actions: Sequence[Action] = (),
        *,
        keys: Sequence[int] = (),
        is_from_beginning: bool = False,
        error: str = "",
    ) -> None:
        """Add an entry now."""
        self.operations.append(
            Op(
                index=len(self.operations),
                time_ns=int(self._loop.time() * 1e9),
                process=process,
                type=kind,
                name=name,
                actions=tuple(actions),
                keys=tuple(keys),
                is_from_beginning=is_from_beginning,
                error=error,
            )
        )
        if kind == "ok" and self.on_acknowledged is not None:
            for send in self.operations[-1].sends:
                if send.offset is not None:
                    self.on_acknowledged(send.key, send.offset)
