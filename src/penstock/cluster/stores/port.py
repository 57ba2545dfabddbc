"""`MetadataStore`: the port to the store of the cluster's metadata, with etcd's model.

The store is a map of keys to values with one revision for the whole of it. Every transaction that
changes a key has the next revision; each key has the revision that created it and the one that last
wrote it. Guarantees of an implementation:

- **Transactions are atomic, serial and durable before they are answered.** All compares are checked
  against the state the operations then change.
- **Watches are ordered and complete**: every change from a revision on, one batch for each
  revision, in order, none left out, none twice. They may lag behind; they never skip. A watch that
  cannot keep this promise raises `CompactedError`, and the reader loads everything again.
- **A session binds keys to a living process**: when it ends or is not kept alive for its time to
  live, its keys are deleted like by any transaction. It is only a failure detector: a caller that
  must be safe against a slow process compares revisions.
- **Errors are exact.** `AmbiguousStoreError`: the transaction may or may not have been applied, or
  may yet be; read again before deciding. Any other `StoreError`: it was not applied.

Not part of the contract: reads inside transactions other than `read_on_failure`, ordering of keys
in answers other than by key, locks, and values above one mebibyte. A store never sends a
transaction again if it may have been applied: only the caller knows whether twice is safe.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.core.errors import StoreError
from penstock.core.limits import STORE_COMPARES_MAX, STORE_OPERATIONS_MAX, STORE_VALUE_BYTES_MAX

NO_SESSION = 0
"""Session of a key that stays until it is deleted."""


class CompactedError(StoreError):
    """The history since the requested revision is no longer kept: load the whole state again."""


class SessionLostError(StoreError):
    """The session has ended; its keys are deleted or about to be."""


class KeyValue(NamedTuple):
    """One key at the requested revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    session: int


class CompareTarget(Enum):
    """The revision of a key that is compared."""

    CREATE = "create"
    MOD = "mod"
    NEWEST = "newest"
    """The highest create revision of all keys that begin with the key; 0 for no such key."""


class Compare(NamedTuple):
    """Holds if the key has this revision; an absent key has revision 0 in both.

    With the target NEWEST it holds if no key with this prefix was created after the revision.
    """

    key: str
    target: CompareTarget
    revision: int

    @staticmethod
    def absent(key: str) -> "Compare":
        """Return a compare that holds while the key does not exist."""
        return Compare(key, CompareTarget.CREATE, 0)

    @staticmethod
    def created_at(key: str, revision: int) -> "Compare":
        """Return a compare that holds while the key created then exists, changed or not."""
        return Compare(key, CompareTarget.CREATE, revision)

    @staticmethod
    def unchanged(key: str, revision: int) -> "Compare":
        """Return a compare that holds while the key was last written at this revision."""
        return Compare(key, CompareTarget.MOD, revision)

    def holds(self, pair: KeyValue | None) -> bool:
        """Return whether it holds for the key's present value; for the targets of one key."""
        if pair is None:
            return self.revision == 0
        is_create = self.target is CompareTarget.CREATE
        return self.revision == (pair.create_revision if is_create else pair.mod_revision)

    @staticmethod
    def none_created_since(prefix: str, revision: int) -> "Compare":
        """Return a compare that holds while each key with the prefix is at least this old."""
        return Compare(prefix, CompareTarget.NEWEST, revision)


class Put(NamedTuple):
    """Write a key. Its session is replaced too: repeat the session to keep it."""

    key: str
    value: bytes
    session: int = NO_SESSION


class Delete(NamedTuple):
    """Delete one key, if it exists."""

    key: str


class DeletePrefix(NamedTuple):
    """Delete every key that begins with `prefix`. Counts as one operation."""

    prefix: str


Operation = Put | Delete | DeletePrefix


class TransactionResult(NamedTuple):
    """The result of a transaction."""

    succeeded: bool
    """Whether all compares held and the operations were applied."""
    revision: int
    """The store's revision after the transaction, changed or not."""
    values: tuple[KeyValue, ...] = ()
    """The keys of `read_on_failure` that exist, when it did not succeed."""
    changed: bool = False
    """Whether a key was written or deleted; a watch then has `revision`. Without a change, the
    revision may be that of keys which a watch does not include: do not wait for it."""


class Snapshot(NamedTuple):
    """All keys at one revision, ordered by key."""

    revision: int
    values: tuple[KeyValue, ...]


class Event(NamedTuple):
    """A written key, or a deleted key if there is no value."""

    key: str
    value: KeyValue | None


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Every change of one revision, ordered by key."""

    revision: int
    events: tuple[Event, ...]


class MetadataStore(Protocol):
    """The store of cluster metadata. Used from one event loop."""

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key, now or at a revision. May raise `CompactedError`."""
        ...

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return every key with the prefix, now or at a revision. May raise `CompactedError`."""
        ...

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply all operations if all compares hold, else none."""
        ...

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield changes of keys with the prefix, starting at `from_revision` inclusive.

        Raises `StoreError` if the store refuses the watch, for instance to this user.
        """
        ...

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Begin a session; return its id for `Put.session`."""
        ...

    async def keep_alive(self, session: int) -> None:
        """Restart the session's time to live. Raises `SessionLostError`."""
        ...

    async def end_session(self, session: int) -> None:
        """End a session, one's own or that of a dead process; its keys are deleted at once."""
        ...

    async def close(self) -> None:
        """Release the store's resources. Open watches end; sessions expire by themselves."""
        ...


def check_transaction(
    compares: Sequence[Compare], operations: Sequence[Operation], read_on_failure: Sequence[str]
) -> None:
    """Reject a transaction that etcd would reject, so that all implementations accept the same."""
    if len(compares) > STORE_COMPARES_MAX:
        raise StoreError(
            f"{len(compares)} compares, at most {STORE_COMPARES_MAX}: split the transaction"
        )
    for what, count in (("operations", len(operations)), ("reads", len(read_on_failure))):
        if count > STORE_OPERATIONS_MAX:
            raise StoreError(
                f"{count} {what}, at most {STORE_OPERATIONS_MAX}: split the transaction"
            )
    written: set[str] = set()
    prefixes: list[str] = []
    for operation in operations:
        if isinstance(operation, DeletePrefix):
            prefixes.append(operation.prefix)
            continue
        if operation.key in written:
            raise StoreError(f"{operation.key} is written twice in one transaction")
        if isinstance(operation, Put) and len(operation.value) > STORE_VALUE_BYTES_MAX:
            raise StoreError(
                f"{operation.key}: {len(operation.value)} bytes are too many, at most "
                f"{STORE_VALUE_BYTES_MAX}: store less in one key"
            )
        written.add(operation.key)
    for prefix in prefixes:
        if any(key.startswith(prefix) for key in written):
            raise StoreError(f"keys of {prefix} are deleted and written in one transaction")


def prefix_end(prefix: str) -> str:
    """Return the first key after all keys with `prefix`, which ends in an ASCII character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else chr(0x10FFFF)
