"""Which version is used with which broker."""

from dataclasses import replace

import pytest

from penstock.client.calls import PRODUCE_VERSION_MAX, describe_brokers, send_batches
from penstock.client.transport.addresses import Address
from penstock.client.transport.versions import (
    ASK_VERSIONS,
    ask_versions,
    choose_version,
    lower_version,
    served_versions,
)
from penstock.core.errors import BrokerAnswerError
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

AT = Address("b", 9092)
METADATA = describe_brokers(None)


def answer(code: ErrorCode, *keys: tuple[int, int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in keys
        ),
    )


@pytest.mark.parametrize(
    ("offered", "chosen"), [((0, 5), 5), ((0, 13), 13), ((0, 99), 13), ((13, 20), 13)]
)
def test_the_highest_that_both_know(offered: tuple[int, int], chosen: int) -> None:
    assert choose_version(METADATA, {ApiKey.METADATA: offered}, AT) == chosen


@pytest.mark.parametrize("offered", [(14, 20), (-3, -1)])
def test_none_that_both_know(offered: tuple[int, int]) -> None:
    with pytest.raises(BrokerAnswerError, match="b:9092 serves METADATA in versions"):
        choose_version(METADATA, {ApiKey.METADATA: offered}, AT)


def test_the_bound_of_the_call_is_kept() -> None:
    call = send_batches({}, acks=1, timeout_ms=1)
    served: dict[int, tuple[int, int]] = {ApiKey.PRODUCE: (0, 13)}
    assert choose_version(call, served, AT) == PRODUCE_VERSION_MAX
    with pytest.raises(BrokerAnswerError, match="versions 3-12 are needed"):
        choose_version(call, {ApiKey.PRODUCE: (13, 13)}, AT)
    with pytest.raises(BrokerAnswerError, match="versions 9-12 are needed"):
        choose_version(replace(call, version_min=9), {ApiKey.PRODUCE: (0, 8)}, AT)


@pytest.mark.parametrize(("told", "asked"), [(2, 2), (0, 0), (99, ASK_VERSIONS[1]), (-7, 0)])
def test_an_older_broker_is_asked_in_what_it_knows(told: int, asked: int) -> None:
    refusal = answer(ErrorCode.UNSUPPORTED_VERSION, (ApiKey.API_VERSIONS, 0, told))
    assert lower_version(refusal) == asked
    assert lower_version(answer(ErrorCode.UNSUPPORTED_VERSION)) == 0
    assert lower_version(answer(ErrorCode.NONE)) is None
    assert ask_versions(asked).version_max == asked


def test_what_is_served() -> None:
    assert served_versions(answer(ErrorCode.NONE, (3, 1, 9))) == {3: (1, 9)}
    with pytest.raises(BrokerAnswerError, match="asking for versions"):
        served_versions(answer(ErrorCode.UNSUPPORTED_VERSION))
