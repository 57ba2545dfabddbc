"""The contract of `MetadataStore`, held by every implementation: SQLite and the fake."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    EventBatch,
    KeyValue,
    MetadataStore,
    Put,
    SessionLostError,
)
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import StoreError
from penstock.testing.memory_store import MemoryMetadataStore


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


Body = Callable[[MetadataStore, HandClock], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture(params=["memory", "sqlite", "sqlite-in-memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a test's body on an empty store of each kind."""

    @asynccontextmanager
    async def opened(clock: HandClock) -> AsyncIterator[MetadataStore]:
        store: MetadataStore
        if request.param == "memory":
            store = MemoryMetadataStore(clock=clock)
        else:
            path = str(tmp_path / "metadata.db") if request.param == "sqlite" else None
            store = await SqliteMetadataStore.open(path, clock=clock)
        try:
            yield store
        finally:
            await store.close()

    def run_body(body: Body) -> None:
        async def main() -> None:
            clock = HandClock()
            async with opened(clock) as store:
                await body(store, clock)

        asyncio.run(main())

    return run_body


async def put(store: MetadataStore, key: str, value: bytes = b"x", session: int = 0) -> int:
    result = await store.transact((), (Put(key, value, session),))
    assert result.succeeded
    return result.revision


async def value_of(store: MetadataStore, key: str, revision: int | None = None) -> bytes | None:
    found = (await store.read(key, revision=revision)).values
    return found[0].value if found else None


async def take(batches: AsyncIterator[EventBatch], count: int) -> list[EventBatch]:
    return [await asyncio.wait_for(anext(batches), 5) for _ in range(count)]


