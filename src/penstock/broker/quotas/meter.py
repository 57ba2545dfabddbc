"""`RequestMeter`: the costs of one request, and how long its client has to wait for it.

There is one for each request that begins while a quota is set, and none otherwise. It adds up the
time that the broker's thread spends on the request, leaving out the time it is parked, and charges
each thing once. Guarantees:

- the bytes of a Produce are charged when it begins: a client that hangs up has used them too;
- a Fetch that has to wait is charged for no bytes, because it is answered without any;
- the longest of the waits counts, and is the throttle time of the answer.

It knows neither connections nor how to write an answer.
"""

from collections.abc import Coroutine, Generator
from hashlib import sha256
from typing import Any, Final, TypeVar

from penstock.broker.quotas.limit_table import QuotaClient
from penstock.broker.quotas.quotas import Quotas
from penstock.cluster.quota_entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from penstock.core.errors import ThrottledError
from penstock.core.limits import QUOTA_ENTITY_NAME_BYTES_MAX
from penstock.security.principal import ANONYMOUS

Result = TypeVar("Result")

_NOT_RUNNING: Final = -1.0
QUOTA_EXCEEDED: Final = "The throttling quota has been exceeded."
"""Kafka's words."""


class RequestMeter:
    """The costs of one request."""

    __slots__ = (
        "_begun_at",
        "_client",
        "_is_exempt",
        "_is_settled",
        "_quota",
        "_quotas",
        "_seconds",
        "_wait_ms",
        "_wait_set_at_ms",
    )

    def __init__(self, quotas: Quotas, client_id: str | None, user: str = ANONYMOUS.name) -> None:
        self._quotas = quotas
        self._client = QuotaClient(_short(user), _short(client_id or ""))
        self._begun_at = quotas.seconds()
        self._seconds = 0.0
        self._wait_ms = 0
        self._wait_set_at_ms = 0
        self._quota = ""
        self._is_exempt = False
        self._is_settled = False

    def begin(self) -> None:
        """The thread works for this request from now on."""
        if self._begun_at == _NOT_RUNNING:
            self._begun_at = self._quotas.seconds()

    def end(self) -> None:
        """The thread works for others."""
        if self._begun_at != _NOT_RUNNING:
            self._seconds += self._quotas.seconds() - self._begun_at
            self._begun_at = _NOT_RUNNING

    def charge_produce(self, frame_bytes: int) -> int:
        """Count the bytes of a Produce; how many milliseconds to wait."""
        quotas = self._quotas
        wait_ms = quotas.produce.charge(self._client, frame_bytes, quotas.now_ms())
        self._wait(PRODUCER_BYTE_RATE, wait_ms)
        return wait_ms

    def fetch_bytes_max(self) -> int:
        """The most bytes that one fetch may return."""
        return self._quotas.fetch_bytes_max(self._client)

    def settle_fetch(self, answer_bytes: int) -> int:
        """Charge a Fetch; when it has to wait, it is to be answered without records."""
        quotas = self._quotas
        now_ms = quotas.now_ms()
        wait_ms = quotas.fetch.charge(self._client, answer_bytes, now_ms)
        self._wait(CONSUMER_BYTE_RATE, wait_ms)
        wait_ms = self.settle()
        if wait_ms:
            quotas.fetch.record(self._client, -answer_bytes, now_ms)
        return wait_ms

    def charge_mutations(self, partitions: int, *, strict: bool) -> None:
        """Count partitions that are created or deleted; strictly: raises `ThrottledError`."""
        quotas = self._quotas
        now_ms = quotas.now_ms()
        wait_ms = quotas.mutations.charge(self._client, partitions, now_ms, strict=strict)
        self._wait(CONTROLLER_MUTATION_RATE, wait_ms)
        if strict and wait_ms:
            raise ThrottledError(QUOTA_EXCEEDED)

    def settle(self, *, is_exempt: bool = False) -> int:
        """Charge the time, unless that is exempt; how many milliseconds to wait for everything."""
        if self._is_settled:
            return self._wait_ms
        self._is_settled = True
        self._is_exempt = is_exempt
        quotas = self._quotas
        # A change may have taken a while since it was known how long to wait for it.
        if self._wait_ms and self._quota == CONTROLLER_MUTATION_RATE:
            self._wait_ms = max(0, self._wait_ms - (quotas.now_ms() - self._wait_set_at_ms))
        if not is_exempt:
            self.end()
            wait_ms = quotas.charge_time(self._client, self._seconds)
            self._seconds = 0.0
            self._wait(REQUEST_PERCENTAGE, wait_ms)
        if self._wait_ms:
            quotas.throttled(self._quota, self._wait_ms)
        self.begin()
        return self._wait_ms

    def finish(self) -> None:
        """The answer is written: charge that too, for next time, unless time is exempt."""
        self.end()
        if not self._is_exempt:
            self._quotas.record_time(self._client, self._seconds)
        self._seconds = 0.0

    def _wait(self, quota: str, wait_ms: int) -> None:
        if wait_ms > self._wait_ms:
            self._wait_ms, self._quota = wait_ms, quota
            self._wait_set_at_ms = self._quotas.now_ms()


def _short(name: str) -> str:
    """The name of a user or client, or a digest of one that is too long to have quotas of its own.

    It is a key of the ledgers, and a client may send 32,767 bytes.
    """
    # No character is more than four bytes.
    if len(name) * 4 <= QUOTA_ENTITY_NAME_BYTES_MAX:
        return name
    text = name.encode()
    if len(text) <= QUOTA_ENTITY_NAME_BYTES_MAX:
        return name
    return f"sha256:{sha256(text).hexdigest()}"


class MeteredWork:
    """A coroutine whose steps are metered; its waits are not."""

    __slots__ = ("_meter", "_work")

    def __init__(self, work: Any, meter: RequestMeter) -> None:  # noqa: ANN401 (any awaitable)
        self._work = work
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run one step after the other."""
        steps = self._work.__await__()
        meter = self._meter
        error: BaseException | None = None
        value: object = None
        while True:
            meter.begin()
            try:
                waited_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                meter.end()
            value, error = None, None
            try:
                value = yield waited_for
            except BaseException as thrown:  # noqa: BLE001 (it is the coroutine's to handle)
                error = thrown


async def metered(work: Coroutine[object, object, None], meter: RequestMeter) -> None:
    """`MeteredWork` for a task."""
    await MeteredWork(work, meter)
