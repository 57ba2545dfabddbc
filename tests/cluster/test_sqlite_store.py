"""Promises of the SQLite store alone: the file, its lock, its history, and errors of the disk."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    CompareTarget,
    Delete,
    DeletePrefix,
    Operation,
    Put,
)
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.testing.memory_store import MemoryMetadataStore


class BrokenConnection:
    """A connection whose statements fail when they begin with a given word."""

    def __init__(self, connection: sqlite3.Connection, word: str, *, applied: bool) -> None:
        self._connection = connection
        self._word = word
        self._applied = applied

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if statement.lstrip().startswith(self._word):
            if self._applied:
                self._connection.execute(statement, values)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, values)


def break_next(store: SqliteMetadataStore, word: str, *, applied: bool = False) -> None:
    database = store._database
    assert database._connection is not None
    database._connection = BrokenConnection(  # type: ignore[assignment]
        database._connection, word, applied=applied
    )


def mend(store: SqliteMetadataStore) -> None:
    broken: object = store._database._connection
    assert isinstance(broken, BrokenConnection)
    store._database._connection = broken._connection


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def write() -> None:
        store = await SqliteMetadataStore.open(path)
        session = await store.open_session(9.0)
        await store.transact((), (Put("/a", b"1"), Put("/mine", b"2", session)))
        await store.transact((), (Put("/a", b"3"),))
        await store.close()

    async def read() -> None:
        store = await SqliteMetadataStore.open(path)
        snapshot = await store.read_prefix("/")
        # The session's key went with the process that had it, as a change of its own.
        assert [(pair.key, pair.value) for pair in snapshot.values] == [("/a", b"3")]
        assert snapshot.revision == 3
        assert (await store.read("/a", revision=1)).values[0].value == b"1"
        batch = await anext(store.watch("/mine", from_revision=2))
        assert batch.events == (("/mine", None),)
        assert await store.open_session(9.0) > 1
        await store.close()

    asyncio.run(write())
    asyncio.run(read())


def test_commits_are_synced(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(str(tmp_path / "metadata.db"))

        def pragmas() -> list[object]:
            return [
                store._database._sql.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "locking_mode")
            ]

        assert await store._run(pragmas) == ["wal", 2, "exclusive"]
        await store.close()

    asyncio.run(main())


def copy_files(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.glob("metadata.db*"):
        (target / file.name).write_bytes(file.read_bytes())


def test_a_copy_of_the_files_without_a_close_has_all_that_was_answered(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(str(tmp_path / "metadata.db"))
        await store.transact((), (Put("/a", b"1"),))
        copy = tmp_path / "copy"
        await asyncio.to_thread(copy_files, tmp_path, copy)
        await store.close()
        recovered = await SqliteMetadataStore.open(str(copy / "metadata.db"))
        assert (await recovered.read("/a")).values[0].value == b"1"
        await recovered.close()

    asyncio.run(main())


def test_the_file_belongs_to_one(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def main() -> None:
        store = await SqliteMetadataStore.open(path)
        with pytest.raises(StoreError, match="in use by another process"):
            await SqliteMetadataStore.open(path)
        await store.close()
        again = await SqliteMetadataStore.open(path)
        await again.close()

    asyncio.run(main())


def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"not a database, but somebody's text" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="cannot open"):
        asyncio.run(SqliteMetadataStore.open(str(path)))
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="schema 99"):
        asyncio.run(SqliteMetadataStore.open(str(path)))


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open"):
        asyncio.run(SqliteMetadataStore.open(str(tmp_path / "none" / "metadata.db")))


def test_history_is_bounded() -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(None, history_revisions=20)
        await store.transact((), (Put("/old", b"kept"), Put("/gone", b"x")))
        await store.transact((), (Delete("/gone"),))
        for number in range(198):
            await store.transact((), (Put("/a", str(number).encode()),))

        def rows() -> int:
            count: int = store._database._sql.execute("SELECT count(*) FROM versions").fetchone()[0]
            return count

        assert await store._run(rows) <= 24
        assert (await store.read("/a", revision=185)).values[0].value == b"182"
        assert (await store.read("/old", revision=185)).values[0].value == b"kept"
        assert not (await store.read("/gone")).values
        with pytest.raises(CompactedError):
            await store.read("/a", revision=100)
        with pytest.raises(CompactedError):
            await anext(store.watch("/", from_revision=100))
        await store.close()

    asyncio.run(main())


def test_an_error_before_the_commit_leaves_nothing() -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(None)
        break_next(store, "UPDATE state")
        with pytest.raises(StoreError) as caught:
            await store.transact((), (Put("/a", b"1"),))
        assert not isinstance(caught.value, AmbiguousStoreError)
        mend(store)
        assert await store.read_prefix("") == (0, ())
        assert (await store.transact((), (Put("/a", b"2"),))).revision == 1
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("applied", [False, True])
def test_an_error_at_the_commit_is_ambiguous_and_ends_watches(applied: bool) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(None)
        await store.transact((), (Put("/first", b"0"),))
        watch = store.watch("/", from_revision=1)
        await anext(watch)
        break_next(store, "COMMIT", applied=applied)
        with pytest.raises(AmbiguousStoreError):
            await store.transact((), (Put("/a", b"1"),))
        mend(store)
        with pytest.raises(CompactedError):
            await asyncio.wait_for(anext(watch), 5)
        assert bool((await store.read("/a")).values) is applied
        await store.transact((), (Put("/b", b"2"),))
        await store.close()

    asyncio.run(main())


class HeldClock:
    """A clock that blocks its callers, until the test releases it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.asked.set()
        assert self.let_go.wait(5)
        return 0.0