def test_a_new_store_is_empty_at_revision_zero(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        assert await store.read_prefix("") == (0, ())

    run(body)


def test_each_change_takes_the_next_revision_and_keys_remember_theirs(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        assert await put(store, "/a", b"1") == 1
        assert await put(store, "/b", b"2") == 2
        assert await put(store, "/a", b"3") == 3
        snapshot = await store.read_prefix("/")
        assert snapshot.revision == 3
        assert snapshot.values == (KeyValue("/a", b"3", 1, 3, 0), KeyValue("/b", b"2", 2, 2, 0))

    run(body)


def test_a_key_that_is_deleted_and_written_is_created_anew(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a")
        await store.transact((), (Delete("/a"),))
        await put(store, "/a", b"2")
        assert (await store.read("/a")).values == (KeyValue("/a", b"2", 3, 3, 0),)

    run(body)


def test_a_prefix_is_not_more_than_its_keys(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        for key in ("/a", "/a/", "/a/1", "/a/2", "/a0", "/b/1"):
            await put(store, key)
        found = [pair.key for pair in (await store.read_prefix("/a/")).values]
        assert found == ["/a/", "/a/1", "/a/2"]

    run(body)


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (Compare.absent("/a"), False),
        (Compare.absent("/none"), True),
        (Compare.created_at("/a", 1), True),
        (Compare.created_at("/a", 2), False),
        (Compare.unchanged("/a", 2), True),
        (Compare.unchanged("/a", 1), False),
        (Compare.unchanged("/none", 0), True),
        (Compare.unchanged("/none", 1), False),
    ],
)
def test_compares(run: Run, compare: Compare, holds: bool) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a", b"1")
        await put(store, "/a", b"2")
        result = await store.transact((compare,), (Put("/c", b"3"),))
        assert result.succeeded is holds
        assert await value_of(store, "/c") == (b"3" if holds else None)
        assert result.revision == (3 if holds else 2)

    run(body)


def test_one_failed_compare_stops_all_operations(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a", b"1")
        result = await store.transact(
            (Compare.absent("/b"), Compare.absent("/a")),
            (Put("/b", b"2"), Delete("/a")),
            read_on_failure=("/a", "/none"),
        )
        assert result == (False, 1, (KeyValue("/a", b"1", 1, 1, 0),))
        assert await value_of(store, "/b") is None

    run(body)


def test_a_transaction_that_changes_nothing_takes_no_revision(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a")
        result = await store.transact((), (Delete("/none"), DeletePrefix("/none/")))
        assert result == (True, 1, ())

    run(body)


def test_deleting_a_prefix_deletes_all_of_it(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await store.transact((), [Put(f"/p/{n}", b"x") for n in range(100)])
        await put(store, "/q")
        await store.transact((), (DeletePrefix("/p/"),))
        assert [pair.key for pair in (await store.read_prefix("")).values] == ["/q"]

    run(body)


def test_limits_are_etcds(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        full = await store.transact(
            [Compare.absent(f"/{n}") for n in range(128)], [Put(f"/{n}", b"") for n in range(128)]
        )
        assert full.succeeded
        with pytest.raises(StoreError, match="129 compares"):
            await store.transact([Compare.absent(f"/{n}") for n in range(129)], ())
        with pytest.raises(StoreError, match="129 operations"):
            await store.transact((), [Put(f"/{n}", b"") for n in range(129)])
        with pytest.raises(StoreError, match="written twice"):
            await store.transact((), (Put("/a", b""), Delete("/a")))
        with pytest.raises(StoreError, match="deleted and written"):
            await store.transact((), (DeletePrefix("/a"), Put("/ab", b"")))
        with pytest.raises(StoreError, match="too many"):
            await store.transact((), (Put("/a", bytes(1_048_577)),))
        assert (await store.read("/0")).revision == 1

    run(body)


def test_old_revisions_can_be_read(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a", b"1")
        await put(store, "/b", b"2")
        await put(store, "/a", b"3")
        await store.transact((), (Delete("/b"),))
        assert await value_of(store, "/a", 2) == b"1"
        assert await value_of(store, "/b", 3) == b"2"
        assert await value_of(store, "/b", 1) is None
        at_three = await store.read_prefix("/", revision=3)
        assert [pair.value for pair in at_three.values] == [b"3", b"2"]
        assert at_three.revision == 3
        with pytest.raises(StoreError, match="yet to come"):
            await store.read("/a", revision=5)

    run(body)


def test_a_watch_gives_what_was_and_what_comes_in_order_by_revision(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/w/a", b"1")
        await put(store, "/other")
        await store.transact((), (Put("/w/c", b"3"), Put("/w/b", b"2")))
        watch = store.watch("/w/", from_revision=1)
        past = await take(watch, 2)
        await store.transact((), (Delete("/w/a"), Put("/other", b"y")))
        await put(store, "/other")
        await put(store, "/w/a", b"4")
        assert past + await take(watch, 2) == [
            EventBatch(1, (Event("/w/a", KeyValue("/w/a", b"1", 1, 1, 0)),)),
            EventBatch(
                3,
                (
                    Event("/w/b", KeyValue("/w/b", b"2", 3, 3, 0)),
                    Event("/w/c", KeyValue("/w/c", b"3", 3, 3, 0)),
                ),
            ),
            EventBatch(4, (Event("/w/a", None),)),
            EventBatch(6, (Event("/w/a", KeyValue("/w/a", b"4", 6, 6, 0)),)),
        ]

    run(body)


def test_a_watch_from_the_next_revision_sees_only_what_comes(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a", b"1")
        watch = store.watch("/", from_revision=2)
        await put(store, "/a", b"2")
        (batch,) = await take(watch, 1)
        assert batch.revision == 2

    run(body)


def test_watches_end_when_the_store_closes(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        await put(store, "/a")
        watch = store.watch("/", from_revision=1)
        await take(watch, 1)
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(watch), 5)
        with pytest.raises(StoreError, match="closed"):
            await store.read("/a")
        await store.close()

    run(body)


def test_the_keys_of_a_session_go_when_it_ends(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        session = await store.open_session(9.0)
        await put(store, "/mine", session=session)
        await put(store, "/kept", session=session)
        await put(store, "/kept")
        assert (await store.read("/mine")).values[0].session == session
        watch = store.watch("/", from_revision=4)
        await store.end_session(session)
        assert await take(watch, 1) == [EventBatch(4, (Event("/mine", None),))]
        assert await value_of(store, "/kept") == b"x"
        with pytest.raises(SessionLostError):
            await put(store, "/mine", session=session)
        await store.end_session(session)

    run(body)


def test_a_session_lasts_as_long_as_it_is_kept_alive(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        session = await store.open_session(9.0)
        await put(store, "/mine", session=session)
        for _ in range(3):
            clock.seconds += 8.0
            await store.keep_alive(session)
        assert await value_of(store, "/mine") == b"x"
        clock.seconds += 9.1
        assert await value_of(store, "/mine") is None
        with pytest.raises(SessionLostError):
            await store.keep_alive(session)

    run(body)


def test_sessions_are_apart(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        first, second = await store.open_session(5.0), await store.open_session(50.0)
        assert first != second
        await put(store, "/1", session=first)
        await put(store, "/2", session=second)
        clock.seconds += 6
        assert [pair.key for pair in (await store.read_prefix("/")).values] == ["/2"]

    run(body)


def test_a_compacted_memory_store_says_so() -> None:
    async def body() -> None:
        store = MemoryMetadataStore()
        for value in (b"1", b"2", b"3"):
            await put(store, "/a", value)
        store.compact(2)
        assert await value_of(store, "/a", 2) == b"2"
        with pytest.raises(CompactedError):
            await store.read("/a", revision=1)
        with pytest.raises(CompactedError):
            await anext(store.watch("/", from_revision=2))

    asyncio.run(body())
