"""`RefusedSequences`: why a batch of an idempotent producer has no predecessor.

A producer sends several batches at once. If the broker refuses the first one for a passing reason
(too few replicas in sync, no leadership yet, no room) and the reason is gone before it looks at the
second, then the second is out of sequence. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, and harmful:
librdkafka raises its epoch on it and sends everything again that has no answer yet, also what other
partitions have stored, so records are there twice. So the second batch gets the error of the first,
and the producer sends both again, in order.

Guarantees:

- an error is replaced only if the sequence that the log expects was refused a short time ago, by
  this broker, for the same partition, producer and epoch. A gap of the producer's own stays one;
- at most `REFUSED_PRODUCERS_MAX` producers are remembered, the latest ones.

Apache Kafka handles the requests of a connection one after the other, answers included, and has the
same gap between two of them, only shorter. This is NOT a check: the log decides which batch fits.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from penstock.core.errors import (
    DiskFullError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutOfOrderSequenceError,
    PenstockError,
)
from penstock.core.types import TopicPartition
from penstock.records.batch import HEADER_BYTES, read_header

REFUSED_PRODUCERS_MAX: Final = 10_000
"""Idempotent producers of partitions that are remembered: 7 MB. Without its entry, a batch behind a
refused one is answered as in Apache Kafka."""
REFUSED_SEQUENCE_SECONDS: Final = 5.0
"""For how long. A client sends the batches behind a refused one within its time for one request."""
_PASSING: Final = (NotEnoughReplicasError, NotLeaderError, DiskFullError)
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_AHEAD_MAX: Final = 0x3FFFFFFF
"""Half of the sequences: a sequence farther ahead is behind."""


class _Refused(NamedTuple):
    """The sequences of one producer that were refused, from the first to the last batch."""

    epoch: int
    first_sequence: int
    span: int
    """From the first sequence to the base sequence of the last refused batch."""
    at_seconds: float
    error: PenstockError

    def span_to(self, sequence: int) -> int:
        """How far a sequence is behind the first one; sequences wrap."""
        return (sequence - self.first_sequence) & _SEQUENCE_MASK


class RefusedSequences:
    """The refused batches of one broker."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: OrderedDict[tuple[TopicPartition, int], _Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def explained(
        self, name: TopicPartition, records: memoryview, error: PenstockError, now_seconds: float
    ) -> PenstockError:
        """Return the error to answer for a refused batch, and remember it if it will pass."""
        is_gap = isinstance(error, OutOfOrderSequenceError)
        if not (is_gap or isinstance(error, _PASSING)) or len(records) < HEADER_BYTES:
            return error
        header = read_header(records)
        if header.producer_id < 0 or header.base_sequence < 0:
            return error
        key = (name, header.producer_id)
        known = self._producers.get(key)
        if known is not None and (
            known.epoch != header.producer_epoch
            or now_seconds - known.at_seconds > REFUSED_SEQUENCE_SECONDS
        ):
            del self._producers[key]
            known = None
        if not isinstance(error, OutOfOrderSequenceError):
            self._remember(key, header.producer_epoch, header.base_sequence, error, now_seconds)
            return error
        is_ahead = (header.base_sequence - error.expected_sequence) & _SEQUENCE_MASK <= _AHEAD_MAX
        if known is None or not is_ahead or known.span_to(error.expected_sequence) > known.span:
            return error
        return known.error.again()

    def _remember(
        self,
        key: tuple[TopicPartition, int],
        epoch: int,
        sequence: int,
        error: PenstockError,
        now_seconds: float,
    ) -> None:
        known = self._producers.pop(key, None)
        first_sequence, span = sequence, 0
        if known is not None:
            before = (known.first_sequence - sequence) & _SEQUENCE_MASK
            after = known.span_to(sequence)
            if after <= before:
                first_sequence, span = known.first_sequence, max(known.span, after)
            else:
                span = before + known.span
        self._producers[key] = _Refused(epoch, first_sequence, span, now_seconds, error.again())
        if len(self._producers) > REFUSED_PRODUCERS_MAX:
            self._producers.popitem(last=False)
