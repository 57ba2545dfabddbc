"""The tasks' reports to the driver about unreadable records, and their count (pure).

Spark has no API for a Python source to send a number from a task to the driver, so with
`failOnDataLoss=false` the source has its own: it sends one small report for each loss through
`loss.channel`.

Guarantees: an offset counts once, however often Spark runs its task (after a failure, twice at a
time by speculation, or again for a second action in foreachBatch). A report of another run or
batch, and any other message, is ignored.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.loss.data_loss import Loss, LossKind
from penstock.spark.planning import LossAddress, OffsetRange

REPORT_BYTES_MAX: Final = 8_192
"""Two sentences and the name of a topic, at most 249 characters each time, fit into 2 KiB."""


class LossReport(NamedTuple):
    """The unreadable records of one task."""

    lost: OffsetRange
    kind: LossKind
    what: str
    goes_on: str


def write_report(to: LossAddress, report: LossReport) -> bytes:
    """Return the report as bytes for the driver."""
    (topic, partition), first, until = report.lost
    document = {
        "secret": to.secret,
        "batch": to.batch,
        "topic": topic,
        "partition": partition,
        "from": first,
        "until": until,
        "kind": report.kind.value,
        "what": report.what,
        "goes_on": report.goes_on,
    }
    return json.dumps(document).encode()


def read_report(data: bytes, secret: str, batch: int) -> LossReport | None:
    """Return a report of this run and batch; None for any other message."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return None
        if (document["secret"], document["batch"]) != (secret, batch):
            return None
        at = TopicPartition(_text(document, "topic"), _whole(document, "partition"))
        lost = OffsetRange(at, _whole(document, "from"), _whole(document, "until"))
        kind = LossKind(document["kind"])
        return LossReport(lost, kind, _text(document, "what"), _text(document, "goes_on"))
    except (KeyError, ValueError, RecursionError):
        return None


@dataclass(slots=True)
class LossBook:
    """The losses that the tasks of the current batch reported."""

    secret: str
    batch: int = 0
    _lost: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)

    def begin_batch(self) -> int:
        """Return the next batch's number for its reports; ignore those of earlier batches."""
        self.batch += 1
        self._lost = {}
        return self.batch

    def take(self, reports: Iterable[bytes]) -> list[Loss]:
        """Return the new losses in these reports, one for each partition."""
        found: dict[TopicPartition, Loss] = {}
        for data in reports:
            report = read_report(data, self.secret, self.batch)
            if report is None:
                continue
            at = report.lost.at
            known = self._lost.get(at, [])
            self._lost[at] = united([*known, report.lost])
            grown = _offsets(self._lost[at]) - _offsets(known)
            if grown > 0:
                before = found[at].offsets if at in found else 0
                what = f"while {at} was read: {report.what}"
                found[at] = Loss(report.kind, at, what, report.goes_on, before + grown)
        return list(found.values())


def united(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets of one partition as separate ranges, in order."""
    merged: list[OffsetRange] = []
    for one in sorted(one for one in ranges if one.size > 0):
        if merged and one.from_offset <= merged[-1].until_offset:
            last = merged[-1]
            until_offset = max(last.until_offset, one.until_offset)
            merged[-1] = OffsetRange(one.at, last.from_offset, until_offset)
        else:
            merged.append(one)
    return merged


def _offsets(ranges: Iterable[OffsetRange]) -> int:
    return sum(one.size for one in ranges)


def _text(document: dict[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise ValueError(name)
    return value


def _whole(document: dict[str, Any], name: str) -> int:
    value = document[name]
    if not isinstance(value, int) or value < 0:
        raise ValueError(name)
    return value
