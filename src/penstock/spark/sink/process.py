"""State that a process keeps between tasks and commits: connections, drivers, decisions.

Spark's Python processes serve many tasks. Opening connections and reading decisions for each task
would cost more than a small micro-batch. All entries may be dropped at any time: their number is
bounded, the oldest entry is evicted first, and a new process reads them again. Nothing is shared
between processes, and one thread of a process uses this state.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transactions.producer_transactions import ProducerTransactions
from penstock.client.transport.options import ClientOptions
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.steps import Ledger
from penstock.spark.sink.transactions import RunIdentity, SinkDriver, check_start, look_first

KEPT_MAX: Final = 16
"""More queries than this do not share a process in practice."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """The newest values, by key."""

    def __init__(self, forget: Callable[[Value], None] = lambda _: None) -> None:
        self._values: dict[Key, Value] = {}
        self._forget = forget

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key; create it if it is not kept."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > KEPT_MAX:
                self._forget(self._values.pop(next(iter(self._values))))
        return self._values[key]

    def clear(self) -> None:
        """Drop all values."""
        while self._values:
            self._forget(self._values.popitem()[1])


_clusters: Kept[ClientOptions, Cluster] = Kept(Cluster.close)
_drivers: Kept[tuple[SinkOptions, RunIdentity], SinkDriver] = Kept()
_ledgers: Kept[tuple[SinkOptions, RunIdentity], Ledger] = Kept()
_transactions: Kept[tuple[SinkOptions, RunIdentity], ProducerTransactions] = Kept()
_checks: Kept[SinkOptions, bool] = Kept()


def cluster_of(options: ClientOptions) -> Cluster:
    """Return the cluster of these options, with its open connections."""
    return _clusters.get(options, lambda: open_cluster(options))


def driver_of(options: SinkOptions, identity: RunIdentity) -> SinkDriver:
    """Return the driver's part of this run."""
    return _drivers.get(
        (options, identity), lambda: SinkDriver(cluster_of(options.client), options, identity)
    )


def transactions_of(options: SinkOptions, identity: RunIdentity) -> ProducerTransactions:
    """Return the client that begins transactions for tasks of this run; it caches coordinators."""
    return _transactions.get(
        (options, identity), lambda: ProducerTransactions(cluster_of(options.client))
    )


def ledger_of(options: SinkOptions, identity: RunIdentity, *, finishes: bool) -> Ledger:
    """Return the query's decisions at the time of this process's first task of the run.

    This is enough for a task: later decisions belong to this run itself.
    """
    return _ledgers.get(
        (options, identity),
        lambda: look_first(cluster_of(options.client), options, identity, finishes=finishes),
    )


def check_once(options: SinkOptions) -> None:
    """Run the checks before the first row; repeat them only if the options change."""

    def check() -> bool:
        check_start(cluster_of(options.client), options)
        return True

    _checks.get(options, check)


def close_all() -> None:
    """Drop everything, and close the connections."""
    for kept in (_drivers, _ledgers, _transactions, _checks, _clusters):
        kept.clear()
