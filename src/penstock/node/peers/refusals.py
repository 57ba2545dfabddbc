"""`Refusals`: notices that the process of a broker is gone, from refused connections. Pure.

A refused connection means that no process listens on the port. Once is not enough: a port may be
bound again in a moment. The rule: the broker's registration has accepted a connection before, and
two connections are refused within `REFUSED_WITHIN_SECONDS`. A stopped or disconnected machine does
not refuse; the end of its session in etcd counts there.

It ends no session: the controller decides, and probes the broker itself.
"""

from penstock.node.peers.peer_limits import REFUSED_WITHIN_SECONDS


class _Record:
    __slots__ = ("broker_epoch", "refused_at")

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.refused_at: float | None = None


class Refusals:
    """The refused connections of each broker."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        """By broker id, for brokers that have accepted a connection."""

    def __len__(self) -> int:
        return len(self._records)

    def worked(self, broker_id: int, broker_epoch: int) -> None:
        """A broker with this registration accepted a connection."""
        record = self._records.get(broker_id)
        if record is None or record.broker_epoch != broker_epoch:
            self._records[broker_id] = _Record(broker_epoch)
        else:
            record.refused_at = None

    def refused(self, broker_id: int, broker_epoch: int, now: float) -> bool:
        """A connection was refused; return whether that must be reported."""
        record = self._records.get(broker_id)
        if record is None or record.broker_epoch != broker_epoch:
            return False
        first, record.refused_at = record.refused_at, now
        if first is None or now - first > REFUSED_WITHIN_SECONDS:
            return False
        record.refused_at = None
        return True

    def forget(self, broker_id: int) -> None:
        """The broker is not registered any more."""
        self._records.pop(broker_id, None)
