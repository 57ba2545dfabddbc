"""`penstock quota` against a broker in this process."""

import json
from collections.abc import Iterator

import pytest

from penstock.testing import Broker
from tests.cli.conftest import Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def quota(penstock: Penstock, broker: Broker) -> Penstock:
    return lambda *words: penstock("quota", *words, "--bootstrap-server", broker.bootstrap_server)


def test_set_list_and_delete(quota: Penstock) -> None:
    assert "no quotas; set one" in quota("list").output
    done = quota("set", "--client-id", "reports", "consumer_byte_rate=1048576")
    assert done == (0, "client-id reports: consumer_byte_rate is 1048576\n", "")
    quota("set", "--user", "u", "--client-defaults", "request_percentage=0.5")
    quota("set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    rows = [line.split() for line in quota("list").output.splitlines()[1:]]
    assert sorted(rows) == [
        ["-", "-", "10.0.0.1", "connection_creation_rate", "5"],
        ["-", "reports", "-", "consumer_byte_rate", "1048576"],
        ["u", "(default)", "-", "request_percentage", "0.5"],
    ]
    only = quota("list", "--client-id", "reports", "--json")
    assert json.loads(only.output) == [
        {"entity": {"client-id": "reports"}, "quotas": {"consumer_byte_rate": 1048576.0}}
    ]
    quota("set", "--client-id", "reports", "producer_byte_rate=7")
    done = quota("delete", "--client-id", "reports", "producer_byte_rate")
    assert done.output == "client-id reports: producer_byte_rate deleted\n"
    done = quota("delete", "--client-id", "reports")
    assert done.output == "client-id reports: consumer_byte_rate deleted\n"
    assert quota("delete", "--client-id", "reports").output == "client-id reports has no quotas\n"
    deleted = quota("delete", "--user", "u", "--client-defaults", "--json")
    assert json.loads(deleted.output) == {
        "entity": {"user": "u", "client-id": None},
        "deleted": ["request_percentage"],
    }
    quota("delete", "--ip", "10.0.0.1")
    assert "no quotas; set one" in quota("list").output


def test_mistakes_are_told(quota: Penstock) -> None:
    for words, text in [
        (("set", "producer_byte_rate=1"), "Name the entity"),
        (("set", "--user", "u", "--user-defaults", "producer_byte_rate=1"), "not both"),
        (("set", "--user", "u", "producer_byte_rate=much"), "'much' is not a number"),
        (("set", "--user", "u", "producer_byte_rate"), "is not NAME=VALUE"),
        (("delete",), "Name the entity"),
    ]:
        outcome = quota(*words)
        assert outcome.code == 2, words
        assert text in outcome.errors
    refused = quota("set", "--user", "u", "nope=1")
    assert refused.code == 1
    assert "Invalid configuration key nope" in refused.errors
