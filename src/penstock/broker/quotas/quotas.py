"""`Quotas`: the bounds that are set now, and each client's use of them; the clock is an argument.

Each kind of quota has a table of the clients' limits and a ledger of their use. Charging never
refuses: it counts and says how long to wait, as KIP-13 and KIP-219 have it. Only changes of topics
can be refused before they are counted (KIP-599), and the count of a new connection is undone when
it is one too many (KIP-612).

While no quota is set, `is_active` is False and nothing is counted: counting begins with the first
quota. Muting a connection and writing the throttle time into the answer are done elsewhere.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Final

from penstock.broker.quotas.ledger import Ledger
from penstock.broker.quotas.limit_table import LimitTable, QuotaClient
from penstock.broker.quotas.rates import SampledRate, TokenBucket, Windows
from penstock.cluster.quota_entities import (
    ALL_QUOTAS,
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)
from penstock.cluster.quota_entities import CLIENT_QUOTAS as CLIENT_KINDS
from penstock.core.client_host import host_of
from penstock.core.clock import Clock, SystemClock
from penstock.core.metrics import Family, Registry, Row

_PERCENT_OF_A_SECOND: Final = 100.0
_NO_LIMIT_BYTES: Final = 2**31 - 1


class RateQuota:
    """One kind of quota on a rate."""

    __slots__ = ("_ledger", "_wait_ms_max", "_windows", "limits")

    def __init__(self, windows: Windows, wait_ms_max: int | None = None) -> None:
        self.limits = LimitTable()
        self._ledger: Ledger[tuple[str, str], SampledRate] = Ledger(SampledRate)
        self._windows = windows
        self._wait_ms_max = wait_ms_max

    def charge(self, client: QuotaClient, amount: float, now_ms: int) -> int:
        """Count an amount; return how many milliseconds to wait."""
        bound = self.limits.bound_of(client)
        if bound is None:
            return 0
        rate = self._ledger.use(bound.sharers, now_ms)
        wait_ms = rate.charge(amount, bound.limit, now_ms, self._windows)
        return wait_ms if self._wait_ms_max is None else min(wait_ms, self._wait_ms_max)

    def record(self, client: QuotaClient, amount: float, now_ms: int) -> None:
        """Count an amount, or undo a count, without checking the bound."""
        bound = self.limits.bound_of(client)
        if bound is not None:
            self._ledger.use(bound.sharers, now_ms).record(amount, now_ms, self._windows)

    def amount_max(self, client: QuotaClient) -> float | None:
        """More than this at once has to wait even if nothing else was used; None for no bound."""
        bound = self.limits.bound_of(client)
        return None if bound is None else bound.limit * self._windows.full_ms / 1000


class MutationQuota:
    """The quota on partitions created and deleted."""

    __slots__ = ("_ledger", "_windows", "limits")

    def __init__(self, windows: Windows) -> None:
        self.limits = LimitTable()
        self._ledger: Ledger[tuple[str, str], TokenBucket] = Ledger(TokenBucket)
        self._windows = windows

    def charge(self, client: QuotaClient, partitions: int, now_ms: int, *, strict: bool) -> int:
        """Count a change; return how long to wait. A strict one that has to wait is not counted."""
        bound = self.limits.bound_of(client)
        if bound is None:
            return 0
        bucket = self._ledger.use(bound.sharers, now_ms)
        if strict:
            wait_ms = bucket.wait_ms(bound.limit, now_ms, self._windows)
            if wait_ms == 0:
                bucket.take(partitions, bound.limit, now_ms, self._windows)
            return wait_ms
        bucket.take(partitions, bound.limit, now_ms, self._windows)
        return bucket.wait_ms(bound.limit, now_ms, self._windows)


class ConnectionQuota:
    """The quota on new connections of one address."""

    __slots__ = ("_default", "_ledger", "_limits", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        self._ledger: Ledger[str, SampledRate] = Ledger(SampledRate)

    def __len__(self) -> int:
        return len(self._limits) + (self._default is not None)

    def put(self, address: str | None, limit: float | None) -> None:
        """Set or remove the limit of an address; the address None stands for all others."""
        if address is None:
            self._default = limit
        elif limit is None:
            self._limits.pop(_canonical(address), None)
        else:
            self._limits[_canonical(address)] = limit

    def charge(self, address: str, now_ms: int) -> int:
        """Count a connection; how long to hold it when it is one too many, which is not counted."""
        counted = _canonical(address)
        limit = self._limits.get(counted)
        if limit is None:
            counted, limit = host_of(address), self._default
        if limit is None:
            return 0
        rate = self._ledger.use(counted, now_ms)
        wait_ms = rate.charge(1, limit, now_ms, self._windows)
        if wait_ms > 0:
            rate.record(-1, now_ms, self._windows)
        return min(wait_ms, self._windows.size_ms)


class Quotas:
    """All quotas of one broker."""

    def __init__(
        self,
        clock: Clock | None = None,
        windows: Windows | None = None,
        controller_windows: Windows | None = None,
    ) -> None:
        windows = windows or Windows()
        self._clock: Clock = clock or SystemClock()
        self.is_active = False
        """Whether a request has to be metered: whether any client quota is set."""
        self.holds_connections = False
        """Whether a new connection has to be counted."""
        self.produce = RateQuota(windows)
        self.fetch = RateQuota(windows)
        # Time that was used cannot be taken back later, so no client waits longer than one window.
        self.request_time = RateQuota(windows, wait_ms_max=windows.size_ms)
        self.mutations = MutationQuota(controller_windows or Windows())
        self.connections = ConnectionQuota(windows)
        self._tables = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request_time.limits,
            CONTROLLER_MUTATION_RATE: self.mutations.limits,
        }
        self._entities: set[QuotaEntity] = set()
        self._throttled = dict.fromkeys(ALL_QUOTAS, 0)
        self._throttled_ms = dict.fromkeys(ALL_QUOTAS, 0)

    def put(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Set the quotas of an entity, replacing earlier ones. They are in force at once."""
        if quotas:
            self._entities.add(entity)
        else:
            self._entities.discard(entity)
        if entity.has(IP):
            self.connections.put(entity.name(IP), quotas.get(CONNECTION_CREATION_RATE))
        else:
            key = (entity.name(USER), entity.name(CLIENT_ID))
            for name in CLIENT_KINDS:
                self._tables[name].put(key, quotas.get(name))
        self.is_active = any(len(table) for table in self._tables.values())
        self.holds_connections = len(self.connections) > 0

    def seconds(self) -> float:
        """The time by which use is measured."""
        return self._clock.monotonic()

    def now_ms(self) -> int:
        """The time by which windows begin and end."""
        return int(self._clock.monotonic() * 1000)

    def charge_time(self, client: QuotaClient, seconds: float) -> int:
        """Count time of the broker's thread; how many milliseconds to wait."""
        return self.request_time.charge(client, seconds * _PERCENT_OF_A_SECOND, self.now_ms())

    def record_time(self, client: QuotaClient, seconds: float) -> None:
        """Count time that was used after it was known how long to wait."""
        self.request_time.record(client, seconds * _PERCENT_OF_A_SECOND, self.now_ms())

    def fetch_bytes_max(self, client: QuotaClient) -> int:
        """The most bytes that one fetch may return: more would have to wait for ever."""
        amount = self.fetch.amount_max(client)
        return _NO_LIMIT_BYTES if amount is None else int(min(amount, _NO_LIMIT_BYTES))

    def hold_ms(self, address: str) -> int:
        """How long a new connection is held before it is closed; 0 for one that is accepted."""
        wait_ms = self.connections.charge(address, self.now_ms())
        if wait_ms:
            self.throttled(CONNECTION_CREATION_RATE, wait_ms)
        return wait_ms

    def throttled(self, quota: str, wait_ms: int) -> None:
        """Count a client that has to wait."""
        self._throttled[quota] += 1
        self._throttled_ms[quota] += wait_ms

    def register(self, metrics: Registry) -> None:
        """Register metrics of the quotas set and of the clients that had to wait."""

        def counts() -> Iterable[Row]:
            return [Row((quota,), count) for quota, count in self._throttled.items()]

        def seconds() -> Iterable[Row]:
            return [Row((quota,), ms / 1000) for quota, ms in self._throttled_ms.items()]

        labels = ("quota",)
        metrics.family(
            "throttled_total",
            Family("Requests and connections that were throttled.", labels, counts),
        )
        metrics.family(
            "throttle_seconds_total",
            Family("Sum of the throttle times of clients.", labels, seconds),
        )
        metrics.gauge(
            "quota_entities", "Users, client ids and addresses with quotas.", self._count_entities
        )

    def _count_entities(self) -> float:
        return len(self._entities)


def _canonical(address: str) -> str:
    """One way to write an address: IPv6 has many, and a peer's may carry its interface.

    A socket for both versions reports IPv4 addresses as IPv6.
    """
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed if parsed.ipv4_mapped is None else parsed.ipv4_mapped)
