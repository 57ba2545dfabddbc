"""The throttle time in answers that are built already, and in those that are encoded already."""

import pytest

from penstock.broker.answers import NO_ANSWER, EncodedAnswer
from penstock.broker.connections.throttled import throttled
from penstock.broker.handlers import HANDLERS
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.single_produce import single_answer

PRODUCE = HANDLERS[ApiKey.PRODUCE].versions


@pytest.mark.parametrize("version", range(PRODUCE.lowest, PRODUCE.highest + 1))
def test_bytes_of_a_produce_answer_say_how_long_to_wait(version: int) -> None:
    topic: str | bytes = "topic" if version < 13 else bytes(range(16))
    frame = single_answer(version, 7, topic, 3, 100, -1, 5)
    changed = throttled(EncodedAnswer(frame), version, 123_456)
    assert isinstance(changed, EncodedAnswer)
    head_bytes = 8 + (version >= 9)
    before, after = (
        codec.decode_response(ApiKey.PRODUCE, version, one[head_bytes:])
        for one in (frame, changed.frame)
    )
    assert isinstance(before, ProduceResponse)
    assert isinstance(after, ProduceResponse)
    assert (before.throttle_time_ms, after.throttle_time_ms) == (0, 123_456)
    assert before.responses == after.responses


def test_an_answer_that_others_may_hold_is_not_changed() -> None:
    answer = ApiVersionsResponse(api_keys=())
    changed = throttled(answer, 1, 9)
    assert isinstance(changed, ApiVersionsResponse)
    assert (answer.throttle_time_ms, changed.throttle_time_ms) == (0, 9)


def test_who_wants_no_answer_gets_none() -> None:
    assert throttled(NO_ANSWER, 9, 5) is NO_ANSWER
