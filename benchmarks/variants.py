"""Who is compared: a broker together with what it promises when it acknowledges. Data only."""

import dataclasses

Values = dict[str, float]
"""What one run measured, by name; the unit is the end of the name."""


@dataclasses.dataclass(frozen=True, order=True)
class Variant:
    """A broker with its promise: acknowledged from memory, or from disk."""

    broker: str
    durable: bool

    def __str__(self) -> str:
        return f"{self.broker} {'durable' if self.durable else 'unsynced'}"


KAFKA_UNSYNCED = Variant("kafka", durable=False)
KAFKA_DURABLE = Variant("kafka", durable=True)
PENSTOCK_UNSYNCED = Variant("penstock", durable=False)
PENSTOCK_DURABLE = Variant("penstock", durable=True)
