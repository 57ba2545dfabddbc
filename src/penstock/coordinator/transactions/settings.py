"""The operator's settings of transactions, with Kafka's names and defaults.

All shards of a coordinator share one object, whose owner may change it between two events. Values
only; where they come from is NOT known here.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionSettings:
    """Limits and intervals of the transaction coordinator."""

    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms: the longest timeout that a producer may ask for."""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms: an id that rests longer is forgotten."""
    timeout_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
