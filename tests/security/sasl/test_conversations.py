"""`SaslExchange` carries on as Apache Kafka 4.3.1 did, word for word, but where it is meant to."""

import pytest

from tests.security.sasl.conversations import CONVERSATIONS, ENDLESS, held
from tests.security.sasl.exchange_wire import ExchangeWire
from tests.security.sasl.golden import GOLDEN, KAFKA, PENSTOCK, read_golden, write_golden

DIFFERENCES = {
    "bearer_bad_token_then_a_good_one": "RFC 7628: the client acknowledges, and nothing else",
    "bearer_other_scheme": "a malformed message has an answer",
    "bearer_two_tokens": "which one counts is not clear",
    "scram_binding_believed_missing": "RFC 5802 allows the header y,,",
    "scram_binding_of_another_header": "RFC 5802: the binding repeats the header",
    "scram_binding_of_nothing": "RFC 5802: the binding repeats the header",
    "scram_extension_in_the_final_message": "RFC 5802: extensions are signed too",
    "scram_mandatory_extension": "RFC 5802: an unknown mandatory extension is refused",
    "scram_short_proof": "a malformed message has an answer",
    "scram_unknown_user": "an unknown user looks like a known one",
}


def conversation_here(name: str) -> list[str]:
    return held(ExchangeWire(is_endless=name in ENDLESS), name)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_exchange_carries_on_as_kafka(name: str, request: pytest.FixtureRequest) -> None:
    lines = conversation_here(name)
    if request.config.getoption("--rewrite"):
        write_golden(GOLDEN, name, PENSTOCK, lines if name in DIFFERENCES else None)
    golden = read_golden(GOLDEN)[name]
    if name in DIFFERENCES:
        assert lines == golden[PENSTOCK]
        assert lines != golden[KAFKA], "no difference any more: remove it from the list"
    else:
        assert lines == golden[KAFKA]
        assert PENSTOCK not in golden
