"""`penstock group` over a cluster in memory."""

import json
from pathlib import Path

import pytest

from penstock.cli import brokers
from penstock.client import cluster as cluster_module
from penstock.client.cluster import Cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    delete_groups,
    describe_configs,
    incremental_alter_configs,
    offset_commit,
)
from tests.cli.conftest import Penstock
from tests.client.fake_broker import FakeCluster, FakeConnection
from tests.client.fake_coordinators import FakeCoordinators, FakeGroup, FakeMember

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("orders", 2)

    def connect(address: Address, *, timeout_seconds: float, **_others: object) -> FakeConnection:
        assert timeout_seconds > 0
        return cluster.connect(address)

    monkeypatch.setattr(brokers, "connect", connect)
    with Cluster([Address("b", 9000)], cluster.connect) as client:
        writer = TopicWriter(client, "orders", partition=0)
        for number in range(10):
            writer.append(None, b"%d" % number)
        writer.flush()
    return cluster


@pytest.fixture(autouse=True)
def groups(fake: FakeCluster) -> dict[str, FakeGroup]:
    coordinators = FakeCoordinators(fake)
    coordinators.groups["billing"] = FakeGroup(offsets={P0: 4})
    coordinators.groups["audit"] = FakeGroup(
        "consumer", members=[FakeMember("m-1", [P0]), FakeMember("m-2", [P1])], offsets={P0: 9}
    )
    return coordinators.groups


def test_list(penstock: Penstock) -> None:
    listed = penstock("group", "list")
    assert [line.split() for line in listed.output.splitlines()] == [
        ["group", "type", "state", "protocol"],
        ["audit", "consumer", "Stable", "consumer"],
        ["billing", "classic", "Empty", "consumer"],
    ]
    assert (listed.code, listed.errors) == (0, "")
    filtered = penstock("group", "list", "--state", "empty", "--json")
    assert json.loads(filtered.output) == [
        {
            "group": "billing",
            "type": "classic",
            "state": "Empty",
            "protocol": "consumer",
            "coordinator": 1,
        }
    ]
    assert penstock("group", "list", "--type", "share").output == "no such groups\n"


def test_no_groups(penstock: Penstock, groups: dict[str, FakeGroup]) -> None:
    groups.clear()
    assert "no groups" in penstock("group", "list").output
    assert penstock("group", "lag").output == "total lag 0 in 0 groups\n"


def test_describe_a_group_with_members(penstock: Penstock) -> None:
    lines = penstock("group", "describe", "audit").output.splitlines()
    assert lines[0] == (
        "audit  consumer, Stable, 2 members, assignor uniform, coordinator fake:9001 (1)"
    )
    assert lines[2].split() == ["m-1", "/10.0.0.1", "app", "1", "orders:0", "5", "orders:0"]
    assert lines[5].split() == ["orders", "0", "9", "10", "1", "m-1", "/10.0.0.1", "app"]
    assert lines[6].split() == ["orders", "1", "-", "0", "-", "m-2", "/10.0.0.1", "app"]
    assert lines[7] == "total lag 1"


def test_describe_a_group_without_members(penstock: Penstock) -> None:
    described = penstock("group", "describe", "billing")
    assert described.errors == "group billing has no members now.\n"
    lines = described.output.splitlines()
    assert lines[2].split() == ["orders", "0", "4", "10", "6", "-", "-", "-"]


def test_parts_of_a_description(penstock: Penstock) -> None:
    members = penstock("group", "describe", "--members", "audit").output
    assert "m-1" in members
    assert "end offset" not in members
    offsets = penstock("group", "describe", "--offsets", "audit").output
    assert "end offset" in offsets
    assert "target" not in offsets
    (document,) = json.loads(penstock("group", "describe", "--members", "audit", "--json").output)
    assert "offsets" not in document
    assert len(document["members"]) == 2


def test_settings_of_a_group_change_and_are_shown(penstock: Penstock, fake: FakeCluster) -> None:
    words = ("consumer.session.timeout.ms=50000", "consumer.heartbeat.interval.ms=6000")
    changed = penstock("group", "configure", "audit", *words)
    assert changed == (0, "audit: 2 settings changed\n", "")
    lines = penstock("group", "describe", "audit").output.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["setting", "value", "from"],
        ["consumer.heartbeat.interval.ms", "6000", "group"],
        ["consumer.session.timeout.ms", "50000", "group"],
    ]
    told = penstock(
        "group", "configure", "audit", "--delete", "consumer.session.timeout.ms", "--json"
    )
    assert json.loads(told.output) == {
        "group": "audit",
        "settings": {"consumer.session.timeout.ms": None},
    }
    assert fake.group_settings == {"audit": {"consumer.heartbeat.interval.ms": "6000"}}


def test_settings_are_in_the_whole_description_only(penstock: Penstock, fake: FakeCluster) -> None:
    fake.group_settings["audit"] = {"consumer.session.timeout.ms": "50000"}
    (whole,) = json.loads(penstock("group", "describe", "audit", "--json").output)
    assert whole["configs"] == [
        {"name": "consumer.heartbeat.interval.ms", "value": "5000", "source": "default"},
        {"name": "consumer.session.timeout.ms", "value": "50000", "source": "group"},
    ]
    for part in ("--members", "--offsets"):
        assert "50000" not in penstock("group", "describe", part, "audit").output
        (document,) = json.loads(penstock("group", "describe", part, "audit", "--json").output)
        assert "configs" not in document


