"""The contract of `MetadataStore`, held by every implementation.

These are SQLite, etcd, the store of a supervisor's workers, and the fake. Revisions are counted
from the store's revision when a test begins: an etcd serves all tests, one after the other. Time is
moved by hand where the store reads a clock, and passes where it does not.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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
from tests.contracts.store_kinds import (
    EtcdServers,
    HandClock,
    RealClock,
    opened_etcd,
    store_over_a_channel,
)
from tests.oracle.etcd_server import VERSIONS

Body = Callable[[MetadataStore, HandClock], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture(scope="session")
def etcd_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"))
    with servers.stack:
        yield servers


KINDS = [
    "memory",
    "sqlite",
    "sqlite-in-memory",
    "of-a-supervisor",
    *(pytest.param(f"etcd-{version}", marks=pytest.mark.etcd) for version in VERSIONS),
]


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path: Path, etcd_servers: EtcdServers) -> Run:
    """Run a test's body on an empty store of each kind."""
    kind: str = request.param

    @asynccontextmanager
    async def opened(clock: HandClock) -> AsyncIterator[MetadataStore]:
        store: MetadataStore
        if kind == "memory":
            store = MemoryMetadataStore(clock=clock)
        elif kind.startswith("etcd-"):
            store = await opened_etcd(etcd_servers.cluster(kind.removeprefix("etcd-")))
        elif kind == "of-a-supervisor":
            async with store_over_a_channel(clock) as store:
                yield store
            return
        else:
            path = str(tmp_path / "metadata.db") if kind == "sqlite" else None
            store = await SqliteMetadataStore.open(path, clock=clock)
        try:
            yield store
        finally:
            await store.close()

    def run_body(body: Body) -> None:
        async def main() -> None:
            clock = RealClock() if kind.startswith("etcd-") else HandClock()
            async with opened(clock) as store:
                await body(store, clock)

        asyncio.run(main())

    return run_body


async def first_revision(store: MetadataStore) -> int:
    """The revision before the first change of a test."""
    return (await store.read("/none")).revision


async def put(store: MetadataStore, key: str, value: bytes = b"x", session: int = 0) -> int:
    result = await store.transact((), (Put(key, value, session),))
    assert result.succeeded
    return result.revision


async def value_of(store: MetadataStore, key: str, revision: int | None = None) -> bytes | None:
    found = (await store.read(key, revision=revision)).values
    return found[0].value if found else None


async def take(batches: AsyncIterator[EventBatch], count: int) -> list[EventBatch]:
    return [await asyncio.wait_for(anext(batches), 5) for _ in range(count)]


def test_a_new_store_is_empty(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        assert await store.read_prefix("") == (await first_revision(store), ())

    run(body)


def test_each_change_takes_the_next_revision_and_keys_remember_theirs(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)
        assert await put(store, "/a", b"1") == base + 1
        assert await put(store, "/b", b"2") == base + 2
        assert await put(store, "/a", b"3") == base + 3
        snapshot = await store.read_prefix("/")
        assert snapshot.revision == base + 3
        assert snapshot.values == (
            KeyValue("/a", b"3", base + 1, base + 3, 0),
            KeyValue("/b", b"2", base + 2, base + 2, 0),
        )

    run(body)


def test_a_key_that_is_deleted_and_written_is_created_anew(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)
        await put(store, "/a")
        await store.transact((), (Delete("/a"),))
        await put(store, "/a", b"2")
        assert (await store.read("/a")).values == (KeyValue("/a", b"2", base + 3, base + 3, 0),)

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
    """The revisions are counted from the store's first."""

    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)
        await put(store, "/a", b"1")
        await put(store, "/a", b"2")
        shifted = compare.revision and compare.revision + base
        result = await store.transact((compare._replace(revision=shifted),), (Put("/c", b"3"),))
        assert result.succeeded is holds
        assert await value_of(store, "/c") == (b"3" if holds else None)
        assert result.revision == base + (3 if holds else 2)
        assert result.changed is holds

    run(body)


