"""The controller of several brokers: elections after deaths, restarts and drains."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.cluster import elections
from penstock.cluster.changes import Change, PartitionsChanged, TopicPublished, TopicRemoved
from penstock.cluster.configs.drain_setting import DRAIN
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerSettingsImage,
    BrokerState,
    MetadataImage,
    PartitionImage,
    Replica,
    TopicImage,
)
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.link.controller_role import ControllerRole
from penstock.cluster.link.controlling import UNCLEAN, Elections, concerns
from penstock.cluster.link.election_outcomes import ElectionOutcome
from penstock.cluster.link.leader_elections import LeaderElections
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.cluster.link.preferred_leaders import STABLE_SECONDS, PreferredLeaders
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Compare, Delete, Operation, Put
from penstock.cluster.values import read_partition, write_controller
from penstock.testing.memory_store import Fault
from tests.cluster.shared_store import CLUSTER, Cluster, broker, run_cluster, until


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


async def create(
    service: MetadataService,
    name: str = "t",
    replicas: tuple[int, ...] = (1, 2, 3),
    count: int = 1,
    **settings: str,
) -> TopicImage:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    wanted = NewTopic(
        name=name,
        assignments=tuple((index, replicas) for index in range(count)),
        settings=named,
    )
    (topic,) = await service.create_topics([wanted])
    assert isinstance(topic, TopicImage), topic
    return topic


def states(service: MetadataService, name: str = "t") -> tuple[PartitionImage, ...]:
    return service.image.topics[name].partitions


async def led(service: MetadataService, leader: int, name: str = "t") -> list[PartitionImage]:
    """Wait until a broker leads every partition; return the states."""
    await until(lambda: all(one.leader == leader for one in states(service, name)))
    return [*states(service, name)]


@pytest.mark.parametrize("count", [1, 250])
def test_the_partitions_of_a_stopped_broker_get_another_leader(count: int) -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3, 1, 2), count=count, min_insync_replicas="2")
        # Virtual time: nothing is waited for but the turns of the event loop.
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        await cluster.stop_broker(3)
        found = await led(services[0], 1)
        assert loop.time() - begun_at < 5
        assert {one.leader_epoch for one in found} == {1}
        assert {one.isr for one in found} == {(1, 2)}
        assert {one.broker_epoch for one in found} == {services[0].broker_epoch}
        await cluster.settle()

    run_cluster(body)


def test_the_controller_that_stops_is_replaced_and_its_partitions_too() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], count=7)
        controller = services[1].image.controller
        assert controller is not None
        assert controller.broker_id == 1
        await cluster.stop_broker(1)
        found = await led(services[1], 2)
        assert {one.leader_epoch for one in found} == {1}
        replaced = (await cluster.settle()).controller
        assert replaced is not None
        assert replaced.broker_id in (2, 3)

    run_cluster(body)


def test_a_broker_that_restarts_leads_in_another_epoch() -> None:
    """The only replica: it leads again with its new registration, once it runs."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3,))
        await cluster.stop_broker(3)
        await led(services[0], -1)
        back = await cluster.join(3, is_running=False)
        await cluster.settle()
        assert states(services[0])[0].leader == -1
        await back.change_state(BrokerState.RUNNING)
        (state,) = await led(services[0], 3)
        assert (state.leader_epoch, state.broker_epoch) == (2, back.broker_epoch)
        assert state.in_sync == (Replica(3, back.broker_epoch),)

    run_cluster(body)


def test_a_broker_that_lost_its_session_is_deposed_before_it_leads_again() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3, 1))
        epochs: list[int] = []
        services[2].subscribe_registration(epochs.append)
        await cluster.expire(3)
        (state,) = await led(services[0], 1)
        assert state.leader_epoch == 1
        await until(lambda: services[2].broker_epoch > 0)
        assert epochs == [0, services[2].broker_epoch]

    run_cluster(body)


