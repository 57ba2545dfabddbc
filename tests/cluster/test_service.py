"""`MetadataService` follows the store, carries decisions out once, and survives lost answers."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.changes import (
    BrokerRegistered,
    Change,
    TopicPublished,
    TopicRemoved,
    apply,
)
from penstock.cluster.configs.group_configs import HEARTBEAT_INTERVAL, group_rules
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.differences import difference
from penstock.cluster.ids import draw_id, id_text
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.interpretation import interpret
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, Event, MetadataStore, Put
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.values import write_settings
from penstock.core.errors import (
    AmbiguousStoreError,
    DuplicateBrokerError,
    MetadataError,
    StoreError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import Fault, MemoryMetadataStore

BROKER = BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "directory-1", 0)
Body = Callable[[MetadataService, MemoryMetadataStore], Awaitable[None]]


def run(body: Body, *, store: MemoryMetadataStore | None = None) -> None:
    """Run `body` with a started service whose broker is registered."""

    async def main() -> None:
        used = store or MemoryMetadataStore()
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            service = MetadataService(used)
            await service.start(tasks)
            await service.register_broker(BROKER, tasks)
            await body(service, used)
            await service.stop()
        await used.close()

    asyncio.run(main())


async def loaded(store: MetadataStore) -> MetadataImage:
    """The image that a fresh load gives."""
    keys = Keys()
    snapshot = await store.read_prefix(keys.root)
    events = [Event(pair.key, pair) for pair in snapshot.values]
    return apply(MetadataImage(), interpret(keys, events), snapshot.revision)


async def settled(service: MetadataService, store: MetadataStore) -> None:
    """Wait until the service has seen everything."""
    await service._link.followed.wait_revision((await store.read("/")).revision)


def test_a_cluster_is_founded_once() -> None:
    store = MemoryMetadataStore()
    found: list[str] = []

    async def main() -> None:
        for _ in range(2):
            async with asyncio.TaskGroup() as tasks:
                service = MetadataService(store)
                await service.start(tasks)
                found.append(service.image.cluster_id)
                await service.stop()

    asyncio.run(main())
    assert found[0] == found[1]
    assert len(found[0]) == 22


def test_founding_survives_a_lost_answer_and_a_lost_write() -> None:
    async def main(*faults: Fault) -> str:
        store = MemoryMetadataStore()
        store.faults.extend(faults)
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            await service.stop()
        return service.image.cluster_id

    assert len(asyncio.run(main(Fault.ANSWER_LOST))) == 22
    assert len(asyncio.run(main(Fault.LOST, Fault.LATE))) == 22
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main(*[Fault.LOST] * 16))
    assert caught.group_contains(StoreError, match="founded")


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
@pytest.mark.parametrize("landed", [0, 1, 2])
def test_adopting_topics_is_repeated_until_it_is_done(fault: Fault, landed: int) -> None:
    states = (PartitionImage((1,), 1, 3, (1,), 0),) * 100
    topics = [
        TopicImage(name, UUID(int=n), states, {}, 0, is_adopted=True)
        for n, name in enumerate("ab", 500)
    ]

    async def start(store: MemoryMetadataStore) -> bool:
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            wanted = await service.start(tasks, cluster_id="AoiVrXEJTO24QuSBQbC-Rw")
            try:
                if wanted:
                    await service.adopt_topics(topics)
            except StoreError:
                pass
            else:
                assert service.image.cluster_id == "AoiVrXEJTO24QuSBQbC-Rw"
                assert {t.id for t in service.image.topics.values()} == {t.id for t in topics}
                assert service.image.topics["a"].partitions[0].leader_epoch == 3
                assert all(topic.is_adopted for topic in service.image.topics.values())
            await service.stop()
        return wanted

    async def main() -> None:
        store = MemoryMetadataStore()
        # The founding, so many transactions of the adoption, then the fault.
        store.faults.extend([Fault.NONE] * (1 + landed) + [fault])
        assert await start(store)
        assert await start(store) is (fault is Fault.REFUSED)
        assert not await start(store)

    asyncio.run(main())


def test_ids_are_kafkas() -> None:
    dashed = UUID(bytes=b"\xf8" + bytes(15))
    assert id_text(dashed).startswith("-")
    good = UUID("12345678123456781234567812345678")
    offered = iter([UUID(int=0), UUID(int=1), dashed, good])
    assert draw_id(lambda: next(offered)) == good


def test_a_caller_reads_its_own_writes_and_subscribers_hear_of_them_first() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        heard: list[Change] = []

        def listen(
            before: MetadataImage, after: MetadataImage, changes: tuple[Change, ...]
        ) -> None:
            assert before.revision < after.revision
            assert service.image is after
            heard.extend(changes)

        stop_listening = service.subscribe(listen)
        topic, error = await service.create_topics(
            [NewTopic(name="t", partition_count=2), NewTopic(name="..")]
        )
        assert isinstance(topic, TopicImage)
        assert not isinstance(error, TopicImage)
        assert service.image.topic("t") is topic
        assert any(isinstance(change, TopicPublished) and change.name == "t" for change in heard)
        (deleted,) = await service.delete_topics([topic.id])
        assert deleted == topic
        assert service.image.topic("t") is None
        assert TopicRemoved("t") in heard
        stop_listening()
        count = len(heard)
        await service.create_topics([NewTopic(name="u")])
        assert len(heard) == count

    run(body)


def test_validate_only_writes_nothing() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        before = service.image
        (topic,) = await service.create_topics(
            [NewTopic(name="t", partition_count=4)], validate_only=True
        )
        assert isinstance(topic, TopicImage)
        assert len(topic.partitions) == 4
        assert service.image is before

    run(body)


def test_many_topics_and_a_large_one() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        topics = [NewTopic(name=f"t{n}", settings={"flush.ms": "1"}) for n in range(60)]
        made = await service.create_topics([*topics, NewTopic(name="big", partition_count=210)])
        assert all(isinstance(topic, TopicImage) for topic in made)
        assert service.image.partition_count == 270
        assert service.image == await loaded(store)
        await service.delete_topics([f"t{n}" for n in range(60)])
        assert list(service.image.topics) == ["big"]
        assert service.image == await loaded(store)

    run(body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_a_lost_answer_is_cleared_up(fault: Fault) -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(fault)
        (topic,) = await service.create_topics([NewTopic(name="t")])
        assert isinstance(topic, TopicImage)
        assert service.image.topic("t") is topic
        store.faults.append(fault)
        (again,) = await service.create_topics([NewTopic(name="t")])
        assert isinstance(again, TopicExistsError)
        store.faults.clear()
        store.faults.append(fault)
        (deleted,) = await service.delete_topics(["t"])
        assert isinstance(deleted, TopicImage)
        assert service.image.topic("t") is None
        store.faults.append(fault)
        first = await service.allocate_producer_ids()
        second = await service.allocate_producer_ids()
        assert set(first).isdisjoint(second)
        await settled(service, store)
        assert service.image == await loaded(store)

    run(body)


def test_a_store_that_fails_is_reported_for_the_topics_it_failed() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend([Fault.NONE, Fault.REFUSED])
        topics = [NewTopic(name=f"t{n}", partition_count=100) for n in range(2)]
        first, second = await service.create_topics(topics)
        assert isinstance(first, TopicImage)
        assert isinstance(second, StoreError)
        store.faults.append(Fault.REFUSED)
        (error,) = await service.delete_topics(["t0"])
        assert isinstance(error, StoreError)
        assert service.image.topic("t0") is not None
        store.faults.append(Fault.REFUSED)
        with pytest.raises(StoreError):
            await service.allocate_producer_ids()

    run(body)


def test_attempts_are_bounded() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend([Fault.LOST] * 16)
        (error,) = await service.create_topics([NewTopic(name="t")])
        assert isinstance(error, StoreError)
        store.faults.extend([Fault.LOST] * 16)
        with pytest.raises(StoreError, match="producer ids"):
            await service.allocate_producer_ids()

    run(body)


def test_what_a_crash_left_unpublished_is_swept() -> None:
    store = MemoryMetadataStore()

    async def crashes(service: MetadataService, used: MemoryMetadataStore) -> None:
        # The key of the creation, the first partitions; the publication and the release fail.
        used.faults.extend([Fault.NONE, Fault.NONE, Fault.REFUSED, Fault.REFUSED])
        (error,) = await service.create_topics([NewTopic(name="big", partition_count=150)])
        assert isinstance(error, StoreError)
        await settled(service, used)
        assert service.image.unpublished

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            await service.register_broker(BROKER, tasks)
            await crashes(service, store)
            await service.stop()
        async with asyncio.TaskGroup() as tasks:
            again = MetadataService(store)
            await again.start(tasks)
            assert again.image.unpublished
            await again.register_broker(BROKER, tasks)
            assert not again.image.unpublished
            await again.stop()

    asyncio.run(main())


def test_a_failed_large_creation_may_still_be_published_late() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend([Fault.NONE, Fault.LATE, Fault.REFUSED])
        await service.create_topics([NewTopic(name="big", partition_count=150)])
        await settled(service, store)
        topic = service.image.topic("big")
        assert topic is None or len(topic.partitions) == 150

    run(body)


def test_producer_ids_are_never_given_twice_even_by_two_services() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        async with asyncio.TaskGroup() as tasks:
            other = MetadataService(store)
            await other.start(tasks)
            blocks = await asyncio.gather(
                *(one.allocate_producer_ids() for one in [service, other] * 5)
            )
            await other.stop()
        given = [number for block in blocks for number in block]
        assert len(given) == len(set(given)) == 10_000

    run(body)


def test_two_services_agree_on_who_created_a_topic() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        async with asyncio.TaskGroup() as tasks:
            other = MetadataService(store)
            await other.start(tasks)
            outcomes = await asyncio.gather(
                *(one.create_topics([NewTopic(name="t")]) for one in (service, other))
            )
            await settled(other, store)
            assert other.image.topic("t") == service.image.topic("t")
            await other.stop()
        kinds = {type(outcome) for (outcome,) in outcomes}
        assert kinds == {TopicImage, TopicExistsError}

    run(body)


def test_a_topic_deleted_by_another_is_unknown_afterwards() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        (error,) = await service.delete_topics(["none"])
        assert isinstance(error, UnknownTopicOrPartitionError)

    run(body)


def test_a_watch_that_lost_its_place_loads_again_and_tells_subscribers() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await service.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        heard: list[Change] = []
        service.subscribe(lambda before, after, changes: heard.extend(changes))
        store._hub.lose_track()
        # Written while no watcher is notified: the watchers have just ended.
        await store.transact((), (Delete(Keys().topic("t")),))
        await settled(service, store)
        assert heard == [TopicRemoved("t")]
        assert service.image.topics.keys() == {"u"}
        # And it follows again.
        await service.create_topics([NewTopic(name="v")])
        assert service.image.topic("v") is not None

    run(body)


def test_settings_of_a_topic_can_change_under_it() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await service.create_topics([NewTopic(name="t", settings={"flush.ms": "1"})])
        key = Keys().topic_settings("t")
        await store.transact((), (Put(key, write_settings({"flush.ms": "2"})),))
        await settled(service, store)
        topic = service.image.topic("t")
        assert topic is not None
        assert topic.settings == {"flush.ms": "2"}
        assert service.image == await loaded(store)

    run(body)


def test_a_broker_is_registered_while_its_session_lasts() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        broker = service.image.brokers[1]
        assert broker.endpoints == (Endpoint(PLAINTEXT, "localhost", 9092),)
        assert broker.epoch > 0
        await service.stop()
        assert not (await loaded(store)).brokers

    run(body)


async def suspend(service: MetadataService) -> None:
    """End the task that keeps the session."""
    (keeper,) = [task for task in service._tasks if task.get_name() == "broker-session"]
    keeper.cancel()
    await asyncio.wait([keeper])


def test_a_second_broker_with_the_id_is_refused_unless_it_is_the_same_directory() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        async with asyncio.TaskGroup() as tasks:
            other = MetadataService(store)
            await other.start(tasks)
            foreign = BrokerImage(1, (Endpoint(PLAINTEXT, "elsewhere", 9),), None, "directory-2", 0)
            with pytest.raises(DuplicateBrokerError, match="localhost:9092"):
                await other.register_broker(foreign, tasks)
            before = service.image.brokers[1].epoch
            # The process before is suspended: a running one has the lock of the directory.
            await suspend(service)
            assert await other.register_broker(BROKER, tasks) > before
            # The one before is fenced: its epoch is no longer the registered one.
            (error,) = await service.create_topics([NewTopic(name="zombie")])
            assert isinstance(error, StoreError)
            (topic,) = await other.create_topics([NewTopic(name="t")])
            assert isinstance(topic, TopicImage)
            await other.stop()

    run(body)


def test_registration_survives_lost_answers() -> None:
    async def main(fault: Fault) -> None:
        store = MemoryMetadataStore()
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            store.faults.append(fault)
            epoch = await service.register_broker(BROKER, tasks)
            assert service.image.brokers[1].epoch == epoch
            await service.stop()

    for fault in (Fault.LOST, Fault.ANSWER_LOST):
        asyncio.run(main(fault))


def test_the_store_says_ambiguous_when_asked_to() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(Fault.ANSWER_LOST)
        with pytest.raises(AmbiguousStoreError):
            await store.transact((), (Put("/elsewhere", b"1"),))
        assert (await store.read("/elsewhere")).values

    run(body)


async def create(service: MetadataService, names: list[str], count: int) -> None:
    """Create topics; what succeeds is in the image."""
    outcomes = await service.create_topics(
        [NewTopic(name=name, partition_count=count) for name in names]
    )
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, TopicImage):
            assert service.image.topic(name) == outcome


async def change_topics(service: MetadataService, kind: str, names: list[str], count: int) -> None:
    """Ask for more partitions or another setting of each topic; what succeeds is in the image."""
    for name in names:
        change = SettingsChange(name, (SettingEdit("retention.ms", EditKind.SET, str(count)),))
        try:
            if kind == "grow":
                topic = await service.create_partitions(MorePartitions(name, count))
                assert len(topic.partitions) == count
            else:
                topic = await service.change_settings(change)
                assert topic.settings["retention.ms"] == str(count)
        except MetadataError:
            continue
        assert service.image.topic(name) is topic


async def change_groups(service: MetadataService, names: list[str], count: int) -> None:
    """Give each group a setting, or take it; what succeeds is in the image."""
    for name in names:
        kind = EditKind.DELETE if count == 1 else EditKind.SET
        edit = SettingEdit(HEARTBEAT_INTERVAL, kind, str(6_000 + count))
        try:
            changed = await service.change_group_settings(
                SettingsChange(name, (edit,)), group_rules(GroupsSettings())
            )
        except StoreError:
            continue
        assert service.image.group_settings(name) == changed


async def followed(service: MetadataService, store: MemoryMetadataStore) -> MetadataImage:
    """Wait until the image is the loaded one: the remains of a creation are deleted later."""
    while service.image != (after := await loaded(store)):
        await settled(service, store)
    return after


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "ids", "grow", "configure", "groups"]),
        st.lists(st.sampled_from(["a.b", "a_b", "t", "u"]), min_size=1, max_size=3),
        st.lists(st.sampled_from(Fault), max_size=3),
        st.sampled_from([1, 3, 120]),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(REQUESTS)
def test_following_gives_what_loading_gives(
    requests: list[tuple[str, list[str], list[Fault], int]],
) -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        given: set[int] = set()
        for kind, names, faults, count in requests:
            before = service.image
            store.faults.extend(faults)
            if kind == "create":
                await create(service, names, count)
            elif kind == "delete":
                for outcome in await service.delete_topics(names):
                    if isinstance(outcome, TopicImage):
                        assert service.image.topic_by_id(outcome.id) is None
            elif kind in ("grow", "configure"):
                await change_topics(service, kind, names, count)
            elif kind == "groups":
                await change_groups(service, names, count)
            else:
                try:
                    block = set(await service.allocate_producer_ids())
                except StoreError:
                    block = set()
                assert given.isdisjoint(block)
                given |= block
            store.faults.clear()
            after = await followed(service, store)
            # A reader that got only the difference arrives at the same topics and groups.
            told = apply(before, difference(before, after), after.revision)
            assert told.topics == after.topics
            assert told.groups == after.groups
            assert told.topic_names == after.topic_names
            assert told.similar_names == after.similar_names
            assert told.partition_count == after.partition_count

    run(body)


def test_a_difference_names_what_is_new() -> None:
    before = MetadataImage(revision=1)
    after = MetadataImage(revision=2, cluster_id="c", brokers={1: BROKER}, next_producer_id=5,
                          producer_ids_revision=2)  # fmt: skip
    changes = difference(before, after)
    assert BrokerRegistered(BROKER) in changes
    assert apply(before, changes, 2) == after
    assert uuid4() not in after.topic_names
