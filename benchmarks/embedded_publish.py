"""Publish in the process of the broker: the time of one call, in memory and on disk.

    python -m benchmarks.embedded_publish [--records 20000] [--json FILE]

`BrokerServer.publish()` is awaited record by record, 100 bytes each, without a socket. With storage
on disk it returns when the record is synced; with storage in memory nothing is. One program on one
event loop: the figures have no network, no other client, and no queue in them.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from penstock import BrokerServer
from penstock.core.settings.config import load_settings

VALUE: Final = bytes(100)
WARM_UP: Final = 1_000


async def measure(storage: str, records: int) -> dict[str, float]:
    """Return percentiles of one publish, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        text = f'[node]\nstorage = "{storage}"\ndata_dir = "{folder}"\n[listener]\nport = 0\n'
        settings = load_settings(text, {}, {"admin.enabled": False}).settings
        async with BrokerServer(settings) as broker:
            await broker.create_topic("t")
            seconds: list[float] = []
            for _ in range(WARM_UP + records):
                begun = time.perf_counter()
                await broker.publish("t", VALUE)
                seconds.append(time.perf_counter() - begun)
    found = sorted(seconds[WARM_UP:])
    return {
        name: round(found[min(len(found) - 1, int(len(found) * share))] * 1e6, 1)
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))
    }


def main() -> None:
    """Measure both kinds of storage and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {
        storage: asyncio.run(measure(storage, options.records)) for storage in ("memory", "disk")
    }
    for storage, figures in found.items():
        print(storage, figures)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
