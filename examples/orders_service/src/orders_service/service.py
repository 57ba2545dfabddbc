"""The service: `orders` in, totals into the ledger, `confirmations` out.

Promises:

- No order is lost. Positions are committed after the orders are in the ledger and confirmed.
- No order is counted twice, however often it is delivered: the ledger knows it.
- No order is confirmed twice because of a broker: the producer numbers what it sends and repeats
  it until it is acknowledged, and the broker knows what it has. Only if this process itself dies
  between an acknowledgement and the next line of the ledger, that confirmation is sent again.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError

from orders_service.ledger import Ledger, Order

ORDERS = "orders"
CONFIRMATIONS = "confirmations"
GROUP = "orders-service"
POLL_MS = 200

logger = logging.getLogger(__name__)


async def run_service(bootstrap_servers: str, ledger_path: Path) -> None:
    """Serve until cancelled."""
    ledger = Ledger(ledger_path)
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    try:
        async with producer, consumer:
            while True:
                await confirm(producer, ledger)
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                orders = [order for records in polled.values() for order in parse(records)]
                ledger.book(orders)
                await confirm(producer, ledger)
                if polled:
                    await commit(consumer)
    finally:
        ledger.close()


def parse(records: Sequence[ConsumerRecord]) -> list[Order]:
    """The orders in records; one that is none is logged and passed over."""
    orders = []
    for record in records:
        try:
            document = json.loads(record.value)
            orders.append(Order(document["id"], document["customer"], int(document["amount"])))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning(
                "no order at %s-%d, %d: %r", ORDERS, record.partition, record.offset, error
            )
    return orders


async def confirm(producer: AIOKafkaProducer, ledger: Ledger) -> None:
    """Send every confirmation that is owed, and note which were acknowledged."""
    owed = ledger.owed()
    sending = [
        await producer.send(CONFIRMATIONS, key=customer.encode(), value=order_id.encode())
        for order_id, customer in owed
    ]
    if sending:
        await asyncio.gather(*sending)
        ledger.confirmed([order_id for order_id, _ in owed])


async def commit(consumer: AIOKafkaConsumer) -> None:
    """Keep the positions; without that, orders come again, and the ledger knows them."""
    try:
        await consumer.commit()
    except KafkaError as error:
        logger.warning("positions were not committed, orders will come again: %r", error)
