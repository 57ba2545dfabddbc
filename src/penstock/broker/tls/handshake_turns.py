"""`HandshakeTurns`: runs the handshakes of one listener on its event loop, one step for each turn.

`handshakes` decides; this file calls the connections and the loop's timers. The first step of a
turn is taken at once, so a single client does not wait. Further ones follow one by one in later
turns, and requests are handled in between.
"""

import asyncio
from typing import Protocol

from penstock.broker.tls.handshake_failures import CROWDED_OUT, TIMED_OUT, HandshakeFailures
from penstock.broker.tls.handshakes import HandshakeBudget
from penstock.broker.tls.tls_limits import HandshakeLimits


class Handshake(Protocol):
    """A connection in its handshake."""

    address: str

    def admit(self) -> None:
        """Begin: this handshake has a place now."""
        ...

    def step(self) -> None:
        """Take the next step of the handshake."""
        ...

    def end(self, reason: str) -> None:
        """End the connection; the handshake is removed already."""
        ...


class HandshakeTurns:
    """All unfinished handshakes of one listener."""

    __slots__ = ("_budget", "_is_stepping", "_loop", "_timer", "failures")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HandshakeLimits,
        failures: HandshakeFailures,
    ) -> None:
        self._loop = loop
        self._budget: HandshakeBudget[Handshake] = HandshakeBudget(limits)
        self.failures = failures
        self._is_stepping = False
        """Whether a step was taken in this turn of the loop."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unfinished_count(self) -> int:
        """Handshakes with a place."""
        return self._budget.admitted_count

    @property
    def waiting_count(self) -> int:
        """Connections that wait for a place."""
        return self._budget.waiting_count

    def follow(self, limits: HandshakeLimits) -> None:
        """Use other limits from now on."""
        self._budget.limits = limits
        self._update()

    def begin(self, one: Handshake) -> None:
        """Add a new connection."""
        self._budget.begin(one, one.address, self._loop.time())
        self._update()

    def end(self, one: Handshake) -> None:
        """Remove a connection whose handshake is complete, has failed, or is gone."""
        self._budget.end(one)
        if self._budget.waiting_count:
            self._update()

    def ask_for_step(self, one: Handshake) -> None:
        """Let a connection take its next step, now or in a later turn of the loop."""
        self._budget.ask_for_step(one)
        if not self._is_stepping:
            self._take_step()

    def stop(self) -> None:
        """Use the loop no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_step(self) -> None:
        one = self._budget.next_step()
        self._is_stepping = one is not None
        if one is not None:
            self._loop.call_soon(self._take_step)
            one.step()

    def _update(self) -> None:
        now = self._loop.time()
        changes = self._budget.update(now)
        self._schedule(now)
        # Last: each of these calls may begin or end other handshakes.
        for one in changes.expired:
            one.end(TIMED_OUT)
        for one in changes.crowded_out:
            one.end(CROWDED_OUT)
        for one in changes.admitted:
            one.admit()

    def _schedule(self, now: float) -> None:
        moment = self._budget.next_update(now)
        if moment is None or (self._timer is not None and self._timer.when() <= moment):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._timer = None
        self._update()
