"""Verdicts on brokers whose process is gone, before their session ends.

The controller judges. If the broker in question is the controller, or there is none, the running
broker with the lowest id does. A verdict deletes the registration under compares: if it is wrong,
the broker registers again, which costs availability and never a record. Verdicts are rare: one in
`VERDICT_SECONDS`, and never on more than a third of the brokers at a time.
"""

from typing import Final

from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import BrokerState, MetadataImage
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.link.leader_elections import Changing
from penstock.cluster.stores.port import Compare, Delete, Operation

VERDICT_SECONDS: Final = 5.0
"""Shortest time between two verdicts of one judge."""


def judge_of(image: MetadataImage, broker_id: int) -> int | None:
    """Return the broker that judges another one; None if there is none."""
    controller = image.controller
    if controller is not None and controller.broker_id != broker_id:
        return controller.broker_id
    running = [
        one.id
        for one in image.brokers.values()
        if one.state is BrokerState.RUNNING and one.id != broker_id
    ]
    return min(running, default=None)


def may_judge(image: MetadataImage, broker_id: int) -> bool:
    """Return whether a verdict leaves two thirds of all known brokers, or one of two."""
    absent = len(image.nodes.keys() - image.brokers.keys() - {broker_id})
    return absent + 1 <= max(1, len(image.nodes) // 3)


async def declare_gone(metadata: Changing, broker_id: int, epoch: int) -> bool:
    """Delete a broker's registration, and its role as the controller; return whether it was."""

    async def decide(base: ChangeBase) -> Decision[bool]:
        broker = base.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or not may_judge(base.image, broker_id):
            return Decision(None, lambda: False)
        keys, controller = base.keys, base.image.controller
        compares = [*base.guards, Compare.created_at(keys.broker(broker_id), epoch)]
        operations: list[Operation] = [Delete(keys.broker(broker_id))]
        if controller is not None and controller.broker_id == broker_id:
            compares.append(Compare.created_at(keys.controller(), controller.revision))
            operations.append(Delete(keys.controller()))
        writes = GuardedWrites(tuple(compares), tuple(operations))
        return Decision((writes,), lambda: True)

    return await metadata.carry_out("declare a broker gone", decide)
