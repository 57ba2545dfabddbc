"""`host` with one bound removed: `python -m tests.hostile.unguarded BOUND DOOR serve ...`.

For `test_hostile_guards` alone: a suite that cannot fail proves nothing. The product's code is
changed from outside, in this process, before it starts; so it has to be the source tree, not a
compiled package.
"""

import gc
import sys
from collections.abc import Callable
from typing import Final

from penstock.broker import dispatch, pieces
from penstock.broker.connections import session
from penstock.broker.handlers import offset_commit
from penstock.broker.pacing import slices
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.producing import produce_run
from penstock.node import garbage
from penstock.records import validation
from tests.crash.unguarded import replace
from tests.hostile import host

WITHOUT_BOUND: Final = 2**40


def batches_on_loop() -> None:
    """Unfold, scan and compress batches of any size on the event loop."""
    for name in vars(validation):
        if "_ON_LOOP_" in name:
            replace(validation, name, WITHOUT_BOUND)


def endless_turns() -> None:
    """Let a connection work to the end of what it sent."""
    replace(TurnBudget, "slice_seconds", lambda _self, _owner: WITHOUT_BOUND)
    # A wide Produce also stops for the disk.
    replace(produce_run, "PRODUCE_UNSYNCED_PARTITIONS_MAX", WITHOUT_BOUND)


def decoding_on_loop() -> None:
    """Decode requests with any number of elements on the event loop."""
    replace(dispatch, "ELEMENTS_ON_LOOP_MAX", WITHOUT_BOUND)


def encoding_on_loop() -> None:
    """Encode answers with any number of elements on the event loop."""
    replace(session, "ELEMENTS_ON_LOOP_MAX", WITHOUT_BOUND)


def no_slices() -> None:
    """Handle every item of a request in one turn."""

    async def go_on(_self: slices.NextTurn) -> None:
        return

    replace(slices.NextTurn, "wait_if_due", go_on)


def whole_commits() -> None:
    """Ask a coordinator for any number of partitions at once."""
    replace(offset_commit, "PIECE_PARTITIONS", WITHOUT_BOUND)
    replace(pieces, "PIECE_PARTITIONS", WITHOUT_BOUND)


def full_collections() -> None:
    """Collect garbage as Python does."""

    def calm() -> None:
        gc.set_threshold(50_000, 10, 10)
        gc.enable()

    replace(garbage, "calm", calm)


GUARDS: Final[dict[str, Callable[[], None]]] = {
    "batches-on-loop": batches_on_loop,
    "endless-turns": endless_turns,
    "decoding-on-loop": decoding_on_loop,
    "encoding-on-loop": encoding_on_loop,
    "no-slices": no_slices,
    "whole-commits": whole_commits,
    "full-collections": full_collections,
}


def main() -> None:
    GUARDS[sys.argv.pop(1)]()
    host.main()


if __name__ == "__main__":
    main()
