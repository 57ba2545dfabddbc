"""Metrics of share groups: members, share-partitions, lag, records in flight and dead letters.

They show the share-partitions that this broker leads and that have members. Before the first member
there are no rows, and the code of share groups is not imported. A scrape iterates over the runs of
every share-partition.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.core.metrics import Family, Registry, Row

if TYPE_CHECKING:
    from penstock.node.shares.share_partitions import SharePartitions

_GROUP = ("group",)


class OpenedShares(Protocol):
    """`node.shares.lazy_shares.NodeShares`."""

    @property
    def opened(self) -> "SharePartitions | None":
        """The share-partitions of this broker; None before the first member."""
        ...


def register_shares(metrics: Registry, shares: OpenedShares) -> None:
    """Register the metrics of share groups."""

    def opened(rows: "Callable[[SharePartitions], Iterator[Row]]") -> Callable[[], Iterator[Row]]:
        def read() -> Iterator[Row]:
            if shares.opened is not None:
                yield from rows(shares.opened)

        return read

    def family(
        name: str,
        text: str,
        rows: "Callable[[SharePartitions], Iterator[Row]]",
        labels: tuple[str, ...] = _GROUP,
    ) -> None:
        metrics.family(name, Family(text, labels, opened(rows)))

    family("share_members", "Members of share groups with a session on this broker.", _members)
    family("share_partitions", "Share-partitions that this broker serves.", _partitions)
    family(
        "share_lag_records",
        "Records that a share group has not finished.",
        _lag,
        ("group", "topic", "partition"),
    )
    family("share_acquired_records", "Records that members of share groups hold.", _acquired)
    family(
        "share_dead_letters_waiting", "Records that wait for their dead letters.", _letters_waiting
    )
    family("share_deliveries_total", "Deliveries of records to share groups.", _deliveries, ())
    family("share_redeliveries_total", "Deliveries after the first.", _redeliveries, ())
    family("share_dead_letters_total", "Dead letters of share groups.", _letters)
    family("share_dead_letter_failures_total", "Failed writes of dead letters.", _letter_failures)


def _members(shares: "SharePartitions") -> Iterator[Row]:
    return _counted(shares.sessions.members_by_group())


def _partitions(shares: "SharePartitions") -> Iterator[Row]:
    return _counted({group: len(lives) for group, lives in shares.by_group()})


def _acquired(shares: "SharePartitions") -> Iterator[Row]:
    return _summed(shares, acquired=True)


def _letters_waiting(shares: "SharePartitions") -> Iterator[Row]:
    return _summed(shares, acquired=False)


def _summed(shares: "SharePartitions", *, acquired: bool) -> Iterator[Row]:
    sums: Counter[str] = Counter()
    for group, lives in shares.by_group():
        for live in lives:
            delivery = live.delivery
            if delivery is not None:
                counts = delivery.counts()
                sums[group] += counts.acquired if acquired else counts.archiving
    return _counted(sums)


def _lag(shares: "SharePartitions") -> Iterator[Row]:
    for group, lives in shares.by_group():
        for live in lives:
            delivery, hosted = live.delivery, live.hosted
            if delivery is not None:
                left = hosted.state.high_watermark - delivery.start_offset
                lag = max(0, left - delivery.counts().complete)
                yield Row((group, hosted.name.topic, str(hosted.name.partition)), lag)


def _deliveries(shares: "SharePartitions") -> Iterator[Row]:
    yield Row((), shares.desk.deliveries)


def _redeliveries(shares: "SharePartitions") -> Iterator[Row]:
    yield Row((), shares.desk.redeliveries)


def _letters(shares: "SharePartitions") -> Iterator[Row]:
    letters = shares.desk.letters
    return _counted({} if letters is None else letters.written)


def _letter_failures(shares: "SharePartitions") -> Iterator[Row]:
    letters = shares.desk.letters
    return _counted({} if letters is None else letters.failures)


def _counted(counts: Mapping[str, int]) -> Iterator[Row]:
    for group, count in sorted(counts.items()):
        yield Row((group,), count)
