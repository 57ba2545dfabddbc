"""`penstock group` for share groups, over a real broker in memory."""

import json
from collections.abc import Iterator

import pytest

from penstock.core.settings.tree import settings_of
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.groups import commit, ready
from tests.broker.handlers.share_group_talk import Member, alter
from tests.cli.conftest import Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = settings_of(
        {"node.storage": "memory", "listener.port": 0, "groups.share_assignment_interval_ms": 0}
    )
    with Broker(settings) as running:
        yield running


@pytest.fixture(scope="module")
def asker(broker: Broker) -> Iterator[Asker]:
    with Asker(broker.port) as asker:
        asker.create("jobs", 2)
        asker.produce("jobs", batch_of(b"a", b"b", b"c"))
        ready(asker, "any")
        commit(asker, "plain", {("jobs", 0): 1})
        yield asker


@pytest.fixture
def run(penstock: Penstock, broker: Broker, asker: Asker) -> Penstock:
    def go(*words: str) -> object:
        return penstock(*words, "--bootstrap-server", f"127.0.0.1:{broker.port}")

    return go  # type: ignore[return-value]


def test_a_share_group_is_listed_and_described(run: Penstock, asker: Asker) -> None:
    assert alter(asker, "seen", "jobs", p0=1, p1=0).error_code == 0
    member = Member(asker, "seen", "jobs").join(2)
    listed = run("group", "list", "--type", "share").output.splitlines()
    assert ["seen", "share", "Stable", "share"] in [line.split() for line in listed]
    assert "plain" not in " ".join(listed)
    lines = run("group", "describe", "seen").output.splitlines()
    assert lines[0].startswith("seen  share, Stable, 1 member, assignor simple, coordinator")
    header = lines[3].split("  ")
    assert "start offset" in [word.strip() for word in header]
    cells = [line.split() for line in lines]
    row = [member.member_id, "/127.0.0.1", "asker"]
    assert ["jobs", "0", "1", "3", "2", *row] in cells
    assert ["jobs", "1", "0", "0", "0", *row] in cells
    assert "total lag 2" in lines
    (document,) = json.loads(run("group", "describe", "seen", "--json").output)
    assert document["type"] == "share"
    assert document["offsets"][0]["start_offset"] == document["offsets"][0]["committed"] == 1
    assert document["members"][0]["subscribed"] == ["jobs"]
    assert document["members"][0]["epoch"] == member.epoch
    lag = json.loads(run("group", "lag", "seen", "--json").output)
    assert lag["lag"] == 2
    every = json.loads(run("group", "lag", "--json").output)
    assert {one["group"] for one in every["groups"]} >= {"seen", "plain"}
    refused = run("group", "delete", "--yes", "seen")
    assert refused.code != 0
    assert "has members" in refused.errors


def test_a_group_before_its_first_fetch_has_no_lag(run: Penstock, asker: Asker) -> None:
    Member(asker, "fresh", "jobs").join(2)
    lines = run("group", "lag", "fresh").output.splitlines()
    assert lines[1].split() == ["fresh", "jobs", "0", "-", "3", "-"]
    assert lines[-1] == "total lag 0 in 1 group"


def test_offsets_are_reset_deleted_and_the_group_too(run: Penstock) -> None:
    words = ("group", "reset-offsets", "moved", "--type", "share", "--topic", "jobs")
    planned = run(*words, "--to-latest")
    assert planned.output.splitlines()[1].split() == ["moved", "jobs", "0", "-", "3"]
    assert "Nothing was changed" in planned.errors
    assert run("group", "describe", "moved").code != 0, "it is only planned"
    assert run(*words, "--to-latest", "--execute").code == 0
    # Its type is known now.
    shifted = run(
        "group", "reset-offsets", "moved", "--topic", "jobs:0", "--shift-by", "-2", "--execute"
    )
    assert shifted.output.splitlines()[1].split() == ["moved", "jobs", "0", "3", "1"]
    lag = run("group", "lag", "moved").output.splitlines()
    assert lag[1].split() == ["moved", "jobs", "0", "1", "3", "2"]
    deleted = run("group", "delete-offsets", "moved", "--topic", "jobs", "--yes")
    assert deleted.output == "moved: deliveries of jobs deleted\n"
    assert run("group", "lag", "moved").output == "total lag 0 in 1 group\n"
    again = run("group", "delete-offsets", "moved", "--topic", "jobs", "--yes", "--json")
    assert "There is no offset information to delete." in again.errors
    assert run("group", "delete", "--yes", "moved").output == "moved deleted\n"
    assert run("group", "describe", "moved").code != 0


def test_deliveries_of_other_groups_cannot_be_deleted(run: Penstock) -> None:
    refused = run("group", "delete-offsets", "plain", "--topic", "jobs", "--yes")
    assert "plain is a classic group, and only share groups have deliveries" in refused.errors
    missing = run("group", "delete-offsets", "nobody", "--topic", "jobs", "--yes")
    assert "group 'nobody' not found." in missing.errors


def test_settings_of_a_share_group(run: Penstock, asker: Asker) -> None:
    assert alter(asker, "tuned", "jobs", p0=1).error_code == 0
    assert run("group", "configure", "tuned", "share.auto.offset.reset=earliest").code == 0
    assert "share.auto.offset.reset" in run("group", "describe", "tuned").output
    refused = run("group", "configure", "tuned", "share.delivery.count.limit=11")
    assert "must be less than or equal to group.share.max.delivery.count.limit" in refused.errors
