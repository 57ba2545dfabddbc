"""The result of a fetch of one partition. Values only; `replication.manager` fills them."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.log.open_transactions import AbortedTransaction


class DivergingEpoch(NamedTuple):
    """Where the reader's history leaves ours (KIP-595): the largest epoch we share, and its end."""

    epoch: int
    end_offset: int


class Redirect(NamedTuple):
    """The consumer should read from another replica (KIP-392)."""

    replica: int
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int


class PartitionRead:
    """The result of a fetch of one partition."""

    __slots__ = (
        "aborted",
        "diverging_epoch",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
    )

    def __init__(
        self,
        high_watermark: int,
        log_start_offset: int,
        records: memoryview | bytes,
        diverging_epoch: DivergingEpoch | None = None,
        *,
        last_stable_offset: int = -1,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging_epoch = diverging_epoch
        self.last_stable_offset = high_watermark if last_stable_offset < 0 else last_stable_offset
        self.aborted = aborted
        """Aborted transactions that have records here; for consumers with `read_committed`."""