def test_a_caller_that_gave_up_does_not_hide_its_change() -> None:
    async def main() -> None:
        clock = HeldClock()
        clock.let_go.set()
        store = await SqliteMetadataStore.open(None, clock=clock)
        await store.transact((), (Put("/a", b"1"),))
        watch = store.watch("/", from_revision=1)
        await anext(watch)
        clock.asked.clear()
        clock.let_go.clear()
        async with asyncio.TaskGroup() as tasks:
            change = tasks.create_task(store.transact((), (Put("/a", b"2"),)))
            assert await asyncio.to_thread(clock.asked.wait, 5)
            change.cancel()
            clock.let_go.set()
        assert change.cancelled()
        assert (await asyncio.wait_for(anext(watch), 5)).revision == 2
        await store.close()

    asyncio.run(main())


KEYS = st.sampled_from(["/a", "/b", "/p/1", "/p/2"])
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=3)),
    st.builds(Delete, KEYS),
    st.builds(DeletePrefix, st.sampled_from(["/p/", "/"])),
)
COMPARES = st.builds(Compare, KEYS, st.sampled_from(CompareTarget), st.integers(0, 4))
STEPS = st.lists(
    st.tuples(st.lists(COMPARES, max_size=2), st.lists(OPERATIONS, max_size=3)), max_size=12
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_it_does_what_the_model_does(
    steps: list[tuple[list[Compare], list[Operation]]],
) -> None:
    async def main() -> None:
        store, model = await SqliteMetadataStore.open(None), MemoryMetadataStore()
        for compares, operations in steps:
            outcomes: list[object] = []
            for one in (store, model):
                try:
                    outcomes.append(
                        await one.transact(compares, operations, read_on_failure=["/a", "/p/1"])
                    )
                except StoreError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]
        current = await model.read_prefix("")
        for revision in range(current.revision + 1):
            expected = await model.read_prefix("/", revision=revision)
            assert await store.read_prefix("/", revision=revision) == expected
        assert await store._history("/p", 1) == await model._history("/p", 1)
        await store.close()

    asyncio.run(main())