def test_a_replaced_disk_is_not_elected() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3,))
        await cluster.stop_broker(3)
        await led(services[0], -1)
        await cluster.join(3, directory="another disk")
        await cluster.settle()
        assert states(services[0])[0].leader == -1
        # The operator accepts the loss.
        # With a space, as a client may write it.
        edit = SettingEdit(UNCLEAN, EditKind.SET, " true")
        await services[1].change_settings(SettingsChange("t", (edit,)))
        (state,) = await led(services[0], 3)
        assert state.is_recovering

    run_cluster(body)


def test_a_partition_that_its_broker_cannot_serve_gets_another_leader() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(3, 2))
        before = states(services[2])[0]
        after = elections.unserved(before, 3)
        assert after is not None
        write = PartitionWrite(topic.id, 0, before, after)
        assert await services[2].write_partitions([write]) == [True]
        (state,) = await led(services[0], 2)
        assert state.isr == (2,)

    run_cluster(body)


def test_a_topic_created_on_a_broker_that_has_gone_is_mended() -> None:
    """The creator did not know about it yet."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        cluster.stores[2].delay_watch()
        await cluster.stop_broker(3)
        await until(lambda: 3 not in services[0].image.brokers)
        services[1]._link.followed.wait_seconds = 0.01
        await create(services[1], replicas=(3, 1))
        cluster.stores[2].deliver()
        (state,) = await led(services[0], 1)
        assert state.leader_epoch == 1

    run_cluster(body)


def test_a_draining_broker_gives_its_leaders_and_its_places_away() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3, 1, 2), count=120, min_insync_replicas="2")
        await create(services[0], "alone", replicas=(3,))
        await create(services[0], "pair", replicas=(3, 2), min_insync_replicas="2")
        await services[2].change_state(BrokerState.DRAINING)
        await led(services[0], 1)
        await led(services[0], 2, "pair")
        await until(lambda: all(one.isr == (1, 2) for one in states(services[0])))
        image = await cluster.settle()
        # Nobody else can lead it, and the other one needs both replicas.
        assert image.topics["alone"].partitions[0].leader == 3
        assert image.topics["pair"].partitions[0].isr == (3, 2)

    run_cluster(body)


def test_a_starting_broker_is_not_the_controller() -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.join(1, is_running=False)
        assert first.image.controller is None
        second = await cluster.join(2)
        await until(lambda: second.image.controller is not None)
        assert second.image.controller is not None
        assert second.image.controller.broker_id == 2

    run_cluster(body)


def test_a_broker_that_is_alone_elects_nothing() -> None:
    """Its leader epochs stay over restarts."""

    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        await create(service, replicas=(1,))
        before = states(service)
        await service.stop()
        again = await cluster.start(1)
        await cluster.settle()
        assert states(again) == before
        assert again.broker_epoch > before[0].broker_epoch
        assert not again.is_isolated

    run_cluster(body)


def test_a_write_of_a_replaced_controller_does_not_land() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3, 2))
        # The controller hears no more, and decides on its old image when it is let go.
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def pause(operations: Sequence[Operation]) -> None:
            if any("/parts/" in one.key for one in operations if isinstance(one, Put)):
                reached.set()
                await go_on.wait()

        cluster.stores[1].before_transaction = pause
        await cluster.stop_broker(3)
        await reached.wait()
        cluster.stores[1].delay_watch()
        await cluster.expire(1)
        (state,) = await led(services[1], 2)
        assert state.leader_epoch == 1
        before = await cluster.shared.read_prefix("/penstock/default/parts/")
        go_on.set()
        cluster.stores[1].deliver()
        await until(lambda: services[0].broker_epoch > 0)
        await cluster.settle()
        assert (await cluster.shared.read_prefix("/penstock/default/parts/")).values == (
            before.values
        )

    run_cluster(body)


def test_a_controller_without_its_key_changes_nothing() -> None:
    """Its registration is valid; another broker has the role, and has not acted yet."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], replicas=(3, 2))
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def pause(operations: Sequence[Operation]) -> None:
            if any("/parts/" in one.key for one in operations if isinstance(one, Put)):
                reached.set()
                await go_on.wait()

        cluster.stores[1].before_transaction = pause
        await cluster.stop_broker(3)
        await reached.wait()
        # In one step of the event loop: no other broker gets the role in between.
        await cluster.shared.transact([], [Delete(cluster.keys.controller())])
        value = write_controller(9, 9)
        await cluster.shared.transact([], [Put(cluster.keys.controller(), value)])
        before = await cluster.shared.read_prefix("/penstock/default/parts/")
        go_on.set()
        await cluster.settle()
        for _ in range(50):
            await asyncio.sleep(0)
        after = await cluster.shared.read_prefix("/penstock/default/parts/")
        assert after.values == before.values

    run_cluster(body)


