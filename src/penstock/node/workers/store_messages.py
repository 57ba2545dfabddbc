"""The values of the `MetadataStore` port as lists for a channel, and back. Pure.

A value of bytes is text with one character for each byte. Errors keep their kind, because a caller
acts on it: an ambiguous transaction is read again, a lost session is opened again.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    CompareTarget,
    Delete,
    DeletePrefix,
    Event,
    EventBatch,
    KeyValue,
    Operation,
    Put,
    SessionLostError,
    Snapshot,
    TransactionResult,
)
from penstock.core.errors import AmbiguousStoreError, StoreError

_BYTES: Final = "latin-1"

_ERRORS: Final[dict[str, type[StoreError]]] = {
    "compacted": CompactedError,
    "session": SessionLostError,
    "ambiguous": AmbiguousStoreError,
    "store": StoreError,
}
"""A class before its base class."""


def write_error(error: StoreError) -> list[str]:
    """Return the kind and the text of an error."""
    name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
    return [name, str(error)]


def read_error(name: str, text: str) -> StoreError:
    """Return the error of this kind."""
    return _ERRORS[name](text)


def write_pair(pair: KeyValue) -> list[Any]:
    """Return a key with its value."""
    return [pair.key, pair.value.decode(_BYTES), *pair[2:]]


def read_pair(given: Sequence[Any]) -> KeyValue:
    """Return the key with its value."""
    key, value, *revisions = given
    return KeyValue(key, value.encode(_BYTES), *revisions)


def write_snapshot(snapshot: Snapshot) -> list[Any]:
    """Return a snapshot."""
    return [snapshot.revision, [write_pair(pair) for pair in snapshot.values]]


def read_snapshot(given: Sequence[Any]) -> Snapshot:
    """Return the snapshot."""
    return Snapshot(given[0], tuple(read_pair(pair) for pair in given[1]))


def write_compares(compares: Sequence[Compare]) -> list[Any]:
    """Return compares."""
    return [[one.key, one.target.value, one.revision] for one in compares]


def read_compares(given: Sequence[Any]) -> list[Compare]:
    """Return the compares."""
    return [Compare(key, CompareTarget(target), revision) for key, target, revision in given]


def write_operations(operations: Sequence[Operation]) -> list[Any]:
    """Return operations."""
    written: list[Any] = []
    for one in operations:
        if isinstance(one, Put):
            written.append(["put", one.key, one.value.decode(_BYTES), one.session])
        elif isinstance(one, Delete):
            written.append(["delete", one.key])
        else:
            written.append(["delete_prefix", one.prefix])
    return written


def read_operations(given: Sequence[Any]) -> list[Operation]:
    """Return the operations."""
    operations: list[Operation] = []
    for kind, *values in given:
        if kind == "put":
            key, value, session = values
            operations.append(Put(key, value.encode(_BYTES), session))
        elif kind == "delete":
            operations.append(Delete(*values))
        else:
            operations.append(DeletePrefix(*values))
    return operations


def write_result(result: TransactionResult) -> list[Any]:
    """Return the result of a transaction."""
    pairs = [write_pair(pair) for pair in result.values]
    return [result.succeeded, result.revision, pairs, result.changed]


def read_result(given: Sequence[Any]) -> TransactionResult:
    """Return the result."""
    succeeded, revision, pairs, changed = given
    return TransactionResult(succeeded, revision, tuple(map(read_pair, pairs)), changed)


def write_batch(batch: EventBatch) -> list[Any]:
    """Return the changes of one revision."""
    events = [
        [event.key, None if event.value is None else write_pair(event.value)]
        for event in batch.events
    ]
    return [batch.revision, events]


def read_batch(given: Sequence[Any]) -> EventBatch:
    """Return the changes."""
    revision, events = given
    return EventBatch(
        revision,
        tuple(Event(key, None if pair is None else read_pair(pair)) for key, pair in events),
    )
