"""The answer of a broker to a request for a lease, checked (pure).

Guarantees: names of files come from numbers and from an id of hexadecimal digits, so no answer
leads outside of the lease's directory. Segments are in order, do not overlap and are whole; every
number is within the bounds of its type. Any other document raises `LeaseAnswerError`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.core.errors import ClientError
from penstock.core.lease_limits import LEASE_ABORTED_MAX, LEASE_PARTITIONS_MAX, LEASE_SEGMENTS_MAX

LEASE_ID: Final = re.compile(r"[0-9a-f]{32}")
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_DIRECTORY_CHARACTERS_MAX: Final = 4_096


class LeaseAnswerError(ClientError):
    """The answer to a request for a lease is not one."""


class LeaseSegment(NamedTuple):
    """A leased segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    has_offset_index: bool
    has_transaction_index: bool

    def file_name(self, partition: int, suffix: str) -> str:
        """Return the name of a file in the directory of the lease."""
        return f"{partition}-{self.base_offset:020d}{suffix}"


class AbortedSpan(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""


class LeasePartition(NamedTuple):
    """The leased part of a partition."""

    partition: int
    leader_epoch: int
    log_start_offset: int
    """Records below it are deleted, also if a leased segment has them."""
    segments: tuple[LeaseSegment, ...]
    aborted: tuple[AbortedSpan, ...]


class SkippedPartition(NamedTuple):
    """A partition with offsets that are not leased."""

    partition: int
    code: str
    reason: str


class LeaseAnswer(NamedTuple):
    """A lease; it has no id if no segment is leased."""

    lease_id: str
    cluster_id: str
    topic: str
    topic_id: str
    directory: str
    partitions: tuple[LeasePartition, ...]
    skipped: tuple[SkippedPartition, ...]


def read_answer(document: Mapping[str, Any], topic: str) -> LeaseAnswer:
    """Return the lease of a topic; raise `LeaseAnswerError`."""
    try:
        answer = LeaseAnswer(
            _text(document, "id"),
            _text(document, "cluster_id"),
            _text(document, "topic"),
            _text(document, "topic_id"),
            _text(document, "directory"),
            tuple(_partition(one) for one in _items(document, "partitions", LEASE_PARTITIONS_MAX)),
            tuple(
                SkippedPartition(
                    _number(one, "partition", _INT32_MAX), _text(one, "code"), _text(one, "reason")
                )
                for one in _items(document, "skipped", LEASE_PARTITIONS_MAX)
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(f"{type(error).__name__}: {error}") from error
    if answer.topic != topic:
        raise _malformed(f"it is for another topic than {topic}")
    if answer.partitions and not LEASE_ID.fullmatch(answer.lease_id):
        raise _malformed("its id is not 32 hexadecimal digits")
    if sum(len(one.segments) for one in answer.partitions) > LEASE_SEGMENTS_MAX:
        raise _malformed(f"it has more than {LEASE_SEGMENTS_MAX} segments")
    if len({one.partition for one in answer.partitions}) < len(answer.partitions):
        raise _malformed("duplicate partition")
    return answer


def _partition(document: Mapping[str, Any]) -> LeasePartition:
    found = LeasePartition(
        _number(document, "partition", _INT32_MAX),
        _number(document, "leader_epoch", _INT32_MAX),
        _number(document, "log_start_offset", _INT64_MAX),
        tuple(_segment(one) for one in _items(document, "segments", LEASE_SEGMENTS_MAX)),
        tuple(
            AbortedSpan(
                _number(one, "producer_id", _INT64_MAX),
                _number(one, "first_offset", _INT64_MAX),
                _number(one, "last_offset", _INT64_MAX),
            )
            for one in _items(document, "aborted", LEASE_ABORTED_MAX)
        ),
    )
    end = 0
    for segment in found.segments:
        if not end <= segment.base_offset < segment.next_offset or segment.size_bytes == 0:
            raise ValueError(f"segment {segment.base_offset} is not behind the one before it")
        end = segment.next_offset
    if any(one.first_offset >= one.last_offset for one in found.aborted):
        raise ValueError("an aborted transaction ends before it begins")
    return found


def _segment(document: Mapping[str, Any]) -> LeaseSegment:
    return LeaseSegment(
        _number(document, "base_offset", _INT64_MAX),
        _number(document, "next_offset", _INT64_MAX),
        _number(document, "size_bytes", _INT32_MAX),
        _truth(document, "has_offset_index"),
        _truth(document, "has_transaction_index"),
    )


def _items(document: Mapping[str, Any], name: str, limit: int) -> Iterable[Mapping[str, Any]]:
    found = document[name]
    if not isinstance(found, list) or len(found) > limit:
        raise ValueError(f"{name} is not a list of at most {limit} items")
    for one in found:
        if not isinstance(one, dict):
            raise TypeError(f"{name} has an item that is not an object")
        yield one


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document[name]
    if not isinstance(found, str) or len(found) > _DIRECTORY_CHARACTERS_MAX or "\0" in found:
        raise ValueError(f"{name} is not a short text")
    return found


def _number(document: Mapping[str, Any], name: str, highest: int) -> int:
    found = document[name]
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= highest:
        raise ValueError(f"{name} is not a number from 0 to {highest}")
    return found


def _truth(document: Mapping[str, Any], name: str) -> bool:
    found = document[name]
    if not isinstance(found, bool):
        raise TypeError(f"{name} is neither true nor false")
    return found


def _malformed(problem: str) -> LeaseAnswerError:
    return LeaseAnswerError(
        f"the answer to a request for a lease is malformed: {problem}.",
        hint="Set segments.url to the admin port of a Penstock broker.",
    )