def test_a_replica_that_joins_a_drained_leader() -> None:
    """Its leader could not move before."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(2, 3))
        image = services[0].image
        joined = (PartitionsChanged(topic.id, {0: topic.partitions[0]}),)
        assert not concerns(image, joined)
        drained = {
            str(one): BrokerSettingsImage({DRAIN: "true"}, 1)
            for one in (1, topic.partitions[0].leader)
        }
        assert concerns(replace(image, broker_settings=drained), joined)
        other = {"1": drained["1"]}
        assert not concerns(replace(image, broker_settings=other), joined)

    run_cluster(body)


def test_a_published_topic_may_need_an_election() -> None:
    """Its partitions were written before, by a broker that has gone since."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(2, 3))
        published = (TopicPublished("t", topic.id, 1, 1),)
        image = services[0].image
        assert not concerns(image, published)
        gone = replace(image, brokers={one: image.brokers[one] for one in (1, 3)})
        assert concerns(gone, published)
        assert not concerns(gone, (TopicRemoved("u"),))

    run_cluster(body)


@pytest.mark.parametrize("seed", range(12))
def test_each_epoch_has_one_leader_whoever_controls(seed: int) -> None:
    """Controllers come and go in the middle of elections; answers are lost."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], count=3, min_insync_replicas="2")
        leaders: dict[tuple[int, int], set[tuple[int, int]]] = {}

        def note(
            _before: MetadataImage, _image: MetadataImage, changes: tuple[Change, ...]
        ) -> None:
            for change in changes:
                if isinstance(change, PartitionsChanged):
                    for index, state in change.partitions.items():
                        assert state is not None
                        epoch = leaders.setdefault((index, state.leader_epoch), set())
                        epoch.add((state.leader, state.broker_epoch))

        watcher = await cluster.join(9, is_running=False)
        watcher.subscribe(note)
        faults = [*Fault]
        for step in range(6):
            victim = 1 + (seed + step) % 3
            store = cluster.stores[1 + (seed * step) % 3]
            store.faults.extend([faults[(seed + step) % len(faults)], faults[step % len(faults)]])
            broken = services[victim - 1]
            lost = broken.broker_epoch
            await cluster.expire(victim)
            await until(lambda one=broken, lost=lost: one.broker_epoch > lost)  # type: ignore[misc]
            store.faults.clear()
            if (seed >> step) & 1:
                await until(lambda: are_settled(services[0]))
        await until(lambda: are_settled(services[0]))
        assert all(len(found) == 1 for found in leaders.values()), leaders
        assert max(epoch for _, epoch in leaders) >= 1

    run_cluster(body)


def are_settled(service: MetadataService) -> bool:
    """Whether every partition has the registrations of now."""
    epochs = {one.id: one.epoch for one in service.image.brokers.values()}
    return len(epochs) > 3 and all(elections.is_settled(one, epochs) for one in states(service))


def test_a_partition_that_changes_often_does_not_stop_the_others() -> None:
    """Its compare fails each time: the others are written without it."""

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(3, 1, 2), count=50)
        key = cluster.keys.partition(topic.id, 7)
        rewritten = Counter[str]()

        async def disturb(operations: Sequence[Operation]) -> None:
            if any(isinstance(one, Put) and one.key == key for one in operations):
                (pair,) = (await cluster.shared.read(key)).values
                if rewritten[key] < 30:
                    rewritten[key] += 1
                    compare = Compare.unchanged(key, pair.mod_revision)
                    await cluster.shared.transact([compare], [Put(key, pair.value)])

        cluster.stores[1].before_transaction = disturb
        await cluster.stop_broker(3)
        await until(lambda: sum(one.leader == 1 for one in states(services[0])) >= 49)
        assert rewritten[key] < 30
        await led(services[0], 1)

    run_cluster(body)


def test_an_unreadable_partition_does_not_stop_the_others() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(3, 1, 2), count=3)
        key = cluster.keys.partition(topic.id, 1)
        await cluster.shared.transact([], [Put(key, b'{"v":99}')])
        await until(lambda: key in services[0]._link.followed.unreadable)
        await cluster.stop_broker(3)
        await until(lambda: [one.leader for one in states(services[0])] == [1, 3, 1])

    run_cluster(body)


def test_elections_write_in_the_form_of_the_store() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(3, 1))
        before = states(services[2])[0]
        write = PartitionWrite(topic.id, 0, before, elections.shrunk(before, 1))
        assert await services[2].write_partitions([write]) == [True]
        await cluster.stop_broker(3)
        await led(services[0], -1)
        (pair,) = (await cluster.shared.read(cluster.keys.partition(topic.id, 0))).values
        assert read_partition(pair.value, 1).written_by is None

    run_cluster(body)


# --- First replicas ---


async def led_by_second(cluster: Cluster) -> list[MetadataService]:
    """Return brokers of which 2 leads a partition of (3, 2), with 3 in sync again."""
    services = await cluster.three()
    topic = await create(services[0], replicas=(3, 2))
    await cluster.stop_broker(3)
    await led(services[1], 2)
    services[2] = await cluster.join(3)
    image = await cluster.settle()
    before = states(services[1])[0]
    joined = elections.joined(before, Replica(3, image.brokers[3].epoch))
    write = PartitionWrite(topic.id, 0, before, joined, (3,))
    assert await services[1].write_partitions([write]) == [True]
    await cluster.settle()
    return services


def test_a_first_replica_leads_again_after_a_minute_in_sync() -> None:
    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        clock = Clock()
        link = services[0]._link
        role = ControllerRole(link)
        run = Elections(link, lambda _: NO_SETTINGS, clock, ClusterRules())
        await run.carry_out(role._guards)
        assert states(services[0])[0].leader == 2
        assert run.next_seconds == STABLE_SECONDS
        clock.seconds += STABLE_SECONDS - 1
        await run.carry_out(role._guards)
        assert states(services[0])[0].leader == 2
        clock.seconds += 1
        await run.carry_out(role._guards)
        assert states(services[0])[0].leader == 3
        # Nothing is left: the next examination is the regular one.
        clock.seconds += 1
        await run.carry_out(role._guards)
        assert run.next_seconds == 300.0

    run_cluster(body)


def test_time_in_sync_begins_anew_after_a_loss() -> None:
    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        image = services[0].image
        preferred = PreferredLeaders()
        assert not preferred.examine(image, 0.0)
        topic = image.topics["t"]
        left = elections.shrunk(topic.partitions[0], 3)
        preferred.follow(image, (PartitionsChanged(topic.id, {0: left}),))
        assert preferred.next_seconds(10.0) is None
        assert not preferred.examine(image, 70.0)
        assert preferred.examine(image, 70.0 + STABLE_SECONDS) == {(topic.id, 0)}

    run_cluster(body)


def test_a_later_examination_looks_at_moved_leaders_only() -> None:
    """With 100,000 partitions, an idle controller must not look at all of them again and again."""

    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        image = services[0].image
        topic = image.topics["t"]
        moved = topic.partitions[0]
        first = moved._replace(leader=moved.replicas[0])
        preferred = PreferredLeaders()
        preferred.examine(image, 0.0)
        # The image still has the moved leader, but no change has named it: nothing is looked at.
        preferred.follow(image, (PartitionsChanged(topic.id, {0: first}),))
        assert not preferred.examine(image, STABLE_SECONDS)
        preferred.follow(image, (PartitionsChanged(topic.id, {0: moved}),))
        assert not preferred.examine(image, STABLE_SECONDS)
        assert preferred.examine(image, 2 * STABLE_SECONDS) == {(topic.id, 0)}
        # A topic that is gone is forgotten.
        gone = MetadataImage()
        assert not preferred.examine(gone, 3 * STABLE_SECONDS)
        assert not preferred.examine(image, 4 * STABLE_SECONDS)

    run_cluster(body)


def test_rebalancing_can_be_off() -> None:
    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        run = Elections(services[0]._link, lambda _: NO_SETTINGS, Clock(), CLUSTER)
        assert run.next_seconds is None
        await run.carry_out(ControllerRole(services[0]._link)._guards)
        assert states(services[0])[0].leader == 2

    run_cluster(body)


# --- Requested elections ---


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_any_broker_elects_on_request(asked: int) -> None:
    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        run = LeaderElections(services[asked - 1])
        places = [("t", 0), ("t", 1), ("u", 0)]
        assert await run.elect(places, is_unclean=False) == {
            ("t", 0): ElectionOutcome.ELECTED,
            ("t", 1): ElectionOutcome.UNKNOWN_PARTITION,
            ("u", 0): ElectionOutcome.UNKNOWN_PARTITION,
        }
        assert states(services[asked - 1])[0].leader == 3
        again = await run.elect([("t", 0)], is_unclean=False)
        assert again == {("t", 0): ElectionOutcome.NOT_NEEDED}

    run_cluster(body)


def test_a_lost_answer_of_a_requested_election() -> None:
    async def body(cluster: Cluster) -> None:
        services = await led_by_second(cluster)
        cluster.stores[2].faults.append(Fault.ANSWER_LOST)
        outcomes = await LeaderElections(services[1]).elect([("t", 0)], is_unclean=False)
        assert outcomes == {("t", 0): ElectionOutcome.ELECTED}
        assert states(services[1])[0].leader_epoch == 2

    run_cluster(body)


def test_an_unclean_election_on_request() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], replicas=(3, 2))
        before = states(services[2])[0]
        write = PartitionWrite(topic.id, 0, before, elections.shrunk(before, 2))
        assert await services[2].write_partitions([write]) == [True]
        run = LeaderElections(services[0])
        place = ("t", 0)
        assert await run.elect([place], is_unclean=True) == {place: ElectionOutcome.NOT_NEEDED}
        await cluster.stop_broker(3)
        await led(services[0], -1)
        assert await run.elect([place], is_unclean=False) == {place: ElectionOutcome.NOT_AVAILABLE}
        assert await run.elect([place], is_unclean=True) == {place: ElectionOutcome.ELECTED}
        state = states(services[0])[0]
        assert (state.leader, state.is_recovering) == (2, True)
        await cluster.stop_broker(2)
        await led(services[0], -1)
        assert await run.elect([place], is_unclean=True) == {place: ElectionOutcome.NOT_AVAILABLE}

    run_cluster(body)


def test_a_broker_registers_with_the_state_of_its_mode() -> None:
    async def body(cluster: Cluster) -> None:
        rules = ClusterRules(session_seconds=30.0, rebalance_seconds=None)
        service = await cluster.join(1, rules=rules, is_running=False)
        assert service.is_clustered
        assert service.image.brokers[1].state is BrokerState.STARTING
        alone = await cluster.start(2)
        assert not alone.is_clustered
        assert alone.image.brokers[2].state is BrokerState.RUNNING
        assert broker(1).state is BrokerState.RUNNING
        assert CLUSTER.rebalance_seconds is None

    run_cluster(body)
