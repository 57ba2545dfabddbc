"""The compared brokers, each with the durability of its acknowledgements. Data only."""

import dataclasses

Values = dict[str, float]
"""The figures of one run, by name; the unit is the end of the name."""


@dataclasses.dataclass(frozen=True, order=True)
class Variant:
    """A broker whose acknowledgements mean: written to memory, or to disk."""

    broker: str
    durable: bool

    def __str__(self) -> str:
        return f"{self.broker} {'durable' if self.durable else 'unsynced'}"


KAFKA_UNSYNCED = Variant("kafka", durable=False)
KAFKA_DURABLE = Variant("kafka", durable=True)
PENSTOCK_UNSYNCED = Variant("penstock", durable=False)
PENSTOCK_DURABLE = Variant("penstock", durable=True)
