"""ListTransactions: filters by state, producer, duration and name."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional


def ask(
    asker: Asker,
    version: int = 2,
    *,
    states: tuple[str, ...] = (),
    producers: tuple[int, ...] = (),
    longer_ms: int = -1,
    pattern: str | None = None,
) -> ListTransactionsResponse:
    request = ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=producers,
        duration_filter=longer_ms,
        transactional_id_pattern=pattern,
    )
    return asker.ask(request, version, ListTransactionsResponse)


def names_in(answer: ListTransactionsResponse) -> set[str]:
    assert answer.error_code == ErrorCode.NONE
    return {one.transactional_id for one in answer.transaction_states}


@pytest.fixture
def pair(asker: Asker) -> tuple[Transactional, Transactional]:
    """One with an open transaction, and one without."""
    topic = fresh_name()
    asker.create(topic)
    is_open = Transactional(asker, fresh_name("open")).init()
    is_open.add(topic, 0)
    return is_open, Transactional(asker, fresh_name("idle")).init()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_are_listed(
    asker: Asker, pair: tuple[Transactional, Transactional], version: int
) -> None:
    found = {one.transactional_id: one for one in ask(asker, version).transaction_states}
    for transactional, state in zip(pair, ("Ongoing", "Empty"), strict=True):
        one = found[transactional.name]
        assert (one.producer_id, one.transaction_state) == (transactional.producer_id, state)


def test_filters_by_state(asker: Asker, pair: tuple[Transactional, Transactional]) -> None:
    is_open, idle = pair
    answer = ask(asker, states=("Ongoing", "Sleepy"))
    assert answer.unknown_state_filters == ("Sleepy",)
    assert is_open.name in names_in(answer)
    assert idle.name not in names_in(answer)
    assert names_in(ask(asker, states=("Sleepy",))) == set()


def test_filters_by_producer(asker: Asker, pair: tuple[Transactional, Transactional]) -> None:
    is_open, idle = pair
    assert names_in(ask(asker, producers=(idle.producer_id,))) == {idle.name}
    both = (idle.producer_id, is_open.producer_id)
    assert names_in(ask(asker, producers=both)) == {idle.name, is_open.name}


def test_filters_by_duration(asker: Asker, pair: tuple[Transactional, Transactional]) -> None:
    is_open, _ = pair
    long_ago = names_in(ask(asker, longer_ms=3_600_000, states=("Ongoing",)))
    assert is_open.name not in long_ago


def test_filters_by_name(asker: Asker, pair: tuple[Transactional, Transactional]) -> None:
    is_open, idle = pair
    assert names_in(ask(asker, pattern=f"{is_open.name}|nobody")) == {is_open.name}
    assert idle.name in names_in(ask(asker, pattern="idle-[0-9]+"))
    # The whole name has to match, and an empty pattern is none.
    assert names_in(ask(asker, pattern="idle")) == set()
    assert idle.name in names_in(ask(asker, pattern=""))


def test_a_pattern_that_is_none_is_refused(asker: Asker) -> None:
    answer = ask(asker, pattern="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == ()


def test_before_the_first_transaction_there_is_nothing() -> None:
    from penstock.testing import Broker

    with Broker() as broker, Asker(broker.port) as asker:
        answer = ask(asker, states=("Sleepy",))
        assert names_in(answer) == set()
        assert answer.unknown_state_filters == ("Sleepy",)
