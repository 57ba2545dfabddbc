"""A program that runs one scenario of the store and is killed at every SQL statement in turn.

For each number N it forks a child that kills itself (SIGKILL) before its Nth statement, then looks
at the file as the next start would: the file opens, and the served rows are those of the events
below the served positions. It ends when a child completes the scenario, and prints the number.
"""

import os
import signal
import sqlite3
import sys
import uuid
from pathlib import Path
from typing import Any

from penstock.materialize.index_columns import columns_of, parse_index
from penstock.materialize.row_store import Gap, Portion, RowStore
from penstock.records.record import Record
from tests.materialize.topic_model import (
    Event,
    compacted,
    stored_positions,
    stored_rows,
)

IDS = {1: uuid.UUID(int=1), 2: uuid.UUID(int=2)}
GAP_FROM, GAP_UNTIL = 6, 9
CONNECT = sqlite3.connect


def events_of(generation: int) -> list[Event]:
    """The log of a generation: updates, tombstones, two partitions."""
    events = []
    for partition in (0, 1):
        for offset in range(6):
            key = f"k{offset % 3}".encode()
            value = None if offset == 4 else f'{{"sku": "{generation}-{offset}"}}'.encode()
            events.append(Event(partition, offset, key, value))
    return events


def portions(generation: int) -> list[Portion]:
    found = []
    for start in (0, 2, 4):
        portion = Portion()
        for event in events_of(generation):
            if start <= event.offset < start + 2:
                record = Record(event.key, event.value, (), 1, event.offset)
                portion.of("price", generation, event.partition).add([record])
                portion.advance("price", generation, event.partition, event.offset + 1)
        found.append(portion)
    return found


def scenario(path: Path) -> None:
    columns = columns_of("price", [parse_index("$.sku")])
    store = RowStore.open(path)
    store.begin_topic("price", IDS[1], {0: 0, 1: 0}, columns)
    for portion in portions(1):
        store.apply(portion)
    store.declare_gap(Gap("price", 0, GAP_FROM, GAP_UNTIL, 1), 1)
    store.begin_generation("price", IDS[2], {0: 0, 1: 0}, {0: 6, 1: 6})
    for portion in portions(2):
        store.apply(portion)
    store.set_columns("price", columns_of("price", [parse_index("code=$.sku")]))
    store.close()


def check(path: Path) -> None:
    """What the next start finds; raises AssertionError when rows and positions disagree."""
    if not path.exists():
        return
    RowStore.open(path).close()
    store = RowStore.open(path)
    topics, gaps = store.topics(), store.gaps()
    store.close()
    if "price" not in topics:
        return
    live = topics["price"].live
    assert live.topic_id == IDS[live.number]
    below = [one for one in events_of(live.number) if one.offset < live.positions[one.partition]]
    assert stored_rows(path, "price") == compacted(below), live
    assert stored_positions(path, "price") == live.positions
    if live.number == 1:
        assert bool(gaps) == (live.positions[0] == GAP_UNTIL)
    else:
        assert gaps == []
        assert live.positions == {0: 6, 1: 6}, "a build was served before it was complete"


def kill_at(number: int) -> None:
    """Count the statements of all connections, and end the process before one of them."""
    left = number

    def count(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
        connection: sqlite3.Connection = CONNECT(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]


def main(folder: Path) -> None:
    number = 0
    while True:
        number += 1
        path = folder / f"{number}" / "x.sqlite"
        child = os.fork()
        if child == 0:
            kill_at(number)
            scenario(path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check(path)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    print(number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
