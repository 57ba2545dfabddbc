"""Tables of history, SCD type 2: the versions of rows equal the log of the database.

The log arrives out of order, partly twice, in batches of any size, with replayed rejects, each
batch by a new driver. The plain model sorts the log.
"""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.errors import DefinitionError, SchemaError
from penstock.spark.tables.values.cdc.row_versions import HISTORY_COLUMNS, times_of, versions_after
from tests.spark.cdc.events import Record, event
from tests.spark.cdc.test_cdc_model import DDL, SHORT, STRICT, Database, shuffled
from tests.spark.tables.value_world import GOOD_US, ValueWorld

NAMES = ("id", "name", "_sequence", "_valid_to", "_is_current", "_is_deleted")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def history(folder: Path, kind: str, ddl: str = DDL) -> ValueWorld:
    """Both tables of a pipeline with a history."""
    return ValueWorld(
        folder,
        kind,
        ddl,
        {"mode": "upsert", "key": ["id"], "history": True},
        value={
            "envelope": "debezium",
            "sequence_by": ["source.lsn"],
            "reject_share_max": 1.0,
        },
    )


def commit(world: ValueWorld, records: list[Record]) -> None:
    world.commit([one.value for one in records], keys=[one.key for one in records])


def at(record: Record, second: int) -> Record:
    """The event, with this time in the database."""
    value = record.value or b""
    moment = str(1_767_225_600_000 + second * 1000).encode()
    return record._replace(value=value.replace(b'"ts_ms":1767225600000', b'"ts_ms":' + moment))


def put(key: int, name: str | None, lsn: int, order: int | None = None) -> Record:
    row = {"id": key, "name": name, "big": lsn}
    return at(event("u", row, lsn, order=order, fields=SHORT), lsn)


def gone(key: int, lsn: int) -> Record:
    return at(event("d", {"id": key}, lsn, fields=SHORT), lsn)


def versions(world: ValueWorld) -> list[tuple[Any, ...]]:
    """Key, name, begin and end in seconds, and the marks, in order."""
    table = world.rows.read().sort_by([("id", "ascending"), ("_sequence", "ascending")])
    return [
        (
            one["id"],
            one["name"],
            _second(one["_valid_from"]),
            _second(one["_valid_to"]),
            one["_is_current"],
            one["_is_deleted"],
        )
        for one in table.to_pylist()
    ]


