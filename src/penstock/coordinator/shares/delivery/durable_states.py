"""The durable form of runs: state batches for the share coordinator. Pure.

An acquisition is not durable: its records are stored as available, with the deliveries before it.
Which runs are stored, and when, is NOT decided here.
"""

from penstock.coordinator.shares.delivery.runs import ACQUIRED, AVAILABLE, Run
from penstock.coordinator.shares.ports import StateBatch


def durable_state(run: Run, first: int, last: int) -> StateBatch:
    """Return the durable state of a part of a run; an acquisition is not durable."""
    if run.change is not None:
        return StateBatch(first, last, run.target, run.count)
    if run.state == ACQUIRED:
        return StateBatch(first, last, AVAILABLE, run.count - 1)
    return StateBatch(first, last, run.state, run.count)


def disjoint(states: dict[int, StateBatch]) -> list[StateBatch]:
    """Return the batches in order, without overlaps: a later span may repeat a former one."""
    found: list[StateBatch] = []
    for first in sorted(states):
        batch = states[first]
        if found and batch.first_offset <= found[-1].last_offset:
            if batch.last_offset <= found[-1].last_offset:
                continue
            batch = batch._replace(first_offset=found[-1].last_offset + 1)
        found.append(batch)
    return found
