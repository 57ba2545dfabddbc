"""A broker in this process whose authorizer is a `RuleSet`; the tests of a module share it."""

from collections.abc import Iterator

import pytest

from penstock.broker.access import Access
from penstock.broker.context import BrokerServices
from penstock.node import wiring
from penstock.testing import Broker
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.asker import Asker


class GuardedBroker:
    """A running broker and its rules."""

    def __init__(self, running: Broker, rules: RuleSet) -> None:
        self.port = running.port
        self.rules = rules


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    rules = RuleSet()

    def services(**fields: object) -> BrokerServices:
        return BrokerServices(**(fields | {"access": Access(rules, rules), "audit": rules}))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "BrokerServices", services)
        with Broker() as running:
            yield GuardedBroker(running, rules)


@pytest.fixture
def rules(guarded: GuardedBroker) -> Iterator[RuleSet]:
    """The rules: everything is allowed when a test begins."""
    guarded.rules.all_but()
    yield guarded.rules
    guarded.rules.all_but()


@pytest.fixture
def asker(guarded: GuardedBroker) -> Iterator[Asker]:
    """A connection of its own for each test."""
    with Asker(guarded.port) as connection:
        yield connection