def _second(moment: datetime | None) -> int | None:
    return None if moment is None else int((moment - EPOCH).total_seconds())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_versions_of_a_row(tmp_path: Path, kind: str) -> None:
    world = history(tmp_path, kind)
    commit(world, [put(1, "a", 10), put(2, "x", 11)])
    commit(world, [put(1, "c", 30), gone(2, 31)])
    expected = [
        (1, "a", 10, 30, False, False),
        (1, "c", 30, None, True, False),
        (2, "x", 11, 31, False, False),
        (2, None, 31, None, False, True),
    ]
    assert versions(world) == expected
    commit(world, [put(1, "a", 10), gone(2, 31)])  # sent again
    assert versions(world) == expected
    commit(world, [put(1, "b", 20), put(2, "y", 20), put(3, "new", 40)])  # late
    assert versions(world) == [
        (1, "a", 10, 20, False, False),
        (1, "b", 20, 30, False, False),
        (1, "c", 30, None, True, False),
        (2, "x", 11, 20, False, False),
        (2, "y", 20, 31, False, False),
        (2, None, 31, None, False, True),
        (3, "new", 40, None, True, False),
    ]
    commit(world, [put(2, "back", 50), gone(4, 51)])
    assert versions(world)[5:] == [
        (2, None, 31, 50, False, True),
        (2, "back", 50, None, True, False),
        (3, "new", 40, None, True, False),
        (4, None, 51, None, False, True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_event_that_is_sent_again_with_another_number_is_the_same_version(
    tmp_path: Path, kind: str
) -> None:
    """Debezium counts the events of a transaction anew after a crash within it."""
    world = history(tmp_path, kind)
    commit(world, [put(1, "a", 10, order=1), put(1, "b", 11, order=5)])
    expected = [(1, "a", 10, 11, False, False), (1, "b", 11, None, True, False)]
    assert versions(world) == expected
    commit(world, [put(1, "b", 11, order=4)])
    assert versions(world) == expected
    commit(world, [put(1, "c", 12, order=2), put(1, "b", 11, order=1), put(1, "c", 12, order=1)])
    assert versions(world) == [
        (1, "a", 10, 11, False, False),
        (1, "b", 11, 12, False, False),
        (1, "c", 12, None, True, False),
    ]


def read(key: int, name: str, lsn: int) -> Record:
    """The event of a row in a snapshot."""
    row = {"id": key, "name": name, "big": lsn}
    return at(event("r", row, lsn, order=None, fields=SHORT), lsn)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_change_at_the_position_of_the_snapshot_follows_it(
    tmp_path: Path, kind: str, is_first: bool
) -> None:
    """PostgreSQL gives a snapshot the end of its log, where the next change begins."""
    world = history(tmp_path, kind)
    snapshot = [read(1, "a", 100), read(2, "x", 100), read(3, "z", 100)]
    changes = [put(1, "first", 100, order=1), gone(2, 100)]
    parts = [snapshot, changes] if is_first else [changes, snapshot]
    for records in parts:
        commit(world, records)
    expected = [
        (1, "a", 100, 100, False, False),
        (1, "first", 100, None, True, False),
        (2, "x", 100, 100, False, False),
        (2, None, 100, None, False, True),
        (3, "z", 100, None, True, False),
    ]
    assert versions(world) == expected
    commit(world, [*changes, *snapshot])
    assert versions(world) == expected


@pytest.mark.slow
def test_a_key_that_the_same_batch_widens(tmp_path: Path) -> None:
    """The version that it ends has the key in the narrower type."""
    world = history(tmp_path, "iceberg", "id int, name string, big bigint")
    commit(world, [put(1, "a", 10)])
    world.ddl = "id bigint, name string, big bigint"
    commit(world, [put(1, "b", 20), put(2**40, "x", 21)])
    assert versions(world) == [
        (1, "a", 10, 20, False, False),
        (1, "b", 20, None, True, False),
        (2**40, "x", 21, None, True, False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_key_with_a_text(tmp_path: Path, kind: str) -> None:
    """Files are not left out by texts in Delta, and a merge writes them in a type of its own."""
    world = ValueWorld(
        tmp_path,
        kind,
        DDL,
        {"mode": "upsert", "key": ["name", "id"], "history": True},
        value={"envelope": "debezium", "sequence_by": "source.lsn"},
    )
    for lsn in (10, 30, 20):
        rows = [{"id": 1, "name": name, "big": lsn} for name in ("a", "b")]
        commit(
            world,
            [at(event("u", one, lsn, key=one, fields=SHORT), lsn) for one in rows],
        )
    found = [(one[1], one[2], one[3], one[4]) for one in versions(world)]
    ends = [(10, 20, False), (20, 30, False), (30, None, True)]
    assert sorted(found, key=str) == [(name, *end) for name in ("a", "b") for end in ends]


HOUR_US = 3_600_000_000


def flat_row(name: str, lsn: int, hour: int | None = None) -> dict[str, Any]:
    """A row of `ExtractNewRecordState`; with an hour, the database's time is in it."""
    row = {"id": 1, "name": name, "__op": "u", "__deleted": "false", "__lsn": lsn}
    if hour is not None:
        row["__source_ts_ms"] = (GOOD_US + hour * HOUR_US) // 1_000
    return row


def hours_of(world: ValueWorld) -> list[tuple[str, int, int | None]]:
    """The name of each version, and the hours of its begin and end."""
    found = []
    for one in world.rows.read().sort_by("_sequence").to_pylist():
        begin, end = (_second(one[name]) for name in ("_valid_from", "_valid_to"))
        assert begin is not None
        found.append((one["name"], begin // 3_600, None if end is None else end // 3_600))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("ddl", ["id bigint, name string", "id bigint, name string, __lsn bigint"])
def test_a_row_that_is_sent_again_begins_at_its_first_time(
    tmp_path: Path, kind: str, ddl: str
) -> None:
    world = ValueWorld(
        tmp_path,
        kind,
        ddl,
        {"mode": "upsert", "key": ["id"], "history": True},
        value={"envelope": "debezium_flat", "sequence_by": "__lsn"},
    )

    def send(*rows: tuple[dict[str, Any], int]) -> None:
        world.commit([one for one, _ in rows], [GOOD_US + hour * HOUR_US for _, hour in rows])

    a, b, c = flat_row("a", 10), flat_row("b", 11), flat_row("c", 12)
    send((a, 8), (b, 9))
    assert hours_of(world) == [("a", 8, 9), ("b", 9, None)]
    send((a, 21))
    send((b, 21), (b, 22))
    assert hours_of(world) == [("a", 8, 9), ("b", 9, None)]
    send((c, 24), (c, 23), (c, 25))  # in one batch, the earliest neither first nor last
    assert hours_of(world) == [("a", 8, 9), ("b", 9, 23), ("c", 23, None)]
    send((c, 22), (flat_row("d", 13, hour=30), 40))
    assert hours_of(world)[2:] == [("c", 22, 30), ("d", 30, None)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_history_equals_the_log(tmp_path: Path, kind: str) -> None:
    chance = random.Random(3)
    database = Database(chance)
    log = [one for part in database.events(60) for one in part]
    world = history(tmp_path, kind)
    records = shuffled(log, chance)
    while records:
        size = chance.choice([1, 5, 40])
        some, records = records[:size], records[size:]
        commit(world, some)
    table = world.rows.read().sort_by([("id", "ascending"), ("_sequence", "ascending")])
    found = [
        (one["id"], one["big"], one["_is_deleted"], one["_is_current"]) for one in table.to_pylist()
    ]
    expected = []
    for key in range(12):
        own = [one for one in log if _key_of(one) == key and one.value is not None]
        for place, one in enumerate(own):
            is_deleted = b'"op":"d"' in (one.value or b"")
            is_last = place == len(own) - 1
            big = None if is_deleted else _big_of(one)
            expected.append((key, big, is_deleted, is_last and not is_deleted))
    assert found == expected
    current = [one for one in found if one[3]]
    assert current == [(key, row[1], False, True) for key, row in sorted(database.rows.items())]


def _key_of(record: Record) -> int:
    assert record.key is not None
    return int(record.key.rpartition(b":")[2].strip(b"}"))


def _big_of(record: Record) -> int:
    assert record.value is not None
    after = record.value.rpartition(b'"after":')[2]
    return int(after.partition(b'"big":')[2].partition(b"}")[0])


def test_versions_in_any_order_against_a_sorted_list() -> None:
    chance = random.Random(5)
    log = [(chance.randrange(5), f"b{at:02}", at, chance.random() < 0.3) for at in range(80)]
    # Sent again later: the version begins at the earliest time.
    left = log + [(key, at, when + 9, gone) for key, at, when, gone in chance.sample(log, 20)]
    chance.shuffle(left)
    held: dict[tuple[int, str], list[Any]] = {}
    while left:
        size = chance.choice([1, 7])
        some, left = left[:size], left[size:]
        # Of one batch, the caller finds the earliest time.
        come = list({one[:2]: one for one in sorted(some, key=lambda one: -one[2])}.values())
        found = versions_after(_table(held.values()), _table(map(_version, come)), ["id"])
        for one, end in zip(come, found.ends.to_pylist(), strict=True):
            times = [end["_valid_from"], end["_valid_to"]]
            held[one[:2]] = [*one[:2], *times, end["_is_current"], one[3]]
        for row in found.amended.to_pylist():
            held[row["id"], row["_sequence"]][3:5] = row["_valid_to"], row["_is_current"]
    for key in range(5):
        own = sorted(one for one in log if one[0] == key)
        ends = [_moment(one[2]) for one in own[1:]] + [None]
        expected = [
            [*_version(one)[:3], end, end is None and not one[3], one[3]]
            for one, end in zip(own, ends, strict=True)
        ]
        assert [held[one] for one in sorted(held) if one[0] == key] == expected


def _moment(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def _version(one: tuple[int, str, int, bool]) -> list[Any]:
    return [one[0], one[1], _moment(one[2]), None, True, one[3]]


def _table(rows: Iterable[list[Any]]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("_sequence", pa.string()), *HISTORY_COLUMNS])
    return pa.Table.from_pylist(
        [dict(zip(schema.names, one, strict=True)) for one in rows], schema=schema
    )


def test_an_impossible_time_of_the_database_is_that_of_the_record() -> None:
    record = pa.array([EPOCH] * 3, pa.timestamp("us", "UTC"))
    found = times_of(pa.array([None, 10**15, 0], pa.int64()), record)
    assert found.to_pylist() == [EPOCH, EPOCH, datetime(1970, 1, 1, tzinfo=UTC)]


def test_a_history_without_an_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="sequence_by is missing"):
        ValueWorld(
            tmp_path,
            "delta",
            DDL,
            {"mode": "upsert", "key": ["id"], "history": True},
            value={"envelope": "debezium"},
        )


@pytest.mark.slow
def test_a_required_column_is_refused(tmp_path: Path) -> None:
    """The version of a deletion has only its key."""
    world = history(tmp_path, "delta", STRICT)
    with pytest.raises(SchemaError, match="'name' is NOT NULL"):
        commit(world, [put(1, "a", 10)])


@pytest.mark.slow
def test_a_table_with_rows_that_are_no_versions_is_refused(tmp_path: Path) -> None:
    world = ValueWorld(
        tmp_path,
        "delta",
        "id bigint, name string, big bigint, _sequence string, _valid_from timestamp, "
        "_valid_to timestamp, _is_current boolean, _is_deleted boolean",
        {"mode": "upsert", "key": ["id"]},
    )
    world.commit([{"id": 1, "name": "a"}], keys=[b"1"])
    other = history(tmp_path / "other", "delta")
    other.rows, other.offset = world.rows, world.offset
    with pytest.raises(SchemaError, match="no versions"):
        commit(other, [put(1, "b", 10)])
