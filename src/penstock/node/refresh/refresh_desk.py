"""`NodeRefreshes`: implements `admin.ports.RefreshDesk` on this node.

An installation runs as a task of the broker, so it goes on when the request of its operator ends;
a broker that stops ends it, and the mirror has its old data set. The state of the last installation
of each topic is kept until the broker stops, for at most `STATES_MAX` topics.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from penstock.admin.pipe_models import NewRefresh, RefreshEntry, SentRefresh
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError, PenstockError, PolicyViolationError
from penstock.node.pipes.pipe_door import PipeDoor
from penstock.node.refresh.refresh_hooks import RefreshHooks

if TYPE_CHECKING:
    from penstock.node.pipes.pipe_book import PipeBook

logger = logging.getLogger(__name__)

STATES_MAX: Final = 1_000


class Running(Protocol):
    """The parts of a running broker; `node.admin_parts.Served` has them."""

    @property
    def pipes(self) -> PipeDoor:
        """The pipes."""
        ...


class NodeRefreshes:
    """`admin.ports.RefreshDesk`."""

    def __init__(
        self, served: Callable[[], Running | None], clock: Clock, hooks: RefreshHooks
    ) -> None:
        """`served` returns None until the broker is started."""
        self._served = served
        self._hooks = hooks
        self._clock = clock
        self._states: dict[str, RefreshEntry] = {}
        self._begun: dict[str, float] = {}

    def state(self, topic: str) -> RefreshEntry:
        """Return the installation in a mirror that runs, or the last one."""
        found = self._states.get(topic)
        if found is None:
            return _entry(topic, "NONE", "")
        if found.state == "RUNNING":
            return found.model_copy(update={"seconds": self._seconds(topic)})
        return found

    def begin(self, topic: str, wanted: NewRefresh) -> RefreshEntry:
        """Begin to install a snapshot."""
        book = self._running().pipes.open()
        if self.state(topic).state == "RUNNING":
            raise PolicyViolationError(
                f"a snapshot is being installed in {topic!r}",
                hint="Wait until it ends.",
            )
        while len(self._states) >= STATES_MAX:
            oldest = next((one for one in self._states.values() if one.state != "RUNNING"), None)
            if oldest is None:
                raise PolicyViolationError(f"{STATES_MAX} snapshots are being installed")
            del self._states[oldest.topic]
        self._begun[topic] = self._clock.monotonic()
        self._states.pop(topic, None)
        self._states[topic] = _entry(topic, "RUNNING", wanted.place)
        book.tasks.create_task(self._install(book, topic, wanted), name="refresh")
        return self._states[topic]

    async def _install(self, book: "PipeBook", topic: str, wanted: NewRefresh) -> None:
        changes: dict[str, object]
        try:
            installer = book.installer()
            done = await installer.install(topic, wanted.place, is_forced=wanted.is_forced)
        except PenstockError as error:
            logger.warning("%s is not refreshed: %s", topic, error)
            changes = {"state": "FAILED", "reason": str(error), "remedy": error.hint}
        except asyncio.CancelledError:
            self._end(topic, {"state": "FAILED", "reason": "the broker stopped"})
            raise
        except Exception as error:
            # A defect, or an answer that no bucket sends: the broker must not end with it.
            logger.exception("%s is not refreshed", topic)
            changes = {"state": "FAILED", "reason": f"defect: {error}"}
        else:
            changes = {"state": "DONE", **done._asdict()}
            book.compare_again(topic)
        self._end(topic, changes)

    def _end(self, topic: str, changes: dict[str, object]) -> None:
        seconds = self._seconds(topic)
        self._states[topic] = self._states[topic].model_copy(update={**changes, "seconds": seconds})

    def _seconds(self, topic: str) -> float:
        return round(self._clock.monotonic() - self._begun[topic], 3)

    def send(self, topic: str, group: str | None) -> SentRefresh:
        """Refresh the push subscribers of a topic, or those of a group."""
        return SentRefresh(topic=topic, subscribers=self._hooks.send(topic, group))

    def _running(self) -> Running:
        served = self._served()
        if served is None:
            raise BrokerUnreachableError("the broker is starting and refreshes nothing yet.")
        return served


def _entry(topic: str, state: str, place: str) -> RefreshEntry:
    return RefreshEntry.model_validate(
        {
            "topic": topic,
            "state": state,
            "place": place,
            "snapshot_id": "",
            "partitions": 0,
            "records": 0,
            "size_bytes": 0,
            "seconds": 0.0,
            "reason": "",
            "remedy": "",
        }
    )