def test_one_failed_compare_stops_all_operations(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        made = await put(store, "/a", b"1")
        result = await store.transact(
            (Compare.absent("/b"), Compare.absent("/a")),
            (Put("/b", b"2"), Delete("/a")),
            read_on_failure=("/a", "/none"),
        )
        assert result == (False, made, (KeyValue("/a", b"1", made, made, 0),), False)
        assert await value_of(store, "/b") is None

    run(body)


def test_a_transaction_that_changes_nothing_takes_no_revision(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        revision = await put(store, "/a")
        result = await store.transact((), (Delete("/none"), DeletePrefix("/none/")))
        assert result == (True, revision, (), False)
        result = await store.transact((), (Delete("/none"), Delete("/a")))
        assert result == (True, revision + 1, (), True)

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
        with pytest.raises(StoreError, match="129 reads"):
            await store.transact((), (), read_on_failure=[f"/{n}" for n in range(129)])
        with pytest.raises(StoreError, match="written twice"):
            await store.transact((), (Put("/a", b""), Delete("/a")))
        with pytest.raises(StoreError, match="deleted and written"):
            await store.transact((), (DeletePrefix("/a"), Put("/ab", b"")))
        with pytest.raises(StoreError, match="too many"):
            await store.transact((), (Put("/a", bytes(1_048_577)),))
        assert (await store.read("/0")).revision == full.revision

    run(body)


def test_old_revisions_can_be_read(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)
        await put(store, "/a", b"1")
        await put(store, "/b", b"2")
        await put(store, "/a", b"3")
        await store.transact((), (Delete("/b"),))
        assert await value_of(store, "/a", base + 2) == b"1"
        assert await value_of(store, "/b", base + 3) == b"2"
        assert await value_of(store, "/b", base + 1) is None
        at_three = await store.read_prefix("/", revision=base + 3)
        assert [pair.value for pair in at_three.values] == [b"3", b"2"]
        assert at_three.revision == base + 3
        with pytest.raises(StoreError, match="yet to come"):
            await store.read("/a", revision=base + 5)

    run(body)


def test_a_watch_gives_what_was_and_what_comes_in_order_by_revision(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)
        await put(store, "/w/a", b"1")
        await put(store, "/other")
        await store.transact((), (Put("/w/c", b"3"), Put("/w/b", b"2")))
        watch = store.watch("/w/", from_revision=base + 1)
        past = await take(watch, 2)
        await store.transact((), (Delete("/w/a"), Put("/other", b"y")))
        await put(store, "/other")
        await put(store, "/w/a", b"4")
        assert past + await take(watch, 2) == [
            EventBatch(base + 1, (Event("/w/a", KeyValue("/w/a", b"1", base + 1, base + 1, 0)),)),
            EventBatch(
                base + 3,
                (
                    Event("/w/b", KeyValue("/w/b", b"2", base + 3, base + 3, 0)),
                    Event("/w/c", KeyValue("/w/c", b"3", base + 3, base + 3, 0)),
                ),
            ),
            EventBatch(base + 4, (Event("/w/a", None),)),
            EventBatch(base + 6, (Event("/w/a", KeyValue("/w/a", b"4", base + 6, base + 6, 0)),)),
        ]

    run(body)


def test_a_watch_from_the_next_revision_sees_only_what_comes(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        before = await put(store, "/a", b"1")
        watch = store.watch("/", from_revision=before + 1)
        await put(store, "/a", b"2")
        (batch,) = await take(watch, 1)
        assert batch.revision == before + 1

    run(body)


def test_watches_end_when_the_store_closes(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        watch = store.watch("/", from_revision=await put(store, "/a"))
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
        last = await put(store, "/kept")
        assert (await store.read("/mine")).values[0].session == session
        watch = store.watch("/", from_revision=last + 1)
        await store.end_session(session)
        assert await take(watch, 1) == [EventBatch(last + 1, (Event("/mine", None),))]
        assert await value_of(store, "/kept") == b"x"
        with pytest.raises(SessionLostError):
            await put(store, "/mine", session=session)
        await store.end_session(session)

    run(body)


def test_a_session_lasts_as_long_as_it_is_kept_alive(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        session = await store.open_session(clock.time_to_live(9.0))
        await put(store, "/mine", session=session)
        for _ in range(3):
            await clock.advance(6.0)
            await store.keep_alive(session)
        assert await value_of(store, "/mine") == b"x"
        await clock.advance(9.1)
        assert await value_of(store, "/mine") is None
        with pytest.raises(SessionLostError):
            await store.keep_alive(session)

    run(body)


def test_sessions_are_apart(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        first = await store.open_session(clock.time_to_live(9.0))
        second = await store.open_session(clock.time_to_live(90.0))
        assert first != second
        await put(store, "/1", session=first)
        await put(store, "/2", session=second)
        await clock.advance(10.0)
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


def test_a_large_prefix_is_one_state(run: Run) -> None:
    """A load of more keys than a page of etcd's has."""

    async def body(store: MetadataStore, clock: HandClock) -> None:
        names = [f"/p/{n:05}" for n in range(2_304)]
        for first in range(0, len(names), 128):
            await store.transact((), [Put(name, b"x") for name in names[first : first + 128]])
        snapshot = await store.read_prefix("/p/")
        assert [pair.key for pair in snapshot.values] == names
        assert snapshot.revision == max(pair.mod_revision for pair in snapshot.values)

    run(body)


def test_keys_of_any_text(run: Run) -> None:
    async def body(store: MetadataStore, clock: HandClock) -> None:
        names = ["/Straße", "/z", "/é", "/日本", "/𝄞"]
        for name in reversed(names):
            await put(store, name, name.encode())
        found = (await store.read_prefix("/")).values
        assert [pair.key for pair in found] == sorted(names)
        assert await value_of(store, "/日本") == "/日本".encode()

    run(body)


def test_a_compare_of_all_keys_with_a_prefix(run: Run) -> None:
    """It holds while no such key was created after the revision; later writes do not matter."""

    async def body(store: MetadataStore, clock: HandClock) -> None:
        base = await first_revision(store)

        async def holds(revision: int) -> bool:
            compare = Compare.none_created_since("/p/", revision)
            return (await store.transact((compare,), (Put("/x", b""),))).succeeded

        assert await holds(0)
        await put(store, "/p")
        await put(store, "/p0")
        assert await holds(0)
        first = await put(store, "/p/1")
        assert not await holds(base)
        assert not await holds(first - 1)
        assert await holds(first)
        await put(store, "/p/1", b"again")
        assert await holds(first)
        second = await put(store, "/p/2")
        assert not await holds(first)
        assert await holds(second)
        await store.transact((), (Delete("/p/2"),))
        assert await holds(first)
        third = await put(store, "/p/2")
        assert not await holds(second)
        assert await holds(third)

    run(body)
