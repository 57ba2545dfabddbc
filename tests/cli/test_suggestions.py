"""A name that does not exist comes with the nearest one that does, whatever the command."""

from collections.abc import Iterator

import pytest

from penstock.cli.text.suggestions import nearest
from penstock.testing import Broker
from tests.cli.conftest import Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        running.create_topic("payments")
        yield running


@pytest.fixture
def at_broker(penstock: Penstock, broker: Broker) -> Penstock:
    return lambda *words: penstock(*words, "--bootstrap-server", broker.bootstrap_server)


def test_near_and_far() -> None:
    names = ["orders", "payments", "Audit"]
    assert nearest("ordres", names) == "orders"
    assert nearest("ORDERS", names) == "orders"
    assert nearest("audit", names) == "Audit"
    assert nearest("orders", ["orders"]) is None
    assert nearest("shipments-eu", names) is None
    assert nearest("x", []) is None


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "describe", "ordres"),
        ("topic", "delete", "--yes", "ordres"),
        ("topic", "alter", "ordres", "--partitions", "2"),
        ("topic", "configure", "ordres", "retention.ms=1"),
        ("consume", "ordres"),
        ("txn", "producers", "ordres"),
        ("group", "reset-offsets", "g", "--topic", "ordres", "--to-latest"),
    ],
)
def test_topics(at_broker: Penstock, words: tuple[str, ...]) -> None:
    outcome = at_broker(*words)
    assert outcome.code == 1
    assert outcome.errors.splitlines() == [
        "error: topic 'ordres' not found.",
        "hint: Did you mean 'orders'? `penstock topic list` shows the topics.",
    ]


def test_a_topic_without_a_near_one(at_broker: Penstock) -> None:
    hint = at_broker("topic", "describe", "shipments-eu").errors.splitlines()[1]
    assert "`penstock topic list`" in hint
    assert "Did you mean" not in hint
    # A partition that does not exist is not a wrong name.
    missing = at_broker("consume", "orders", "--partition", "5").errors
    assert missing == "error: orders has no partition 5; it has 0 to 0.\n"


def test_groups(at_broker: Penstock) -> None:
    committed = ("group", "reset-offsets", "billing", "--topic", "orders", "--to-latest")
    assert at_broker(*committed, "--execute").code == 0
    for words in (("describe", "biling"), ("lag", "biling"), ("delete", "--yes", "biling")):
        assert at_broker("group", *words).errors.splitlines() == [
            "error: group 'biling' not found.",
            "hint: Did you mean 'billing'? `penstock group list` shows the groups.",
        ]
    assert "hint: `penstock group list` shows" in at_broker("group", "lag", "zzz").errors


def test_transactional_ids(at_broker: Penstock) -> None:
    assert at_broker("txn", "describe", "pay-1").errors.splitlines() == [
        "error: transactional id 'pay-1' not found.",
        "hint: `penstock txn list` shows the ids.",
    ]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topic", "create", "new", "--config", "retenton.ms=5"), "'retention.ms'"),
        (("topic", "configure", "orders", "cleanup.polcy=compact"), "'cleanup.policy'"),
        (("group", "configure", "g", "consumer.sesion.timeout.ms=1"), "'consumer.session.timeout"),
    ],
)
def test_settings(at_broker: Penstock, words: tuple[str, ...], meant: str) -> None:
    outcome = at_broker(*words)
    assert outcome.code == 1
    problem, hint = outcome.errors.splitlines()
    assert "INVALID_CONFIG" in problem
    assert hint.startswith(f"hint: Did you mean {meant}")
