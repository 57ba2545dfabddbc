"""UnregisterBroker: a broker that runs or is not known is not forgotten."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.broker.handlers.asker import Asker


@pytest.mark.parametrize("broker_id", [99, -1, 2**31 - 1])
def test_an_unknown_broker(asker: Asker, broker_id: int) -> None:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = asker.ask(request, 0, UnregisterBrokerResponse)
    assert answer.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == f"Broker ID {broker_id} is not currently registered"
