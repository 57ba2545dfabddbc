"""Transactions of the port as requests of etcd's (pure).

Guarantees: a request has all compares, all operations and the reads of a failure, in the given
order. A request that etcd would reject for its size is rejected here, with its size and the limit.
A `Put` always names its session, also none: etcd then unbinds the key, as the port says.

A read inside a transaction never names a revision: etcd up to 3.6 may apply a part of such a
transaction.
"""

from collections.abc import Sequence

from penstock.cluster.etcd.etcd_limits import REQUEST_BYTES_MAX
from penstock.cluster.etcd.etcd_messages import (
    TransactionAnswer,
    delete_request,
    key_bytes,
    prefix_range,
    put_request,
    range_request,
)
from penstock.cluster.etcd.protobuf_wire import bytes_field, number_field
from penstock.cluster.stores.port import (
    Compare,
    CompareTarget,
    DeletePrefix,
    Operation,
    Put,
    TransactionResult,
    check_transaction,
)
from penstock.core.errors import StoreError

_TARGETS = {CompareTarget.CREATE: (1, 5), CompareTarget.MOD: (2, 6)}
"""The target's number, and the field of the revision."""
_LESS = 2
"""The result of a compare with which the key's revision is lower; without one they are equal."""
_RANGE_END = 64
"""The field with which a compare is about each key of a range."""


def transaction_request(
    compares: Sequence[Compare], operations: Sequence[Operation], read_on_failure: Sequence[str]
) -> bytes:
    """Return the request; raise `StoreError` if etcd would reject it."""
    check_transaction(compares, operations, read_on_failure)
    parts = [bytes_field(1, _compare(compare)) for compare in compares]
    parts += [bytes_field(2, _operation(operation)) for operation in operations]
    parts += [bytes_field(3, bytes_field(1, range_request(key_bytes(k)))) for k in read_on_failure]
    request = b"".join(parts)
    if len(request) > REQUEST_BYTES_MAX:
        raise StoreError(
            f"a transaction of {len(request)} bytes, etcd accepts {REQUEST_BYTES_MAX}: write its "
            "keys in several transactions"
        )
    return request


def transaction_result(answer: TransactionAnswer) -> TransactionResult:
    """Return the port's result."""
    return TransactionResult(
        succeeded=answer.succeeded,
        revision=answer.header.revision,
        values=() if answer.succeeded else answer.values,
        changed=answer.succeeded and answer.changed,
    )


def first_session(operations: Sequence[Operation]) -> int:
    """Return the session that a transaction binds keys to, for a message."""
    sessions = (operation.session for operation in operations if isinstance(operation, Put))
    return next((session for session in sessions if session), 0)


def _compare(compare: Compare) -> bytes:
    if compare.target is CompareTarget.NEWEST:
        first, end = prefix_range(compare.key)
        target, field = _TARGETS[CompareTarget.CREATE]
        return (
            number_field(1, _LESS)
            + number_field(2, target)
            + bytes_field(3, first)
            + number_field(field, compare.revision + 1)
            + bytes_field(_RANGE_END, end)
        )
    target, field = _TARGETS[compare.target]
    key = bytes_field(3, key_bytes(compare.key))
    return number_field(2, target) + key + number_field(field, compare.revision)


def _operation(operation: Operation) -> bytes:
    if isinstance(operation, Put):
        put = put_request(key_bytes(operation.key), operation.value, operation.session)
        return bytes_field(2, put)
    if isinstance(operation, DeletePrefix):
        return bytes_field(3, delete_request(*prefix_range(operation.prefix)))
    return bytes_field(3, delete_request(key_bytes(operation.key)))
