"""`penstock group dlq` on a broker in memory: list, show, replay."""

import json
from collections.abc import Iterator

import pytest

from penstock.core.settings.tree import settings_of
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.sharing import Member
from tests.cli.conftest import Outcome, Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = settings_of(
        {"node.storage": "memory", "listener.port": 0, "groups.share_assignment_interval_ms": 0}
    )
    with Broker(settings) as running, Asker(running.port) as asker:
        topic_id = asker.create("jobs")
        running.create_topic("dlq.jobs", configs={"errors.deadletterqueue.group.enable": "true"})
        running.produce("jobs", "a", "b", key="k", headers={"trace": "7"})
        for group, copies in (("bare", "false"), ("copying", "true")):
            member = Member(asker, group)
            member.set(
                share_auto_offset_reset="earliest",
                errors_deadletterqueue_topic_name="dlq.jobs",
                errors_deadletterqueue_copy_record_enable=copies,
            )
            member.join("jobs")
            got = 0
            while got < 2:
                for one in member.fetch_until(topic_id, 0):
                    got += one.last - one.first + 1
                    member.acknowledge(topic_id, (one.first, one.last, (3,)))
            member.close()
        running.records("dlq.jobs", count=4)
        yield running


@pytest.fixture
def dlq(penstock: Penstock, broker: Broker) -> Penstock:
    def run(*words: str) -> Outcome:
        return penstock("group", "dlq", *words, "--bootstrap-server", broker.bootstrap_server)

    return run


def test_groups(dlq: Penstock) -> None:
    header, *rows = [line.split()[:2] for line in dlq("list").output.splitlines()]
    assert header == ["group", "topic"]
    assert rows == [["bare", "dlq.jobs"], ["copying", "dlq.jobs"]]
    assert json.loads(dlq("list", "--json").output)[0]["group"] == "bare"
    none = dlq("list", "nowhere")
    assert none.code == 1
    assert "share group 'nowhere' has no dead-letter topic" in none.errors
    assert "hint:" in none.errors


def test_letters_of_one_group(dlq: Penstock) -> None:
    lines = dlq("list", "copying", "--all", "--limit", "1").output.splitlines()
    assert lines[0].split() == ["partition", "offset", "time", "from", "deliveries", "reason"]
    assert "jobs-0@0" in lines[1]
    assert "Offset rejected by client." in lines[1]
    documents = json.loads(dlq("list", "copying", "--all", "--json").output)
    assert [one["origin"]["offset"] for one in documents] == [0, 1]
    assert {one["origin"]["group"] for one in documents} == {"copying"}
    assert documents[0]["origin"]["attempts"] == 1


def test_one_letter(dlq: Penstock) -> None:
    (first, *_) = json.loads(dlq("list", "copying", "--all", "--json").output)
    shown = dlq("show", "copying", "0", str(first["offset"])).output.splitlines()
    assert shown[1:] == [
        "origin:    jobs-0 at offset 0",
        "failed:    1 delivery by group copying",
        "error:     Offset rejected by client.",
        "key:       k",
        "header:    trace=7",
        "value:     a",
    ]
    document = json.loads(dlq("show", "copying", "0", str(first["offset"]), "--json").output)
    assert document["record"]["headers"] == [{"name": "trace", "value": "7"}]


def test_replay_of_copies_and_of_letters_without(dlq: Penstock, broker: Broker) -> None:
    refused = dlq("replay", "copying")
    assert refused.code == 2
    assert "without a terminal" in refused.errors
    before = len(broker.records("jobs"))
    assert dlq("replay", "copying", "--yes").output == "2 records replayed\n  jobs: 2\n"
    # The position belongs to the group: letters of the other one still wait.
    assert dlq("replay", "copying", "--to", "jobs").output == "0 records replayed\n"
    assert dlq("replay", "bare", "--to", "jobs").output == "2 records replayed\n  jobs: 2\n"
    replayed = broker.records("jobs", count=before + 4)[before:]
    assert [one.value for one in replayed] == ["a", "b", "a", "b"]
    assert all(one.headers == {"trace": "7"} for one in replayed)
    assert all(one.key == "k" for one in replayed)


def test_a_letter_without_a_copy_whose_record_is_gone(
    dlq: Penstock, broker: Broker, penstock: Penstock
) -> None:
    """A letter by hand: it names an offset that the topic never had."""
    setting = "errors.deadletterqueue.topic.name=dlq.jobs"
    at = ("--bootstrap-server", broker.bootstrap_server)
    assert penstock("group", "configure", "gone", setting, *at).code == 0
    prefix = "__dlq.errors."
    headers = {"topic": "jobs", "partition": "0", "offset": "900", "group": "gone"}
    broker.produce("dlq.jobs", None, headers={prefix + one: two for one, two in headers.items()})
    done = dlq("replay", "gone", "--to", "jobs")
    assert done.output == "0 records replayed\n"
    assert done.errors == "1 record passed over: no origin, or its record is gone\n"
    assert dlq("list", "gone").output == "no letters of gone in dlq.jobs\n"
