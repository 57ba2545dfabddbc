"""`disown`, `keep_disowned`: a broker notes in the metadata that it lacks logs of partitions.

Guarantees: when `disown` returns, no state of these partitions has a valid entry of the broker, so
it is not elected with an empty log. For lost logs it begins when the broker has registered, and
ends before the broker is announced as running. The controller writes the same states in that
moment, because the broker has registered: a refused write is decided again on the newer state. For
a disk that fails later, and a log that is found damaged, `keep_disowned` works until the broker
stops.

It finds no lost logs (`storage.log_manager` does) and copies nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from penstock.cluster.elections import unserved
from penstock.cluster.image import MetadataImage, PartitionImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.types import TopicPartition
from penstock.replication.ports import PartitionMetadata

logger = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
"""Before a write that was refused is decided again, and between the looks at newer states."""


async def disown(
    metadata: PartitionMetadata,
    broker_id: int,
    names: Sequence[TopicPartition],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    *,
    keeps_last: bool = False,
) -> None:
    """Invalidate the entries of the broker for these partitions; return when that is stored.

    With `keeps_last`, partitions without another in-sync replica keep their state: a disk that
    failed may have everything after a restart, and no other broker has.
    """
    while writes := list(_writes(metadata.image, broker_id, names, keeps_last=keeps_last)):
        if not all(await metadata.write_partitions(writes)):
            logger.warning("%d lost logs are not noted in the metadata yet", len(writes))
            await sleep(PAUSE_SECONDS)


async def keep_disowned(
    metadata: PartitionMetadata,
    broker_id: int,
    names: Sequence[TopicPartition],
    is_lost: Callable[[TopicPartition], bool],
) -> None:
    """Disown the partitions of a failed disk, each time that a state has a valid entry again.

    A leader may have a request of this broker from before the failure, and add it once more.
    `is_lost` returns whether the log of a partition is still the one that failed: after its topic
    was deleted, or its replica moved, another log may have the name.
    """
    changed = asyncio.Event()
    unsubscribe = metadata.subscribe(lambda _before, _image, _changes: changed.set())
    try:
        while True:
            changed.clear()
            names = [name for name in names if is_lost(name)]
            await disown(metadata, broker_id, names, keeps_last=True)
            await changed.wait()
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        unsubscribe()


def _writes(
    image: MetadataImage, broker_id: int, names: Sequence[TopicPartition], *, keeps_last: bool
) -> Iterator[PartitionWrite]:
    for name in names:
        topic, state = image.topic(name.topic), image.partition(*name)
        if topic is None or state is None or (keeps_last and not _has_other(state, broker_id)):
            continue
        after = unserved(state, broker_id)
        if after is not None:
            yield PartitionWrite(topic.id, name.partition, state, after)


def _has_other(state: PartitionImage, broker_id: int) -> bool:
    return any(one.broker_id != broker_id and one.epoch > 0 for one in state.in_sync)
