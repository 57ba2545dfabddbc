"""Down pipes between real brokers: the child's log is the parent's, over restarts and crashes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client import calls
from penstock.client.groups.groups import Groups
from penstock.client.records.record_deletion import delete_before
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.edge.pipes import back_off, pipe_runner
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    down_pipe,
    equal,
    stored,
    until,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look and retry often, because a test does not wait for seconds."""
    monkeypatch.setattr(pipe_runner, "GROUP_SECONDS", 0.05)
    monkeypatch.setattr(pipe_runner, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(pipe_runner, "LOCAL_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(back_off, "PAUSE_SECONDS_MIN", 0.02)
    monkeypatch.setattr(back_off, "PAUSE_SECONDS_MAX", 0.1)


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC, configs={"retention.ms": "123456789"})
        running.produce(TOPIC, *[f"v{number}" for number in range(20)])
        yield running


@contextmanager
def child_of(parent: Broker, **options: object) -> Iterator[Broker]:
    with Broker(child_settings([down_pipe(parent.bootstrap_server, **options)])) as running:
        yield running


def test_the_child_has_the_batches_settings_and_id_of_the_parent(parent: Broker) -> None:
    with child_of(parent) as child:
        Operator(child).wait_in_step()
        assert equal(child, parent)
        with client_of(parent.bootstrap_server) as up, client_of(child.bootstrap_server) as down:
            assert down.describe([TOPIC])[TOPIC].topic_id == up.describe([TOPIC])[TOPIC].topic_id
            settings = {one.name: one.value for one in down.topic_configs([TOPIC])[TOPIC].configs}
        assert settings["retention.ms"] == "123456789"
        parent.produce(TOPIC, "later")
        assert [one.value for one in child.records(TOPIC, count=21)][-1] == "later"


def test_a_mirror_is_read_only(parent: Broker) -> None:
    with child_of(parent) as child:
        Operator(child).wait_in_step()
        with pytest.raises(BrokerAnswerError, match="POLICY_VIOLATION"):
            child.produce(TOPIC, "not allowed")
        assert equal(child, parent)


def test_a_mirror_grows_only_with_its_parent(parent: Broker) -> None:
    with child_of(parent) as child:
        Operator(child).wait_in_step()
        with (
            client_of(child.bootstrap_server) as down,
            pytest.raises(BrokerAnswerError, match="POLICY_VIOLATION"),
        ):
            down.add_partitions(TOPIC, 5)


def test_clients_do_not_create_a_topic_that_a_pipe_will_create() -> None:
    pipe = down_pipe("127.0.0.1:1", topics=("pr*",))
    with Broker(child_settings([pipe])) as child, client_of(child.bootstrap_server) as down:
        for name in (TOPIC, "other"):
            down.anywhere(calls.describe_brokers([name], auto_create=True))
        assert list(down.describe([TOPIC, "other"])) == ["other"]
        assert "retrying" in str(Operator(child).pipe()["reason"])


def test_a_topic_that_clients_write_is_not_overwritten(parent: Broker) -> None:
    with Broker(child_settings([])) as child:
        child.create_topic(TOPIC)
        child.produce(TOPIC, "local")
        operator = Operator(child)
        body = {"name": "hq", "parent": parent.bootstrap_server, "topics": ["*"]}
        operator.ask("POST", "", body)
        until(lambda: "clients write it" in str(operator.pipe()["reason"]))
        assert [one.value for one in child.records(TOPIC)] == ["local"]


def test_crashes_and_restarts_of_both_sides_lose_and_repeat_nothing(parent: Broker) -> None:
    with child_of(parent) as child:
        for number in range(4):
            child.crash()
            parent.produce(TOPIC, f"while the child is down {number}")
            child.restart()
            parent.produce(TOPIC, f"while it catches up {number}")
            parent.restart()
            parent.produce(TOPIC, f"after the restart {number}")
        until(lambda: equal(child, parent))
        assert len(child.records(TOPIC)) == 32


def test_new_partitions_and_new_topics_are_found(parent: Broker) -> None:
    with child_of(parent, topics=("pr*",)) as child:
        operator = Operator(child)
        operator.wait_in_step()
        parent.create_topic("promo", partitions=2)
        parent.produce("promo", "one", partition=1)
        with client_of(parent.bootstrap_server) as up:
            up.add_partitions(TOPIC, 3)
        parent.produce(TOPIC, "in the new one", partition=2)
        until(lambda: operator.pipe()["partition_count"] == 5)
        operator.wait_in_step()
        assert equal(child, parent, TOPIC, 2)
        assert equal(child, parent, "promo", 1)


def test_a_recreated_topic_stops_the_copy(parent: Broker) -> None:
    with child_of(parent) as child:
        operator = Operator(child)
        operator.wait_in_step()
        before = stored(child.bootstrap_server)
        with client_of(parent.bootstrap_server) as up:
            up.delete_topic(TOPIC)
        parent.create_topic(TOPIC)
        parent.produce(TOPIC, *[f"other {number}" for number in range(30)])
        until(lambda: "recreated" in str(operator.pipe()["reason"]))
        assert operator.pipe()["health"] == "UNHEALTHY"
        assert stored(child.bootstrap_server) == before
        with client_of(child.bootstrap_server) as down:
            down.delete_topic(TOPIC)
        until(lambda: bool(operator.pipe()["is_in_step"]))
        assert equal(child, parent)


@contextmanager
def restored_parent(folder: Path) -> Iterator[tuple[Broker, Path, Path]]:
    data = folder / "parent"
    with Broker(data_dir=data) as running:
        running.create_topic(TOPIC)
        for number in range(10):
            running.produce(TOPIC, f"kept {number}")
        running.crash()
        shutil.copytree(data, folder / "backup")
        running.restart()
        yield running, data, folder / "backup"


@pytest.mark.parametrize("written_since", [2, 5, 40])
def test_a_parent_from_an_old_backup_is_followed(tmp_path: Path, written_since: int) -> None:
    with restored_parent(tmp_path) as (parent, data, backup), child_of(parent) as child:
        for number in range(5):
            parent.produce(TOPIC, f"lost {number}")
        Operator(child).wait_in_step()
        assert len(child.records(TOPIC)) == 15
        child.crash()
        parent.crash()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        parent.restart()
        for number in range(written_since):
            parent.produce(TOPIC, f"new {number}")
        child.restart()
        until(lambda: equal(child, parent))
        texts = [one.value for one in child.records(TOPIC)]
        assert texts == [f"kept {one}" for one in range(10)] + [
            f"new {one}" for one in range(written_since)
        ]
        assert Operator(child).pipe()["cut_records"] == 5


def test_a_cut_raises_the_leader_epoch(tmp_path: Path) -> None:
    """So children of the child compare their logs again; the epoch of the records is the same."""
    at = TopicPartition(TOPIC, 0)
    with restored_parent(tmp_path) as (parent, data, backup), child_of(parent) as child:
        parent.produce(TOPIC, "lost")
        Operator(child).wait_in_step()
        with client_of(child.bootstrap_server) as down:
            before = down.leaders([at])[at].leader_epoch
        parent.crash()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        parent.restart()
        until(lambda: equal(child, parent))
        with client_of(child.bootstrap_server) as down:
            assert down.leaders([at])[at].leader_epoch == before + 1


def _delete_below(broker: Broker, offset: int) -> None:
    with client_of(broker.bootstrap_server) as cluster:
        delete_before(cluster, {TopicPartition(TOPIC, 0): offset})


def test_a_gap_stops_the_copy(parent: Broker) -> None:
    with child_of(parent) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        parent.produce(TOPIC, *[f"more {number}" for number in range(10)])
        _delete_below(parent, 25)
        child.restart()
        until(lambda: "gap" in str(operator.pipe()["reason"]))
        pipe = operator.pipe()
        assert (pipe["health"], pipe["gaps"]) == ("UNHEALTHY", 0)
        assert "20 to 24" in str(pipe["reason"])
        assert len(child.records(TOPIC)) == 20


def test_a_gap_is_skipped_and_counted(parent: Broker) -> None:
    with child_of(parent, on_gap="skip") as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        for number in range(5):
            parent.produce(TOPIC, *[f"more {number}.{one}" for one in range(2)])
        _delete_below(parent, 25)  # within a batch
        child.restart()
        operator.wait_in_step()
        pipe = operator.pipe()
        assert (pipe["gaps"], pipe["gap_records"]) == (1, 5)
        assert [one.offset for one in child.records(TOPIC)] == [25, 26, 27, 28, 29]


def test_committed_offsets_are_copied_while_the_group_is_empty(parent: Broker) -> None:
    at = TopicPartition(TOPIC, 0)
    with client_of(parent.bootstrap_server) as up:
        Groups(up).commit("till-1", {at: 7})
        Groups(up).commit("other", {at: 3})
    with (
        child_of(parent, groups=("till-*",)) as child,
        client_of(child.bootstrap_server) as down,
    ):
        groups = Groups(down)
        until(lambda: at in groups.committed("till-1") and groups.committed("till-1")[at][0] == 7)
        assert groups.committed("other") == {}
        groups.commit("till-1", {at: 9})  # a client here goes on: it keeps its own progress
        with client_of(parent.bootstrap_server) as up:
            Groups(up).commit("till-1", {at: 8})
            Groups(up).commit("till-2", {at: 20})
        until(lambda: at in groups.committed("till-2"))
        assert groups.committed("till-1")[at].offset == 9


def test_promote_and_restore(parent: Broker) -> None:
    with child_of(parent) as child:
        operator = Operator(child)
        operator.wait_in_step()
        assert operator.ask("POST", "/hq/promote", {"topics": []}) == {"topics": [TOPIC]}
        child.produce(TOPIC, "written here")
        parent.produce(TOPIC, "written there")
        assert [one.value for one in child.records(TOPIC)][-1] == "written here"
        until(lambda: operator.pipe()["promoted"] == [TOPIC])
        child.restart()  # the promotion is kept
        child.produce(TOPIC, "written here too")
        until(lambda: operator.pipe()["promoted"] == [TOPIC])
        assert operator.ask("POST", "/hq/restore", {"topics": []}) == {"topics": [TOPIC]}
        until(lambda: equal(child, parent))
        assert [one.value for one in child.records(TOPIC)][-1] == "written there"
        with pytest.raises(BrokerAnswerError, match="POLICY_VIOLATION"):
            child.produce(TOPIC, "not allowed")


def test_a_promotion_raises_the_leader_epoch(parent: Broker) -> None:
    at = TopicPartition(TOPIC, 0)
    with child_of(parent) as child:
        Operator(child).wait_in_step()
        with client_of(child.bootstrap_server) as down:
            before = down.leaders([at])[at].leader_epoch
            Operator(child).ask("POST", "/hq/promote", {"topics": [TOPIC]})
            down.forget_leaders()
            assert down.leaders([at])[at].leader_epoch == before + 1


def test_a_paused_pipe_copies_nothing(parent: Broker) -> None:
    with child_of(parent) as child:
        operator = Operator(child)
        operator.wait_in_step()
        operator.ask("POST", "/hq/pause")
        until(lambda: bool(operator.pipe()["is_paused"]))
        parent.produce(TOPIC, "not yet")
        assert len(child.records(TOPIC)) == 20
        operator.ask("POST", "/hq/resume")
        until(lambda: equal(child, parent))


def test_a_parent_that_does_not_answer_makes_the_pipe_degraded(parent: Broker) -> None:
    with child_of(parent) as child:
        operator = Operator(child)
        operator.wait_in_step()
        parent.crash()
        until(lambda: operator.pipe()["health"] == "DEGRADED")
        assert "retrying" in str(operator.pipe()["reason"])
        parent.restart()
        operator.wait_in_step()
        assert operator.pipe()["health"] == "HEALTHY"


def test_fetches_by_time_and_epochs_agree(parent: Broker) -> None:
    at = TopicPartition(TOPIC, 0)
    with child_of(parent) as child:
        Operator(child).wait_in_step()
        with client_of(child.bootstrap_server) as down, client_of(parent.bootstrap_server) as up:
            for time_ms in (0, calls.LATEST_TIMESTAMP):
                found = [
                    one.look_up_offsets({at: time_ms}, is_read_committed=True)[at].offset
                    for one in (down, up)
                ]
                assert found[0] == found[1]
