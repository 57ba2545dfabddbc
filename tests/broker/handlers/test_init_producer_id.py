"""InitProducerId: every producer gets an id that no other has."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.handlers.asker import Asker


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


def test_transactions_are_not_built_yet(penstock: Asker) -> None:
    answer = ask(penstock, name="bank")
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.producer_id == -1
