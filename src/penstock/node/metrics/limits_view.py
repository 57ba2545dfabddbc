"""`LimitsView`: every limit of a running broker with its use, as rows and as metrics.

The rows are built on request from the parts that enforce the limits: there is no second count that
could differ. `current` and `limit` are in the row's unit. The disk's row has the used space and the
space that can be used before produce is rejected, so it reads like the other rows.

Three metrics have the same rows: `limit_used`, `limit_max` and `limit_refusals_total`, each with
the label `limit`. It decides and rejects nothing.
"""

from penstock.broker.connections.server import Listener
from penstock.broker.context import BrokerServices
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.refusals.refused_batches import RefusedBatches
from penstock.core.limit_use import LimitUse
from penstock.core.limits import PARTITIONS_PER_BROKER_MAX
from penstock.core.metrics import Family, Registry, Row
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.manager import ReplicaManager
from penstock.storage.disk.disk_guard import DiskGuard

LABELS = ("limit",)


class LimitsView:
    """The limits of one broker."""

    def __init__(
        self,
        listener: Listener,
        replicas: ReplicaManager,
        disk: DiskGuard,
        fetch_sessions: FetchSessionCache,
        refused_batches: RefusedBatches,
    ) -> None:
        self._listener = listener
        self._replicas = replicas
        self._disk = disk
        self._fetch_sessions = fetch_sessions
        self._refused_batches = refused_batches

    def rows(self) -> list[LimitUse]:
        """Return every limit now."""
        waits, sessions = self._replicas.waits, self._fetch_sessions
        return [
            *self._listener.limits(),
            LimitUse("parked_requests", len(waits), waits.parked_max, waits.refusals, "requests"),
            LimitUse(
                "parked_partitions",
                waits.fetched_partitions,
                waits.partitions_max,
                waits.partition_refusals,
                "partitions",
            ),
            LimitUse(
                "fetch_sessions",
                len(sessions),
                sessions.sessions_max,
                sessions.refusals,
                "sessions",
            ),
            LimitUse(
                "partitions", len(self._replicas), PARTITIONS_PER_BROKER_MAX, None, "partitions"
            ),
            self._disk_row(),
        ]

    def _disk_row(self) -> LimitUse:
        space = self._disk.space
        usable_bytes = space.total_bytes - self._disk.marks.refuse_below_bytes
        used_bytes = space.total_bytes - space.free_bytes
        refused = self._refused_batches.without_room
        return LimitUse("disk_used_bytes", used_bytes, usable_bytes, refused, "bytes")

    def show(self, metrics: Registry) -> None:
        """Register the rows as metrics."""

        def used() -> list[Row]:
            return [Row((row.name,), row.current) for row in self.rows() if row.current is not None]

        def most() -> list[Row]:
            return [Row((row.name,), row.limit) for row in self.rows()]

        def refused() -> list[Row]:
            return [Row((row.name,), row.refused) for row in self.rows() if row.refused is not None]

        refusals = "Requests and connections that were refused, dropped or delayed by a limit."
        metrics.family("limit_used", Family("Current use of a limit.", LABELS, used))
        metrics.family("limit_max", Family("The value of a limit.", LABELS, most))
        metrics.family("limit_refusals_total", Family(refusals, LABELS, refused))


def refused_batches_family(refused: RefusedBatches) -> Family:
    """Return the family of rejected batches, by the name of the error."""

    def read() -> list[Row]:
        return [Row((ErrorCode(code).name,), count) for code, count in refused.by_code.items()]

    return Family("Batches that were not taken, by error.", ("error",), read)


def show_limits(
    listener: Listener, services: BrokerServices, disk: DiskGuard, metrics: Registry
) -> LimitsView:
    """Show every limit to operators and as metrics."""
    refused = services.refused_batches
    view = LimitsView(listener, services.replicas, disk, services.fetch_sessions, refused)
    view.show(metrics)
    metrics.family("produce_refused_batches_total", refused_batches_family(refused))
    return view
