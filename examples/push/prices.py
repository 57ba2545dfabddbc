"""Prices by push: publish five prices, receive them, stop, and continue behind the last one.

    python examples/push/prices.py 127.0.0.1 9095

The broker needs `edge.push_port` and a topic `prices`.
"""

import asyncio
import sys

from penstock.client.push import open_push

PRICES = {"apple": 120, "pear": 90, "plum": 75, "grape": 310, "cherry": 480}


async def publish(host: str, port: int) -> None:
    """Publish the prices; each call returns when its record is on disk."""
    async with await open_push(host, port) as client:
        for name, cents in PRICES.items():
            placed = await client.publish("prices", b"%d" % cents, key=name.encode())
            print(f"published {name} at offset {placed.offset}")


async def receive(host: str, port: int, count: int) -> None:
    """Receive prices as the group `shelf`; acknowledged ones do not come again."""
    async with await open_push(host, port) as client:
        subscription = await client.subscribe("prices", group="shelf")
        async for record in subscription:
            assert record.key is not None
            assert record.value is not None
            print(f"received {record.key.decode()} {int(record.value) / 100:.2f}")
            subscription.acknowledge(record)
            count -= 1
            if not count:
                break


async def main(host: str, port: int) -> None:
    """Subscribe once, so that the group has a position; then publish and receive."""
    async with await open_push(host, port) as client:
        await client.subscribe("prices", group="shelf")
    await publish(host, port)
    await receive(host, port, 3)
    print("the shelf was restarted")
    await receive(host, port, 2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
