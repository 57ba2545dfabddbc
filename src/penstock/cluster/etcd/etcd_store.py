"""`EtcdMetadataStore`: the metadata store of several brokers, in an etcd cluster.

Guarantees, as the port has them: transactions are etcd's own; reads show the newest acknowledged
state; a load of many keys is one state, read in pages at one revision; watches are complete and in
order over the loss of members and connections; sessions are etcd's leases. Each call ends within
seconds: with the answer, or with the error that says whether it was applied.

The rules are in `etcd_calls`, `etcd_faults`, `answer_guard` and `watch_state`, which do no IO.

It does NOT keep sessions alive by itself, and a keep-alive that succeeds does not prove that the
session's keys exist: etcd before 3.5.23 can prolong a lease that was revoked. A broker also watches
its own key. Sessions have whole seconds, and etcd may grant more than was asked for.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence

from penstock.cluster.etcd.etcd_calls import (
    END_SESSION,
    KEEP_ALIVE,
    OPEN_SESSION,
    READ,
    TRANSACT,
    AnswerTooLargeError,
)
from penstock.cluster.etcd.etcd_channels import EtcdChannels
from penstock.cluster.etcd.etcd_client import EtcdClient
from penstock.cluster.etcd.etcd_limits import (
    ANSWER_BYTES_MAX,
    PAGE_KEYS_MAX,
    SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
)
from penstock.cluster.etcd.etcd_messages import (
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    RANGE,
    TRANSACTION,
    RangeAnswer,
    key_bytes,
    lease_grant_request,
    lease_request,
    prefix_range,
    range_request,
    read_lease,
    read_range,
    read_transaction,
)
from penstock.cluster.etcd.etcd_options import EtcdOptions
from penstock.cluster.etcd.etcd_transactions import (
    first_session,
    transaction_request,
    transaction_result,
)
from penstock.cluster.etcd.etcd_version import read_version, version_problem
from penstock.cluster.etcd.etcd_watch import watch
from penstock.cluster.etcd.watch_state import WatchState
from penstock.cluster.keys import DEFAULT_ROOT
from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    EventBatch,
    KeyValue,
    Operation,
    SessionLostError,
    Snapshot,
    TransactionResult,
)
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import StoreError

logger = logging.getLogger(__name__)


class EtcdMetadataStore:
    """The metadata store in etcd. Created by `open`; used from one event loop."""

    def __init__(
        self,
        options: EtcdOptions,
        *,
        clock: Clock | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        page_keys: int = PAGE_KEYS_MAX,
    ) -> None:
        channels = EtcdChannels(options, answer_bytes_max=answer_bytes_max)
        self._options = options
        self._client = EtcdClient(options, channels, clock or SystemClock())
        self._page_keys = page_keys

    @classmethod
    async def open(
        cls, options: EtcdOptions, *, root: str = DEFAULT_ROOT, clock: Clock | None = None
    ) -> "EtcdMetadataStore":
        """Return a store whose etcd has answered; log an error for a version with known defects.

        `root` is the prefix of the cluster's keys, which the user may read.
        """
        store = cls(options, clock=clock)
        try:
            await store.read(root)
        except BaseException:
            await store.close()
            raise
        versions = await asyncio.gather(
            *(read_version(options, endpoint) for endpoint in options.endpoints)
        )
        for endpoint, version in zip(options.endpoints, versions, strict=True):
            problem = version_problem(version)
            if problem:
                logger.error("etcd at %s: %s", endpoint.target, problem)
        return store

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key, now or at a revision."""
        wanted = _readable(revision)
        request = range_request(key_bytes(key), revision=wanted)
        answer = await self._client.call(READ, RANGE, request, read_range)
        return Snapshot(wanted or answer.header.revision, answer.values)

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return every key with the prefix, now or at a revision, read in pages."""
        first, end = prefix_range(prefix)
        wanted = _readable(revision)
        values: list[KeyValue] = []
        page = await self._read_page(first, end, wanted)
        at_revision = wanted or page.header.revision
        values.extend(page.values)
        while page.has_more and page.values:
            after = key_bytes(page.values[-1].key) + b"\x00"
            page = await self._read_page(after, end, at_revision)
            values.extend(page.values)
        return Snapshot(at_revision, tuple(values))

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply all operations if all compares hold, else none."""
        request = transaction_request(compares, operations, read_on_failure)
        try:
            answer = await self._client.call(TRANSACT, TRANSACTION, request, read_transaction)
        except SessionLostError as error:
            raise _session_lost(first_session(operations)) from error
        return transaction_result(answer)

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield changes of keys with the prefix, starting at `from_revision`."""
        state = WatchState(from_revision, has_credentials=self._options.has_credentials)
        return watch(self._client, state, prefix)

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Begin a session; its time to live is rounded up to whole seconds."""
        if not SESSION_SECONDS_MIN <= time_to_live_seconds <= SESSION_SECONDS_MAX:
            raise StoreError(
                f"a session of {time_to_live_seconds:g} s, etcd's are {SESSION_SECONDS_MIN:g} to "
                f"{SESSION_SECONDS_MAX:g} s: choose a time in between"
            )
        request = lease_grant_request(math.ceil(time_to_live_seconds))
        answer = await self._client.call(OPEN_SESSION, LEASE_GRANT, request, read_lease)
        return answer.lease

    async def keep_alive(self, session: int) -> None:
        """Restart the session's time to live."""
        request = lease_request(session)
        try:
            answer = await self._client.call(KEEP_ALIVE, LEASE_KEEP_ALIVE, request, read_lease)
        except SessionLostError as error:
            raise _session_lost(session) from error
        if answer.time_to_live_seconds <= 0:
            raise _session_lost(session)

    async def end_session(self, session: int) -> None:
        """End a session and delete its keys. A session that has ended is not an error."""
        try:
            await self._client.call(END_SESSION, LEASE_REVOKE, lease_request(session), _read_any)
        except SessionLostError:
            return

    async def close(self) -> None:
        """Close every connection. Can be called twice."""
        await self._client.close()

    async def _read_page(self, first: bytes, end: bytes, revision: int) -> RangeAnswer:
        while True:
            request = range_request(first, end, limit=self._page_keys, revision=revision)
            try:
                return await self._client.call(READ, RANGE, request, read_range)
            except AnswerTooLargeError:
                if self._page_keys == 1:
                    raise
                self._page_keys = max(1, self._page_keys // 2)


def _readable(revision: int | None) -> int:
    """Return the revision as etcd has it: 0 is now."""
    if revision is not None and revision < 1:
        raise CompactedError(f"revision {revision} is not kept, etcd's first is 1: read it now")
    return revision or 0


def _session_lost(session: int) -> SessionLostError:
    return SessionLostError(f"session {session} has ended: open another and bind its keys again")


def _read_any(message: bytes) -> RangeAnswer:
    """Read an answer of which only the header matters."""
    return RangeAnswer(read_range(message).header, (), has_more=False)
