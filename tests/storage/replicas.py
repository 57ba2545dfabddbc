"""A leader's log with everything that a log can hold, and its bytes for a replica."""

import random

from penstock.records.batch import iterate_headers
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import Segment
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import batch, new_log, producer_batch
from tests.storage.transactions import append_verified, end, transactional_batch

CODECS = (0, 1, 3, 4)


def leader_log(choice: random.Random, steps: int) -> PartitionLog:
    """A log with plain, compressed, idempotent and transactional batches of several epochs."""
    _, log = new_log(MemoryDisk(), LogSettings(segment_bytes=1 << 20, retention_ms=-1))
    sequences = dict.fromkeys((7, 8, 20, 21, 22), 0)
    opened: set[int] = set()
    epoch = 0
    for step in range(steps):
        kind = choice.randrange(6)
        epoch += choice.random() < 0.1
        if kind <= 1:
            made = batch(
                choice.randrange(1, 4),
                size=choice.choice((1, 30, 400)),
                timestamp_ms=1_000 + choice.randrange(50 * (step + 1)),
                codec=choice.choice(CODECS),
            )
            log.append(made, leader_epoch=epoch)
        elif kind == 2:
            producer = choice.choice((7, 8))
            log.append(
                producer_batch(sequences[producer], 2, producer_id=producer), leader_epoch=epoch
            )
            sequences[producer] += 2
        elif kind <= 4:
            producer = choice.choice((20, 21, 22))
            append_verified(log, transactional_batch(producer, sequences[producer], 2), epoch)
            sequences[producer] += 2
            opened.add(producer)
        elif opened:
            producer = opened.pop()
            end(
                log,
                producer,
                commits=choice.random() < 0.5,
                coordinator_epoch=step,
                leader_epoch=epoch,
            )
    return log


def batches_of(log: PartitionLog) -> list[bytes]:
    """Every stored batch, in order."""
    data = stored(log.segments)
    return [
        data[position : position + header.size_bytes] for position, header in iterate_headers(data)
    ]


def stored(segments: list[Segment]) -> bytes:
    """The data of segments, one after the other."""
    return b"".join(bytes(segment.read(0, segment.size, nowait=False)) for segment in segments)


def chunks(choice: random.Random, batches: list[bytes]) -> list[memoryview]:
    """The batches in chunks of random sizes."""
    found = []
    while batches:
        count = choice.randrange(1, min(len(batches), 9) + 1)
        found.append(memoryview(b"".join(batches[:count])))
        batches = batches[count:]
    return found
