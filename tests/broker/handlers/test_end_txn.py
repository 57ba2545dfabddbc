"""EndTxn: commit and abort, retries, and rejected producers."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional, find_coordinator, retried


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, 2)
    return name


@pytest.fixture
def transactional(asker: Asker) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_raises_the_epoch_and_can_be_asked_again(
    transactional: Transactional, topic: str, commits: bool
) -> None:
    first = transactional.producer
    transactional.add(topic, 0, 1)
    transactional.end(commits=commits)
    assert transactional.producer == (first[0], first[1] + 1)
    again = retried(
        lambda: transactional.ask_end(commits=commits, producer=first),
        lambda answer: answer.error_code,
    )
    assert (again.producer_id, again.producer_epoch) == transactional.producer
    other = transactional.ask_end(commits=not commits, producer=first)
    assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert (other.producer_id, other.producer_epoch) == (-1, -1)


def test_transactions_follow_each_other(transactional: Transactional, topic: str) -> None:
    epoch = transactional.epoch
    for number in range(10):
        transactional.add(topic, number % 2)
        transactional.end(commits=number % 3 > 0)
    assert transactional.epoch == epoch + 10


def test_old_clients_keep_their_epoch(transactional: Transactional, topic: str) -> None:
    first = transactional.producer
    for _ in range(2):
        transactional.add(topic, 0)
        transactional.end(commits=True, version=4)
    again = retried(
        lambda: transactional.ask_end(commits=True, version=4), lambda answer: answer.error_code
    )
    assert again.error_code == ErrorCode.NONE
    assert transactional.producer == first


def test_what_never_began_can_be_aborted_only(transactional: Transactional) -> None:
    assert transactional.ask_end(commits=True).error_code == ErrorCode.INVALID_TXN_STATE
    for commits in (True, False):
        old = transactional.ask_end(commits=commits, version=4)
        assert old.error_code == ErrorCode.INVALID_TXN_STATE
    epoch = transactional.epoch
    transactional.end(commits=False)
    assert transactional.epoch == epoch + 1


def test_strangers_are_refused(transactional: Transactional, topic: str) -> None:
    transactional.add(topic, 0)
    producer_id, epoch = transactional.producer
    wrong_id = transactional.ask_end(commits=True, producer=(producer_id + 1_000_000, epoch))
    assert wrong_id.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for version, code in ((5, ErrorCode.PRODUCER_FENCED), (1, ErrorCode.INVALID_PRODUCER_EPOCH)):
        wrong_epoch = transactional.ask_end(
            commits=True, producer=(producer_id, epoch + 1), version=version
        )
        assert wrong_epoch.error_code == code
    transactional.end(commits=True)


def test_an_unknown_or_empty_name_is_refused(asker: Asker) -> None:
    nobody = Transactional(asker, fresh_name("nobody"))
    answer = nobody.ask_end(commits=True, producer=(1, 0))
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    find_coordinator(asker, "some")
    nobody.name = ""
    assert nobody.ask_end(commits=True, producer=(1, 0)).error_code == ErrorCode.INVALID_REQUEST


def test_without_a_coordinator_the_client_is_told_to_find_one() -> None:
    from penstock.testing import Broker

    with Broker() as broker, Asker(broker.port) as asker:
        nobody = Transactional.__new__(Transactional)
        nobody.asker, nobody.name = asker, "early"
        answer = nobody.ask_end(commits=True, producer=(1, 0))
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        assert nobody.ask_init().error_code == ErrorCode.NOT_COORDINATOR
