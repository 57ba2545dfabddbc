"""`ApiKey` and `ErrorCode` against kio's tables, which come from Kafka's sources."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode


def test_every_error_code_of_kio_is_ours() -> None:
    theirs = {(code.value, code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {(code.value, code.name, code.retriable) for code in ErrorCode}
    assert ours == theirs


def test_every_api_key_of_kio_is_ours() -> None:
    assert {key: ApiKey(key).name.lower() for key in api_key_map} == dict(api_key_map)


def test_keys_that_kafka_retired_keep_their_numbers() -> None:
    assert {key.name for key in ApiKey if key not in api_key_map} == {
        "LEADER_AND_ISR",
        "STOP_REPLICA",
        "UPDATE_METADATA",
        "CONTROLLED_SHUTDOWN",
    }


@pytest.mark.parametrize("number", [-32_768, -2, 134, 9_999, 32_767])
def test_an_unknown_error_code_keeps_its_number(number: int) -> None:
    code = ErrorCode(number)
    assert (int(code), code.name, code.retriable) == (number, f"UNKNOWN_CODE_{number}", False)
    assert code == ErrorCode(number)
    assert hash(code) == hash(ErrorCode(number))


@pytest.mark.parametrize("number", [32_768, -32_769])
def test_a_number_that_is_no_int16_is_no_error_code(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        ErrorCode(number)
