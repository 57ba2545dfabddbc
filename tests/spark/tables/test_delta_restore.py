"""A `RESTORE` by time: which version it put a Delta table back to, and that nothing comes twice.

The log entries of Spark are as Spark 4.1.3 with Delta 4.4.0 writes them.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.formats.delta import log as delta_log
from penstock.spark.tables.formats.delta.history import HistoryError, LogEntry
from penstock.spark.tables.formats.delta.log import Version
from penstock.spark.tables.formats.delta.restore import choose, log_entry, time_span
from penstock.spark.tables.formats.port import Table
from tests.spark.tables.table_kinds import (
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

MINUTE_MS = 60_000
ZONELESS = {"version": None, "timestamp": "2026-11-16 18:17:55.494367"}
Parameters = Mapping[str, Any]


def restore_entry(parameters: Parameters | None, version: int = 9) -> dict[str, Any]:
    return {"version": version, "operation": "RESTORE", "operationParameters": parameters}


# --- Entries of the log ---


@pytest.mark.parametrize("version", [3, "3", '"3"'])
def test_a_version_is_read_as_number_or_text(version: int | str) -> None:
    assert log_entry(restore_entry({"version": version})) == LogEntry(9, restored_version=3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"datetime": "1794820561743"},
        ZONELESS,
        {"version": "null", "timestamp": "2026-11-16 09:00:00.0"},
        {"version": -1},
        {"version": 9},
        {"version": "x"},
        {},
        None,
    ],
)
def test_a_restore_that_says_no_version_is_one_still(parameters: Parameters | None) -> None:
    found = log_entry(restore_entry(parameters))
    assert found.restored_version is None
    assert found.restored_to is not None


def test_other_entries_restore_nothing() -> None:
    found = log_entry({"version": 4, "operation": "WRITE", "operationParameters": {"version": 1}})
    assert found == LogEntry(4)


def test_a_time_is_as_exact_as_it_is_written() -> None:
    exact = time_span({"datetime": "1794820561743"})
    assert exact.earliest_ms == exact.latest_ms == 1_794_820_561_743
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    for zone in ("Z", "+00:00"):
        exact = time_span({"timestamp": f"2026-11-16 12:00:00{zone}"})
        assert exact.earliest_ms == exact.latest_ms == noon.timestamp() * 1_000
    vague = time_span({"timestamp": "2026-11-16 12:00:00.0"})
    for hours in (-12, 0, 14):
        moment = (noon - timedelta(hours=hours)).timestamp() * 1_000
        assert vague.earliest_ms <= moment <= vague.latest_ms
    assert time_span({}).earliest_ms < 0 < time_span({}).latest_ms


# --- Which version it was ---


def at_minutes(*numbers: int, same: Sequence[int], restores: Sequence[int] = ()) -> list[Version]:
    """The newest first; version n was written n minutes after 1970."""
    return [
        Version(number, number in same, number * MINUTE_MS, number in restores)
        for number in sorted(numbers, reverse=True)
    ]


def chosen(versions: Sequence[Version], minute: float | None) -> Sequence[int]:
    told = {} if minute is None else {"datetime": str(int(minute * MINUTE_MS))}
    return choose(iter(versions), time_span(told))


@pytest.mark.parametrize("minute", [2.5, 99, 0, None])
def test_one_version_with_the_same_files_is_it_whatever_the_clocks_say(
    minute: float | None,
) -> None:
    assert chosen(at_minutes(0, 1, 2, 3, 4, same=[2]), minute) == [2]


def test_of_versions_that_changed_no_file_it_is_the_newest_that_was_there() -> None:
    versions = at_minutes(0, 1, 2, 3, 4, same=[1, 2, 3])
    assert [chosen(versions, one) for one in (1.5, 2.5, 3.5, None)] == [[1], [2], [3], [3]]


def test_a_restore_before_it_is_the_same_again() -> None:
    versions = at_minutes(0, 1, 2, 3, 4, same=[1, 3], restores=[3])
    assert [chosen(versions, one) for one in (1.5, 3.5, None)] == [[1], [3], [3]]


def test_when_the_same_files_came_back_otherwise_the_time_decides_or_nobody() -> None:
    """Version 2 added rows, 3 deleted them: only 3 has offsets without rows."""
    versions = at_minutes(0, 1, 2, 3, 4, same=[1, 3])
    assert [chosen(versions, one) for one in (1.5, 3.5, None)] == [[1], [3], [3, 1]]


def test_nothing_is_chosen_when_nothing_is_the_same() -> None:
    assert chosen(at_minutes(0, 1, 2, same=[]), 1.5) == []


def test_no_more_of_the_log_is_read_than_needed() -> None:
    def endless() -> Iterator[Version]:
        number = 1_000
        while True:
            yield Version(number, number == 990, number * MINUTE_MS)
            number -= 1
            assert number > 900, "the version was found long ago"

    assert choose(endless(), time_span({"datetime": str(992 * MINUTE_MS)})) == [990]
    assert choose(endless(), time_span({"datetime": str(980 * MINUTE_MS)})) == [990]


# --- Tables ---


class Shop:
    """A table with batches of ten, and the changes of other writers."""

    def __init__(self, folder: Path) -> None:
        self.kind = DeltaKind(folder)
        self.table: Table = self.kind.create()
        self.driver, self.state = taken(self.table, "run-a")
        self.count = 0
        self.versions: list[int] = []

    @property
    def log(self) -> Path:
        return Path(self.kind.uri) / "_delta_log"

    def batch(self) -> None:
        ten = (0, self.count * 10, self.count * 10 + 10)
        self.state = self.table.append(
            commit_of(self.state, self.driver, ten), written(self.table, ten)
        )
        self.count += 1
        self.versions.append(self.state.version)

    def date_log(self) -> datetime:
        """An hour between two versions; gives the time half an hour after the first batch."""
        begin = datetime.now(UTC) - timedelta(days=3)
        for entry in self.log.glob("*.json"):
            moment = begin + timedelta(hours=int(entry.stem))
            self.rewrite(entry, timestamp=int(moment.timestamp() * 1_000))
            os.utime(entry, (moment.timestamp(), moment.timestamp()))
        return begin + timedelta(hours=self.versions[0], minutes=30)

    def restore(self, target: datetime | int, parameters: Parameters | None = None) -> int:
        """By somebody else; `parameters` are what the entry says instead."""
        admin = DeltaTable(self.kind.uri)
        admin.restore(target)
        version = DeltaTable(self.kind.uri).version()
        if parameters is not None:
            entry = self.log / f"{version:020d}.json"
            self.rewrite(entry, operationParameters=dict(parameters))
        return version

    def forget_removal(self, version: int) -> None:
        """As if the RESTORE had left the files of the newest batch."""
        entry = self.log / f"{version:020d}.json"
        last = (self.log / f"{self.versions[-1]:020d}.json").read_text().splitlines()
        left = next(one["add"]["path"] for one in map(json.loads, last) if "add" in one)
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        kept = [one for one in actions if one.get("remove", {}).get("path") != left]
        assert len(kept) == len(actions) - 1
        entry.write_text("".join(json.dumps(one) + "\n" for one in kept))

    def rewrite(self, entry: Path, **changed: object) -> None:
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        next(one["commitInfo"] for one in actions if "commitInfo" in one).update(changed)
        entry.write_text("".join(json.dumps(one) + "\n" for one in actions))

    def held(self) -> int:
        """Where the pipeline goes on, as a new process sees it."""
        positions = self.kind.open().load().positions_of("orders")
        return next(iter(positions.values()), 0)


def committed_again(shop: Shop) -> TableState:
    """A driver that starts without a checkpoint commits the missing records, up to offset 30."""
    table = shop.kind.open()
    driver, state = taken(table, "run-b")
    start = next(iter(state.positions_of("orders").values()), 0)
    missing = (0, start, 30)
    return table.append(commit_of(state, driver, missing), written(table, missing))


@pytest.mark.parametrize("parameters", [None, ZONELESS, {}])
def test_after_a_restore_to_a_time_nothing_is_twice_and_nothing_missing(
    tmp_path: Path, parameters: Parameters | None
) -> None:
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.batch()
    shop.restore(shop.date_log(), parameters)
    assert offsets_in(shop.kind.read()) == span(0, 0, 10)
    assert shop.held() == 10
    running = shop.table.load()  # a driver that runs on sees the same
    assert list(running.positions_of("orders").values()) == [10]
    state = committed_again(shop)
    assert offsets_in(shop.kind.read()) == span(0, 0, 30)
    assert shop.kind.open().load() == state


def test_a_table_that_was_copied_since_is_read_the_same(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "first")
    for _ in range(3):
        shop.batch()
    shop.restore(shop.date_log())
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)
    copied = DeltaKind(tmp_path / "second")
    assert list(copied.open().load().positions_of("orders").values()) == [10]


def test_a_restore_over_several_steps_of_a_log_with_compactions_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "ENTRIES_AT_ONCE", 2)
    shop = Shop(tmp_path)
    shop.batch()
    shop.batch()
    DeltaTable(shop.kind.uri).create_checkpoint()
    shop.state = shop.table.compact(shop.table.load(), target_bytes=2**20).state
    shop.batch()
    shop.state = shop.table.compact(shop.table.load(), target_bytes=2**20).state
    shop.restore(shop.date_log())
    assert shop.held() == 10
    shop.restore(shop.versions[2])
    assert shop.held() == 30
    shop.restore(shop.versions[1], {"version": None, "timestamp": None})
    assert shop.held() == 20
    committed_again(shop)
    assert offsets_in(shop.kind.read()) == span(0, 0, 30)


def test_restores_by_time_that_were_restored_lead_back_one_by_one(tmp_path: Path) -> None:
    """As in Spark: the second one finds the first, which is a RESTORE by time itself."""
    shop = Shop(tmp_path)
    shop.batch()
    shop.batch()
    for _ in range(3):
        shop.restore(shop.versions[0], ZONELESS)
        DeltaTable(shop.kind.uri).delete()
        assert shop.held() == 10
    shop.restore(shop.versions[0], ZONELESS)
    assert shop.held() == 10


def test_rows_that_others_deleted_and_a_time_before_it(tmp_path: Path) -> None:
    """The files after the deletion and before the batch are the same; the offsets are not."""
    shop = Shop(tmp_path)
    shop.batch()
    shop.batch()
    DeltaTable(shop.kind.uri).delete("_kafka_offset >= 10")
    before = shop.date_log()
    shop.restore(before)
    assert shop.held() == 10
    shop.restore(before + timedelta(hours=2))
    assert shop.held() == 20
    version = shop.restore(shop.versions[0], {"version": None, "timestamp": None})
    with pytest.raises(HistoryError, match=f"version {version} .*2 or .*TO VERSION AS OF"):
        shop.held()
    shop.restore(shop.versions[0])
    assert shop.held() == 10


def test_a_restore_to_before_the_first_batch_holds_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    taking = shop.state.version
    shop.batch()
    shop.restore(taking, ZONELESS)
    assert offsets_in(shop.kind.read()) == []
    assert shop.held() == 0


@pytest.mark.parametrize("parameters", [{"datetime": "soon"}, {"version": "x"}, ZONELESS])
def test_a_restore_that_cannot_be_told_is_an_error_and_its_remedy_works(
    tmp_path: Path, parameters: Parameters
) -> None:
    """It left the first batch and the last, which no version has: nobody knows what it meant."""
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.batch()
    shop.forget_removal(shop.restore(shop.versions[0], parameters))
    for _ in range(2):
        with pytest.raises(
            HistoryError, match=r"no older version.*TO VERSION AS OF.*another table"
        ):
            shop.held()
    shop.restore(shop.versions[0])
    assert shop.held() == 10


def test_a_restore_that_was_undone_needs_not_be_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.batch()
    shop.forget_removal(shop.restore(shop.versions[0], ZONELESS))
    shop.restore(shop.versions[1])
    assert shop.held() == 20


def test_files_that_were_taken_out_make_another_version(tmp_path: Path) -> None:
    """A batch without rows came after others had deleted all: it is not what was restored."""
    shop = Shop(tmp_path)
    shop.batch()
    DeltaTable(shop.kind.uri).delete()
    state = shop.table.load()
    shop.state = shop.table.append(commit_of(state, shop.driver, (0, 10, 20)), [])
    shop.count += 1
    shop.batch()
    shop.restore(shop.versions[0], ZONELESS)
    assert shop.held() == 10
    committed_again(shop)
    assert offsets_in(shop.kind.read()) == span(0, 0, 30)