def test_a_broker_without_settings_of_groups(penstock: Penstock, fake: FakeCluster) -> None:
    fake.knows_group_settings = False
    described = penstock("group", "describe", "audit", "--json")
    assert described.code == 0
    assert json.loads(described.output)[0]["configs"] == []


def test_settings_of_many_groups_are_asked_for_in_parts(
    penstock: Penstock,
    fake: FakeCluster,
    groups: dict[str, FakeGroup],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "GROUPS_PER_REQUEST", 2)
    groups["third"] = FakeGroup()
    fake.group_settings["third"] = {"consumer.session.timeout.ms": "50000"}
    assert "50000" in penstock("group", "describe", "--all").output
    kind = describe_configs.DescribeConfigsRequest
    asked = [len(one.resources) for one in fake.requests if isinstance(one, kind)]
    assert asked == [2, 1]


def test_settings_that_cannot_be_changed(penstock: Penstock, fake: FakeCluster) -> None:
    for words, text in (
        ((), "Nothing to change"),
        (("consumer.session.timeout.ms",), "NAME=VALUE"),
        (("a=1", "--delete", "a"), "both set and deleted"),
    ):
        wrong = penstock("group", "configure", "audit", *words)
        assert wrong.code == 2
        assert text in wrong.errors
    kind = incremental_alter_configs.IncrementalAlterConfigsRequest
    fake.fail_next(kind, ErrorCode.INVALID_CONFIG)
    refused = penstock("group", "configure", "audit", "a=1")
    assert refused.code == 1
    assert "INVALID_CONFIG" in refused.errors


def test_description_as_json(penstock: Penstock) -> None:
    audit, billing = json.loads(penstock("group", "describe", "--all", "--json").output)
    assert audit["coordinator"] == {"broker": 1, "host": "fake", "port": 9001}
    assert audit["members"][1]["partitions"] == [{"topic": "orders", "partition": 1}]
    assert audit["offsets"][1]["committed"] is None
    assert (billing["lag"], billing["member_count"], billing["epoch"]) == (6, 0, None)
    assert billing["offsets"] == [
        {
            "topic": "orders",
            "partition": 0,
            "committed": 4,
            "end_offset": 10,
            "lag": 6,
            "member": None,
            "host": None,
            "client": None,
        }
    ]


def test_lag(penstock: Penstock) -> None:
    shown = penstock("group", "lag")
    assert [line.split() for line in shown.output.splitlines()] == [
        ["group", "topic", "partition", "committed", "end", "offset", "lag"],
        ["audit", "orders", "0", "9", "10", "1"],
        ["audit", "orders", "1", "-", "0", "-"],
        ["billing", "orders", "0", "4", "10", "6"],
        ["total", "lag", "7", "in", "2", "groups"],
    ]
    assert json.loads(penstock("group", "lag", "billing", "--json").output)["lag"] == 6


def test_lag_again_and_again(penstock: Penstock) -> None:
    words = ("--watch", "0.001", "--count", "3")
    assert penstock("group", "lag", *words).output.count("total lag 7") == 3
    lines = penstock("group", "lag", *words, "--json").output.splitlines()
    assert [json.loads(line)["lag"] for line in lines] == [7, 7, 7]


def test_a_topic_that_is_gone(penstock: Penstock, groups: dict[str, FakeGroup]) -> None:
    groups["billing"].offsets[TopicPartition("gone", 0)] = 3
    line = penstock("group", "lag", "billing").output.splitlines()[1]
    assert line.split() == ["billing", "gone", "0", "3", "-", "-"]


def test_delete(penstock: Penstock, groups: dict[str, FakeGroup], fake: FakeCluster) -> None:
    assert penstock("group", "delete", "--yes", "billing") == (0, "billing deleted\n", "")
    assert "billing" not in groups
    refused = penstock("group", "delete", "--yes", "audit")
    assert (refused.code, refused.output) == (1, "")
    assert refused.errors.splitlines() == [
        "error: group 'audit' has members.",
        "hint: Stop them, or wait until their sessions end, then repeat the command.",
    ]
    groups["billing"] = FakeGroup()
    fake.fail_next(delete_groups.DeleteGroupsRequest, "lost")
    assert penstock("group", "delete", "--yes", "billing").code == 4
    groups["billing"] = FakeGroup()
    deleted = penstock("group", "delete", "--yes", "billing", "--json")
    assert json.loads(deleted.output) == [{"group": "billing", "deleted": True}]


