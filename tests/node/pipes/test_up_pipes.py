"""Up pipes between brokers of this process: exactly once, many sites, restarts, and fencing."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client import calls
from penstock.client.groups.groups import Groups
from penstock.core.settings.tree import LogCareSettings
from penstock.core.types import TopicPartition
from penstock.edge.pipes import kafka_upstream, up_runner
from penstock.node.duties import StorageDuties
from penstock.node.pipes.pipe_book import PipeBook
from penstock.records.batch import iterate_headers
from penstock.storage.service import StorageService
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.transactional import Transactional, until_written
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    stored,
    until,
    up_pipe,
)
from tests.node.pipes.test_mirrored_transactions import send

AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def values(broker: Broker, count: int) -> list[str]:
    """Return the committed records of the topic, once there are this many."""
    return [str(one.value) for one in broker.records(TOPIC, count=count)]


def wait_sent(child: Broker) -> None:
    Operator(child).wait_in_step("up")


def produce(broker: Broker, some: Sequence[str]) -> None:
    for one in some:
        broker.produce(TOPIC, one)


def test_records_go_up_in_order_and_the_parent_has_the_position(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        child.create_topic(TOPIC)
        produce(child, ["1", "2", "3"])
        assert values(parent, 3) == ["1", "2", "3"]
        produce(child, ["4"])
        assert values(parent, 4) == ["1", "2", "3", "4"]
        wait_sent(child)
        with client_of(parent.bootstrap_server) as cluster:
            assert Groups(cluster).committed("pipe.store-1")[AT].offset == 4
        # Each transaction has an epoch of its own here, and the sequences begin anew with it.
        sent = [one for _, one in iterate_headers(stored(parent.bootstrap_server))]
        firsts = {
            one.producer_epoch: one.base_sequence for one in reversed(sent) if not one.is_control
        }
        assert len(firsts) == sum(one.is_control for one in sent) > 1
        assert set(firsts.values()) == {0}
        shown = Operator(child).pipe("up")
        assert (shown["direction"], shown["site"], shown["health"]) == ("up", "store-1", "HEALTHY")
        assert (shown["records"], shown["lag_records"], shown["waiting_bytes"]) == (4, 0, 0)


def test_many_sites_write_one_topic(parent: Broker) -> None:
    parent.create_topic(TOPIC)
    with (
        Broker(child_settings([up_pipe(parent.bootstrap_server, site="a")])) as first,
        Broker(child_settings([up_pipe(parent.bootstrap_server, site="b")])) as second,
    ):
        for number in range(20):
            first.produce(TOPIC, f"a{number}")
            second.produce(TOPIC, f"b{number}")
        found = values(parent, 40)
    for site in "ab":
        own = [one for one in found if one.startswith(site)]
        assert own == [f"{site}{number}" for number in range(20)]


def test_a_crash_of_either_side_repeats_and_loses_nothing(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        sent: list[str] = []
        for turn in range(4):
            some = [f"{turn}-{number}" for number in range(25)]
            produce(child, some)
            sent += some
            (child if turn % 2 else parent).crash()
            (child if turn % 2 else parent).restart()
        assert values(parent, len(sent)) == sent
        wait_sent(child)
        assert values(parent, len(sent)) == sent


def test_aborted_and_open_transactions_of_the_site_stay(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        child.create_topic(TOPIC)
        with Asker(child.port) as asker:
            done, undone, hanging = (Transactional(asker, name) for name in ("a", "b", "c"))
            for one in (done, undone, hanging):
                one.init()
            send(undone, b"aborted")
            undone.ask_end(commits=False)
            until_written(asker, TOPIC, 2)
            send(done, b"kept")
            done.ask_end(commits=True)
            until_written(asker, TOPIC, 4)
            send(hanging, b"undecided")
            child.produce(TOPIC, "behind it")
            assert values(parent, 1) == ["kept"]
            assert Operator(child).pipe("up")["lag_records"] == 2
            hanging.ask_end(commits=True)
            assert values(parent, 3) == ["kept", "undecided", "behind it"]


def test_small_batches_become_one_and_large_ones_stay(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        Operator(child).ask("POST", "/up/pause")
        produce(child, [str(number) for number in range(50)])
        produce(child, ["x" * 5_000])
        produce(child, ["y"])
        Operator(child).ask("POST", "/up/resume")
        assert values(parent, 52)[-2:] == ["x" * 5_000, "y"]
        headers = [one for _, one in iterate_headers(stored(parent.bootstrap_server))]
        sizes = [one.record_count for one in headers if not one.is_control]
        assert sizes == [50, 1, 1]
        assert all(one.is_transactional for one in headers)


def test_a_cloned_site_is_refused_and_reported(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        child.produce(TOPIC, "1")
        wait_sent(child)
        with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as clone:
            clone.create_topic(TOPIC)
            wait_sent(clone)
            child.produce(TOPIC, "2")
            operator = Operator(child)
            until(lambda: "another broker sends" in str(operator.pipe("up")["reason"]))
            shown = operator.pipe("up")
            assert (shown["health"], shown["lag_records"]) == ("UNHEALTHY", 1)
            clone.produce(TOPIC, "of the clone")
            assert values(parent, 2) == ["1", "of the clone"]
        # The other broker has replaced the position: the own note knows how far this log is.
        operator.ask("POST", "/up/resume")
        assert values(parent, 3) == ["1", "of the clone", "2"]


def test_a_second_broker_with_another_pipe_name_fences_the_first(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        child.produce(TOPIC, "1")
        wait_sent(child)
        other = up_pipe(parent.bootstrap_server, name="other-up")
        with Broker(child_settings([other])) as second:
            second.produce(TOPIC, "of the second")
            assert values(parent, 2) == ["1", "of the second"]
            child.produce(TOPIC, "2")
            operator = Operator(child)
            until(lambda: "another broker sends" in str(operator.pipe("up")["reason"]))
            reason = str(operator.pipe("up")["reason"])
            assert f"cluster id {second._last_server().cluster_id}, pipe 'other-up'" in reason
            assert "PRODUCER_FENCED" in reason or "INVALID_PRODUCER_EPOCH" in reason
            assert values(parent, 2) == ["1", "of the second"]
        operator.ask("POST", "/up/resume")
        assert values(parent, 3) == ["1", "of the second", "2"]


def is_listed(operator: Operator, name: str) -> bool:
    """Whether a pipe knows its topic, and has sent all of it."""
    shown = operator.pipe(name)
    return shown["partition_count"] == 1 and bool(shown["is_in_step"])


def test_two_new_brokers_with_one_site_find_each_other_while_they_send(
    parent: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_upstream, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(up_runner, "LOCAL_LOOK_SECONDS", 0.02)
    other = up_pipe(parent.bootstrap_server, name="other-up")
    with (
        Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child,
        Broker(child_settings([other])) as second,
    ):
        for broker, name in ((child, "up"), (second, "other-up")):
            broker.create_topic(TOPIC)
            until(partial(is_listed, Operator(broker), name))
        # Neither has committed a position when the other one begins.
        child.produce(TOPIC, "1")
        wait_sent(child)
        second.produce(TOPIC, "of the second")
        Operator(second).wait_in_step("other-up")
        child.produce(TOPIC, "2")
        operator = Operator(child)
        until(lambda: "pipe 'other-up'" in str(operator.pipe("up")["reason"]))
        assert operator.pipe("up")["health"] == "UNHEALTHY"
        assert values(parent, 2) == ["1", "of the second"]


def test_two_pipes_of_one_broker_share_a_site(parent: Broker) -> None:
    one = up_pipe(parent.bootstrap_server)
    two = up_pipe(parent.bootstrap_server, name="second-up", topics=("stock",))
    with Broker(child_settings([one, two])) as child:
        for number in range(3):
            child.produce(TOPIC, f"{number}")
            child.produce("stock", f"{number}")
        for name in ("up", "second-up"):
            Operator(child).wait_in_step(name)
            Operator(child).ask("POST", f"/{name}/pause")
            Operator(child).ask("POST", f"/{name}/resume")
        child.produce(TOPIC, "3")
        child.produce("stock", "3")
        assert values(parent, 4) == ["0", "1", "2", "3"]
        assert [str(one.value) for one in parent.records("stock", count=4)] == list("0123")


def test_pipes_of_a_replaced_broker_do_not_fence_each_other(parent: Broker) -> None:
    """A new disk has another cluster id; positions of topics that are gone keep the former one."""
    pipes = [
        up_pipe(parent.bootstrap_server),
        up_pipe(parent.bootstrap_server, name="second-up", topics=("stock", "gone")),
    ]
    with Broker(child_settings(pipes)) as former:
        former.produce("gone", "0")
        Operator(former).wait_in_step("second-up")
    with Broker(child_settings(pipes)) as child:
        child.produce("stock", "1")
        Operator(child).wait_in_step("second-up")
        child.produce(TOPIC, "1")
        Operator(child).wait_in_step("up")
        for action in ("pause", "resume"):
            Operator(child).ask("POST", f"/up/{action}")
        child.produce(TOPIC, "2")
        assert values(parent, 2) == ["1", "2"]
        child.produce("stock", "2")
        assert [str(one.value) for one in parent.records("stock", count=2)] == ["1", "2"]
        assert Operator(child).pipe("second-up")["health"] != "UNHEALTHY"


def test_a_copied_disk_is_found_before_a_record_is_skipped(parent: Broker, tmp_path: Path) -> None:
    def site(path: Path) -> Broker:
        return Broker(child_settings([up_pipe(parent.bootstrap_server)], path))

    with site(tmp_path / "disk") as child:
        produce(child, ["1", "2"])
        wait_sent(child)
    copytree(tmp_path / "disk", tmp_path / "copy")
    with site(tmp_path / "copy") as clone:
        produce(clone, ["of the clone", "too"])
        assert values(parent, 4)[2:] == ["of the clone", "too"]
    with site(tmp_path / "disk") as child:
        operator = Operator(child)
        until(lambda: "log here ends at 2" in str(operator.pipe("up")["reason"]))
        produce(child, ["3", "4", "5"])
        operator.ask("POST", "/up/pause")
        operator.ask("POST", "/up/resume")
        until(lambda: "the disk was restored or copied" in str(operator.pipe("up")["reason"]))
        assert operator.pipe("up")["health"] == "UNHEALTHY"
        operator.ask("POST", "/up/reset", {"topics": [TOPIC], "start": "latest"})
        wait_sent(child)
        produce(child, ["6"])
        assert values(parent, 5) == ["1", "2", "of the clone", "too", "6"]


def first_offset(broker: Broker, topic: str) -> int:
    at = TopicPartition(topic, 0)
    with client_of(broker.bootstrap_server) as cluster:
        found = cluster.look_up_offsets({at: calls.EARLIEST_TIMESTAMP}, is_read_committed=False)
    return found[at].offset


def test_retention_keeps_records_that_were_not_sent(parent: Broker) -> None:
    often = LogCareSettings(retention_check_interval_ms=20)
    settings = child_settings([up_pipe(parent.bootstrap_server)])
    with Broker(settings.model_copy(update={"log": often})) as child:
        operator = Operator(child)
        operator.ask("POST", "/up/pause")
        for topic in (TOPIC, "other"):
            child.create_topic(topic, configs={"retention.ms": "1"})
            child.produce(topic, *map(str, range(5)))
        until(lambda: first_offset(child, "other") == 5)
        assert first_offset(child, TOPIC) == 0
        operator.ask("POST", "/up/resume")
        assert values(parent, 5) == list(map(str, range(5)))
        until(lambda: first_offset(child, TOPIC) == 5)


def test_retention_keeps_unsent_records_while_the_broker_starts_and_stops(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def noted(part: str) -> None:
        flushers = [one for storage in storages[-1:] for one in storage.manager.flushers]
        seen.extend((part, one.directory.retained_from(AT, 0, 5)) for one in flushers)

    storages: list[StorageService] = []
    begun, stopped = StorageDuties.run, PipeBook.stop

    async def run(duties: StorageDuties) -> None:
        storages.append(duties._storage)
        noted("duties begin")
        await begun(duties)

    async def stop(book: PipeBook) -> None:
        await stopped(book)
        noted("pipes have stopped")

    settings = child_settings([up_pipe("127.0.0.1:1")], tmp_path)
    with pytest.MonkeyPatch.context() as patch, Broker(settings) as child:
        child.create_topic(TOPIC)
        patch.setattr(StorageDuties, "run", run)
        patch.setattr(PipeBook, "stop", stop)
        child.restart()
        child.restart()
    assert set(seen) == {("duties begin", 0), ("pipes have stopped", 0)}


def test_a_deleted_topic_of_the_site_is_sent_from_its_start(parent: Broker) -> None:
    with Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child:
        produce(child, ["1", "2"])
        wait_sent(child)
        with client_of(child.bootstrap_server) as cluster:
            cluster.delete_topic(TOPIC)
        child.create_topic(TOPIC)
        produce(child, ["new"])
        assert values(parent, 3) == ["1", "2", "new"]


def test_a_changed_pipe_begins_after_the_former_one_has_noted_its_position() -> None:
    """Otherwise another parent, which has no position, could get the last records again."""
    steps: list[str] = []

    class Runner:
        async def run(self) -> None:
            steps.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                steps.append("noted")

    async def story() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            held: list[object] = []
            sites = SimpleNamespace(hold=held.append, release=lambda: None)
            none: Any = SimpleNamespace()
            book = PipeBook(
                *(none, none, cast("Any", sites), none, tasks),
                site="",
                broker="b",
                note_directory=None,
            )
            patch.setattr(book, "_up_runner", lambda _: Runner())
            book.follow([up_pipe("one:9092")])
            await asyncio.sleep(0)
            book.follow([up_pipe("two:9092")])
            while steps.count("begun") < 2:  # noqa: ASYNC110 (the runner has no event)
                await asyncio.sleep(0.001)
            assert steps == ["begun", "noted", "begun"]
            await book.stop()
            assert not book._ending

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(story())
