"""Hashing gives way to the event loop."""

import asyncio
import os
import sys
import threading

import pytest

from penstock.node.security.check_threads import password_threads


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_checks_have_a_lower_priority_than_the_event_loop() -> None:
    """A flood of bad logins on a machine with two cores takes both of them otherwise."""

    def own_priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def scenario() -> int:
        threads = password_threads()
        found = await threads.run(own_priority)
        threads.stop()
        return found

    assert asyncio.run(scenario()) > own_priority()
