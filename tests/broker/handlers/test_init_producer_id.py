"""InitProducerId: every producer gets an id that no other has, or its next epoch."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional, retried


def ask(
    asker: Asker,
    version: int = 5,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    name: str | None = None,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=10_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return asker.ask(request, version, InitProducerIdResponse)


def test_ids_differ_over_connections(asker: Asker) -> None:
    with asker.another() as other:
        answers = [ask(one) for one in (asker, other, asker)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 3
    assert {answer.producer_epoch for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 3


def test_ids_differ_when_many_ask_at_once(asker: Asker) -> None:
    for _ in range(30):
        asker.send(InitProducerIdRequest(transaction_timeout_ms=10_000), 5)
    found = {asker.receive(InitProducerIdResponse).producer_id for _ in range(30)}
    assert len(found) == 30
    assert min(found) >= 0


def test_who_names_a_former_id_gets_a_new_one(asker: Asker) -> None:
    first = ask(asker)
    second = ask(asker, producer_id=first.producer_id, epoch=first.producer_epoch)
    assert second.error_code == ErrorCode.NONE
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_half_an_identity(asker: Asker, producer_id: int, epoch: int) -> None:
    answer = ask(asker, producer_id=producer_id, epoch=epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_a_transactional_id_without_a_name(asker: Asker) -> None:
    assert ask(asker, name="").error_code == ErrorCode.INVALID_REQUEST


# --- With a transactional id ---


def test_each_start_of_a_producer_has_its_own_epoch(asker: Asker) -> None:
    transactional = Transactional(asker, fresh_name("bank")).init()
    producer_id, epoch = transactional.producer
    assert epoch == 0
    assert transactional.init().producer == (producer_id, 1)
    assert Transactional(asker, fresh_name("bank")).init().producer_id != producer_id


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_000, ErrorCode.NONE),
    ],
)
def test_timeouts_have_bounds(asker: Asker, timeout_ms: int, code: ErrorCode) -> None:
    transactional = Transactional(asker, fresh_name("bank"))
    answer = retried(
        lambda: transactional.ask_init(timeout_ms=timeout_ms), lambda answer: answer.error_code
    )
    assert answer.error_code == code


def test_a_producer_goes_on_after_an_error(asker: Asker) -> None:
    transactional = Transactional(asker, fresh_name("bank")).init()
    first = transactional.producer
    assert transactional.init(expected=first).producer == (first[0], 1)
    # It did not hear the answer and asks again.
    assert transactional.init(expected=first).producer == (first[0], 1)
    transactional.init()
    fenced = transactional.ask_init(expected=first)
    assert fenced.error_code == ErrorCode.PRODUCER_FENCED
    assert (fenced.producer_id, fenced.producer_epoch) == (-1, -1)
    old_client = transactional.ask_init(3, expected=first)
    assert old_client.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_is_aborted_first(asker: Asker) -> None:
    topic = fresh_name()
    asker.create(topic)
    transactional = Transactional(asker, fresh_name("bank")).init()
    zombie = transactional.producer
    transactional.add(topic, 0)
    assert transactional.ask_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert transactional.init().producer == (zombie[0], 2)
    late = transactional.ask_end(commits=True, producer=zombie)
    assert late.error_code == ErrorCode.PRODUCER_FENCED