def test_a_reset_is_only_shown_until_it_is_executed(
    penstock: Penstock, groups: dict[str, FakeGroup]
) -> None:
    words = ("group", "reset-offsets", "billing", "--topic", "orders", "--to-latest")
    planned = penstock(*words)
    assert [line.split() for line in planned.output.splitlines()[1:]] == [
        ["billing", "orders", "0", "4", "10"],
        ["billing", "orders", "1", "-", "0"],
    ]
    assert planned.errors == "Nothing was changed: this is the plan. Add --execute to do it.\n"
    assert groups["billing"].offsets == {P0: 4}
    done = penstock(*words, "--execute")
    assert (done.code, done.output, done.errors) == (0, planned.output, "")
    assert groups["billing"].offsets == {P0: 10, P1: 0}


@pytest.mark.parametrize(
    ("words", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-current",), 4),
        (("--to-offset", "7"), 7),
        (("--to-offset", "70"), 10),
        (("--shift-by", "-2"), 2),
        (("--shift-by", "3"), 7),
        (("--to-timestamp", "0"), 0),
        (("--to-timestamp", "@0"), 0),
        (("--to-timestamp", "2100-01-01"), 10),
    ],
)
def test_every_way_to_say_where_to(
    penstock: Penstock, groups: dict[str, FakeGroup], words: tuple[str, ...], offset: int
) -> None:
    done = penstock("group", "reset-offsets", "billing", "--all-topics", *words, "--execute")
    assert done.code == 0
    assert groups["billing"].offsets == {P0: offset}


def test_a_plan_goes_through_a_file(
    penstock: Penstock, groups: dict[str, FakeGroup], tmp_path: Path
) -> None:
    words = ("group", "reset-offsets")
    exported = penstock(*words, "billing", "--all-topics", "--to-current", "--export")
    assert exported == (0, "orders,0,4\n", "")
    path = tmp_path / "plan.csv"
    path.write_text(exported.output)
    done = penstock(*words, "copy", "--from-file", str(path), "--execute", "--json")
    assert json.loads(done.output) == {
        "group": "copy",
        "executed": True,
        "offsets": [
            {
                "topic": "orders",
                "partition": 0,
                "committed": None,
                "new_offset": 4,
                "remark": None,
            }
        ],
    }
    assert groups["copy"].offsets == {P0: 4}
    path.write_text("orders,0\n")
    wrong = penstock(*words, "copy", "--from-file", str(path))
    assert wrong.code == 1
    assert f"{path}: line 1" in wrong.errors
    path.write_text("nothing,0,5\n")
    assert "topic 'nothing' not found." in penstock(*words, "copy", "--from-file", str(path)).errors


def test_a_group_with_members_is_not_reset(
    penstock: Penstock, groups: dict[str, FakeGroup], fake: FakeCluster
) -> None:
    words = ("--all-topics", "--to-earliest", "--execute")
    refused = penstock("group", "reset-offsets", "audit", *words)
    assert (refused.code, refused.output) == (1, "")
    assert "group audit is Stable with 2 members" in refused.errors
    fake.fail_next(offset_commit.OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID)
    raced = penstock("group", "reset-offsets", "billing", *words)
    assert raced.code == 1
    assert "group 'billing' has members" in raced.errors
    assert groups["billing"].offsets == {P0: 4}


def test_nothing_to_reset(penstock: Penstock) -> None:
    words = ("--all-topics", "--to-earliest", "--execute")
    nothing = penstock("group", "reset-offsets", "new", *words)
    assert nothing == (0, "", "group new committed nothing, so there is nothing to move.\n")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("describe",), 2, "Name a group"),
        (("describe", "audit", "--all"), 2, "Name a group"),
        (("describe", "nothing"), 1, "group 'nothing' not found."),
        (("lag", "nothing"), 1, "group 'nothing' not found."),
        (("delete", "--yes", "nothing"), 1, "group 'nothing' not found."),
        (("delete",), 2, "Missing argument"),
        (("list", "--state", "tired"), 2, "tired"),
        (("reset-offsets", "billing", "--to-latest"), 2, "--all-topics"),
        (("reset-offsets", "billing", "--all-topics"), 2, "exactly one of"),
        (
            ("reset-offsets", "billing", "--all-topics", "--to-latest", "--to-earliest"),
            2,
            "exactly one of",
        ),
        (
            ("reset-offsets", "billing", "--all-topics", "--topic", "orders", "--to-latest"),
            2,
            "Give --topic, or",
        ),
        (("reset-offsets", "billing", "--topic", "orders:x", "--to-latest"), 2, "orders:0,2"),
        (("reset-offsets", "billing", "--topic", "orders:7", "--to-latest"), 1, "it has 0 to 1"),
        (("reset-offsets", "billing", "--topic", "gone", "--to-latest"), 1, "gone"),
        (("reset-offsets", "billing", "--topic", "orders", "--shift-by", "1"), 1, "orders-1"),
        (("reset-offsets", "billing", "--all-topics", "--to-timestamp", "soon"), 2, "'soon'"),
        (("reset-offsets", "billing", "--all-topics", "--to-timestamp", "latest"), 2, "no time"),
    ],
)
def test_what_cannot_be_names_the_reason(
    penstock: Penstock, words: tuple[str, ...], code: int, part: str
) -> None:
    outcome = penstock("group", *words)
    assert (outcome.code, outcome.output) == (code, "")
    assert part in outcome.errors
