"""Connections that are accepted in the moment of a stop are ended like the others.

An event loop reports a connection some turns after it was accepted. One that the stop does not know
would delay it until its deadline, or send its requests to stopped parts.
"""

import logging
import time
from contextlib import ExitStack

import pytest

from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker

ROUNDS = 5
CLIENTS = 20
STOP_SECONDS_MAX = 5.0
"""Half of what a stop grants to clients that do not take their answers."""


def test_who_comes_while_it_stops_is_not_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(ROUNDS):
        broker = Broker()
        broker.start()
        with ExitStack() as stack:
            broker.pause()
            for _ in range(CLIENTS):
                asker = stack.enter_context(Asker(broker.port))
                asker.send(InitProducerIdRequest(transaction_timeout_ms=0), 4)
            begun = time.monotonic()
            broker.stop()
            assert time.monotonic() - begun < STOP_SECONDS_MAX, "a stop waited for one unknown"
    problems = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not problems, problems[0].getMessage()
