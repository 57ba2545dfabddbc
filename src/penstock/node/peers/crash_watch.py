"""`CrashWatch`: notices the end of another broker's process in a fraction of a second.

The broker that judges (`cluster.link.verdicts`) keeps a connection to each other broker. When one
breaks, it connects again at once. A process that is gone refuses: after two refusals within
`REFUSED_WITHIN_SECONDS`, the registration is deleted and other brokers lead. A stopped machine, or
a broken network, does not refuse: the session in the metadata store counts there.

Safety never rests on this: a broker that was judged wrongly registers again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage
from penstock.cluster.link.lasting import kept
from penstock.cluster.link.verdicts import VERDICT_SECONDS, declare_gone, judge_of
from penstock.cluster.service import MetadataService
from penstock.core.errors import ClientError, PenstockError
from penstock.replication.ended_tasks import end_tasks

logger = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 0.05
"""After a broken connection: two refusals come within the time of a verdict."""
RETRY_SECONDS: Final = 1.0
"""After a failure that is no refusal of a broker that answered before."""
RECONNECTS: Final = 5
"""Quick attempts after a broken connection."""


class Connection(Protocol):
    """A connection to another broker."""

    async def lost(self) -> None:
        """Wait until the connection has ended."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Connections(Protocol):
    """Connects to other brokers: `PeerConnections`."""

    on_refused: Callable[[int], None] | None
    """Called with the id of a broker that refuses connections after it has accepted some."""

    async def open(self, broker_id: int) -> Connection:
        """Connect to a registered broker; raises `ClientError`."""
        ...


class CrashWatch:
    """The brokers that this one judges."""

    def __init__(self, broker_id: int, metadata: MetadataService, peers: Connections) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._watches: dict[tuple[int, int], asyncio.Task[None]] = {}
        """By broker id and registration."""
        self._work: set[asyncio.Task[None]] = set()
        """Verdicts under way, and watches that end."""
        self._judged_at = -VERDICT_SECONDS
        self._unsubscribe: Callable[[], None] | None = None
        self.verdict_count = 0
        peers.on_refused = self._refused

    def start(self) -> None:
        """Follow the brokers of each image."""
        self._unsubscribe = self._metadata.subscribe(self._follow)
        self._watch(self._metadata.image)

    async def stop(self) -> None:
        """Watch no broker any more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        await end_tasks((*self._watches.values(), *self._work))

    def _follow(
        self, before: MetadataImage, image: MetadataImage, _changes: tuple[Change, ...]
    ) -> None:
        if before.brokers is not image.brokers or before.controller != image.controller:
            self._watch(image)

    def _watch(self, image: MetadataImage) -> None:
        wanted = {
            (one.id, one.epoch)
            for one in image.brokers.values()
            if one.id != self._broker_id and judge_of(image, one.id) == self._broker_id
        }
        for key in tuple(self._watches.keys() - wanted):
            task = self._watches.pop(key)
            task.cancel()
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        for key in sorted(wanted - self._watches.keys()):
            name = f"watch-broker-{key[0]}"
            work = kept(partial(self._keep, key[0]), name)
            self._watches[key] = self._loop.create_task(work, name=name)

    async def _keep(self, broker_id: int) -> None:
        """Keep a connection; when it breaks, find out whether the process is there."""
        quick = 0
        while True:
            try:
                connection = await self._peers.open(broker_id)
            except ClientError:
                quick -= 1
                # Later attempts come in pairs: a refusal counts only beside another one, and the
                # first verdict may have been too soon after that on another broker.
                is_quick = quick > 0 or quick % 2 == 1
                await asyncio.sleep(RECONNECT_SECONDS if is_quick else RETRY_SECONDS)
                continue
            quick = RECONNECTS
            try:
                await connection.lost()
            finally:
                await connection.close()

    # --- Verdicts ---

    def _refused(self, broker_id: int) -> None:
        image = self._metadata.image
        broker = image.brokers.get(broker_id)
        if broker is None or judge_of(image, broker_id) != self._broker_id:
            return
        now = self._loop.time()
        if now - self._judged_at < VERDICT_SECONDS:
            return
        self._judged_at = now
        task = self._loop.create_task(self._judge(broker_id, broker.epoch))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _judge(self, broker_id: int, epoch: int) -> None:
        try:
            if await declare_gone(self._metadata, broker_id, epoch):
                self.verdict_count += 1
                logger.warning(
                    "broker %s refuses connections: other brokers lead its partitions now",
                    broker_id,
                )
        except PenstockError as error:
            logger.warning("broker %s refuses connections: %s", broker_id, error)
