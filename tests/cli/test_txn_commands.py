"""`penstock txn` over a cluster in memory."""

import json

import pytest

from penstock.cli import brokers
from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.protocol.messages import list_transactions, write_txn_markers
from tests.cli.conftest import Penstock
from tests.client.fake_broker import FakeCluster, FakeConnection
from tests.client.fake_coordinators import FakeCoordinators, FakeProducer, FakeTransaction

P0 = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("orders", 2)

    def connect(address: Address, *, timeout_seconds: float, **_others: object) -> FakeConnection:
        assert timeout_seconds > 0
        return cluster.connect(address)

    monkeypatch.setattr(brokers, "connect", connect)
    return cluster


@pytest.fixture(autouse=True)
def coordinators(fake: FakeCluster) -> FakeCoordinators:
    made = FakeCoordinators(fake)
    made.transactions["pay"] = FakeTransaction(7, partitions=[P0])
    made.transactions["idle"] = FakeTransaction(5, "Empty", started_ms=-1)
    made.producers[P0] = [FakeProducer(7, 40), FakeProducer(8, 42), FakeProducer(9)]
    return made


def markers(fake: FakeCluster) -> list[int]:
    return [
        request.markers[0].producer_id
        for request in fake.requests
        if isinstance(request, write_txn_markers.WriteTxnMarkersRequest)
    ]


def test_list(penstock: Penstock, fake: FakeCluster) -> None:
    listed = penstock("txn", "list")
    assert [line.split() for line in listed.output.splitlines()] == [
        ["transactional", "id", "coordinator", "producer", "state"],
        ["idle", "1", "5", "Empty"],
        ["pay", "1", "7", "Ongoing"],
    ]
    words = ("--state", "ongoing", "--producer-id", "7", "--longer-than", "5")
    (found,) = json.loads(penstock("txn", "list", *words, "--json").output)
    assert found == {
        "transactional_id": "pay",
        "coordinator": 1,
        "producer_id": 7,
        "state": "Ongoing",
    }
    request = fake.requests[-1]
    assert isinstance(request, list_transactions.ListTransactionsRequest)
    assert request.duration_filter == 5
    assert penstock("txn", "list", "--state", "dead").output == "no transactional ids\n"


def test_describe(penstock: Penstock) -> None:
    lines = penstock("txn", "describe", "pay").output.splitlines()
    assert lines[0] == "pay  Ongoing"
    assert lines[2].split()[:5] == ["1", "7", "0", "60000", "2023-11-14T22:13:20.000Z"]
    assert lines[4].split() == ["orders", "0"]
    (idle,) = json.loads(penstock("txn", "describe", "idle", "--json").output)
    assert (idle["started"], idle["duration_ms"], idle["partitions"]) == (None, None, [])


def test_producers(penstock: Penstock) -> None:
    lines = penstock("txn", "producers", "orders").output.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["7", "8", "9"]
    assert [line.split()[-1] for line in lines[1:]] == ["40", "42", "-"]
    opened = json.loads(penstock("txn", "producers", "orders", "--open", "--json").output)
    assert [one["start_offset"] for one in opened] == [40, 42]
    assert penstock("txn", "producers", "orders", "--partition", "1").output == "no producers\n"


def test_hanging(penstock: Penstock) -> None:
    (found,) = json.loads(penstock("txn", "hanging", "--json").output)
    assert (found["topic"], found["producer_id"], found["start_offset"]) == ("orders", 8, 42)
    assert "42" in penstock("txn", "hanging", "orders").output
    century_ms = "3000000000000"
    silent = penstock("txn", "hanging", "--silent-for", century_ms)
    assert silent.output == "no transaction hangs\n"


def test_abort(penstock: Penstock, fake: FakeCluster) -> None:
    words = ("txn", "abort", "--yes", "--topic", "orders", "--partition", "0", "--start-offset")
    done = penstock(*words, "42")
    text = "the transaction of producer 8 at offset 42 of orders-0 is aborted\n"
    assert done == (0, text, "")
    assert markers(fake) == [8]
    again = penstock(*words, "42")
    assert again.code == 1
    assert "Open ones begin at 40." in again.errors


def test_a_living_transaction_is_aborted_only_by_force(
    penstock: Penstock, fake: FakeCluster
) -> None:
    words = (
        "txn",
        "abort",
        "--yes",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--start-offset",
        "40",
    )
    refused = penstock(*words)
    assert (refused.code, refused.output) == (1, "")
    assert "belongs to pay, which is Ongoing" in refused.errors
    assert "--force" in refused.errors
    assert markers(fake) == []
    done = json.loads(penstock(*words, "--force", "--json").output)
    assert (done["producer_id"], done["aborted"]) == (7, True)
    assert markers(fake) == [7]


def test_an_abort_whose_answer_is_lost_is_4(penstock: Penstock, fake: FakeCluster) -> None:
    fake.fail_next(write_txn_markers.WriteTxnMarkersRequest, "lost")
    words = (
        "txn",
        "abort",
        "--yes",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--start-offset",
        "42",
    )
    assert penstock(*words).code == 4


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("describe", "nothing"), 1, "transactional id 'nothing' not found."),
        (("describe",), 2, "Missing argument"),
        (("producers", "gone"), 1, "gone"),
        (("producers", "orders", "--partition", "7"), 1, "it has 0 to 1"),
        (("abort", "--topic", "orders", "--partition", "0"), 2, "--start-offset"),
        (("list", "--state", "tired"), 2, "tired"),
    ],
)
def test_what_cannot_be_names_the_reason(
    penstock: Penstock, words: tuple[str, ...], code: int, part: str
) -> None:
    outcome = penstock("txn", *words)
    assert (outcome.code, outcome.output) == (code, "")
    assert part in outcome.errors
