"""The alarms of all connections: one that fails does not affect other time limits."""

import asyncio

import pytest

from penstock.broker.connections.alarms import NEVER, Alarms


class Connection:
    """Asks to be checked again each time, unless it fails."""

    def __init__(self, alarms: Alarms, *, fails: bool = False) -> None:
        self.check_at = NEVER
        self.check_key: int | None = None
        self.checks = 0
        self.is_aborted = False
        self._alarms = alarms
        self._fails = fails

    def check_time(self, now: float) -> None:
        self.checks += 1
        if self._fails:
            raise ValueError("a defect")
        self._alarms.check_by(self, now + 0.02)

    def abort(self) -> None:
        self.is_aborted = True


def test_a_check_that_fails_ends_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        alarms = Alarms(loop)
        before, broken, after = (
            Connection(alarms),
            Connection(alarms, fails=True),
            Connection(alarms),
        )
        due = loop.time()
        for connection in (before, broken, after):
            alarms.check_by(connection, due)
        async with asyncio.timeout(10):
            while min(before.checks, after.checks) < 3:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0.01)
        assert (broken.checks, broken.is_aborted) == (1, True)
        assert not before.is_aborted
        assert not after.is_aborted
        alarms.stop()

    asyncio.run(go())
    assert "time limits of a connection" in caplog.text


def test_a_check_may_change_the_alarm_of_another_that_is_due() -> None:
    class Meddling(Connection):
        other: Connection

        def check_time(self, now: float) -> None:
            self.checks += 1
            self._alarms.check_by(self.other, now + 0.02)

    async def go() -> None:
        loop = asyncio.get_running_loop()
        alarms = Alarms(loop)
        first = Meddling(alarms)
        first.other = second = Connection(alarms)
        due = loop.time()
        alarms.check_by(first, due)
        alarms.check_by(second, due)
        async with asyncio.timeout(10):
            while second.checks < 3:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0.01)
        alarms.stop()

    asyncio.run(go())
