"""The table of retriable errors, row by row, and the pauses between."""

import pytest

from penstock.client.transport.retries import Pauses, may_repeat
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ClientError,
)
from penstock.protocol.error_codes import ErrorCode


def answer(code: ErrorCode) -> BrokerAnswerError:
    return BrokerAnswerError(code.value, code.name, "")


@pytest.mark.parametrize(
    ("error", "when_repeatable", "otherwise"),
    [
        (BrokerUnreachableError(), True, True),
        (AnswerLostError(), True, False),
        (answer(ErrorCode.NOT_CONTROLLER), True, True),
        (answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), True, True),
        (answer(ErrorCode.REQUEST_TIMED_OUT), True, False),
        (answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), True, False),
        (answer(ErrorCode.TOPIC_ALREADY_EXISTS), False, False),
        (answer(ErrorCode.MESSAGE_TOO_LARGE), False, False),
        (answer(ErrorCode(9999)), False, False),
        (ClientError(), False, False),
    ],
)
def test_the_table(error: ClientError, when_repeatable: bool, otherwise: bool) -> None:
    assert may_repeat(error, repeatable=True) is when_repeatable
    assert may_repeat(error, repeatable=False) is otherwise


def test_pauses_double_up_to_a_second_within_the_deadline() -> None:
    pauses = Pauses(deadline_seconds=100.0)
    taken = [pauses.next_pause(0.0) for _ in range(7)]
    assert taken == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert pauses.next_pause(99.5) is None
    assert pauses.next_pause(99.0) == 1.0
