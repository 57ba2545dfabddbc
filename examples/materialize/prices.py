"""A shop keeps prices as a local table: a topic, `penstock materialize`, and REST queries.

Run it without arguments. It starts a broker and `penstock materialize` as processes, writes five
prices, and queries them: by key, with a filter, with SQL, and as a copy of the SQLite file. Then it
kills the process, deletes a price and changes another, starts it again, and finds exactly the
prices of the topic.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from penstock.testing import Broker

PRICES = {"tea": 4.20, "coffee": 6.50, "milk": 1.10, "bread": 2.40, "salt": 0.90}


def main() -> None:
    """Run the example in a new folder."""
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        broker.create_topic("price", partitions=1)
        for sku, price in PRICES.items():
            broker.produce("price", record(sku, price), key=sku.encode())

        service, address = started(broker, folder)
        try:
            # The last record has offset 4: wait until it is in the table.
            tea = get(f"{address}/price/tea?at_least=0:4&wait=20")
            print("tea:", tea["value"])
            assert tea["value"] == {"sku": "tea", "price": 4.2}

            cheap = get(f"{address}/price?filter=" + urllib.parse.quote("$.price < 2"))
            print("below 2:", [row["key"] for row in cheap["rows"]])
            assert [row["key"] for row in cheap["rows"]] == ["milk", "salt"]

            total = post(
                f"{address}/query",
                {"sql": "SELECT count(*), sum(value ->> '$.price') FROM price"},
            )
            print("count and sum:", total["rows"][0])
            assert total["rows"][0][0] == len(PRICES)

            copy = Path(folder) / "copy.sqlite"
            with urllib.request.urlopen(f"{address}/export.sqlite") as answer:
                copy.write_bytes(answer.read())
            assert keys_of(copy) == sorted(PRICES)
        finally:
            service.kill()  # at any moment: the file stays exact
            service.wait()

        broker.produce("price", None, key=b"salt")  # a tombstone deletes the row
        broker.produce("price", record("tea", 4.80), key=b"tea")

        service, address = started(broker, folder)
        try:
            tea = get(f"{address}/price/tea?at_least=0:6&wait=20")
            print("tea after the restart:", tea["value"])
            assert tea["value"]["price"] == 4.8
            listed = [row["key"] for row in get(f"{address}/price")["rows"]]
            assert listed == sorted(set(PRICES) - {"salt"})
        finally:
            service.terminate()
            service.wait()
    print("done")


def record(sku: str, price: float) -> bytes:
    """Return the JSON of one price."""
    return json.dumps({"sku": sku, "price": price}).encode()


def started(broker: Broker, folder: str) -> tuple[subprocess.Popen[str], str]:
    """Start `penstock materialize`; return the process and the address of its interface."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "penstock", "materialize", "price"),
            *("--bootstrap", broker.bootstrap_server, "--store", folder),
            *("--port", "0", "--index", "$.sku"),
        ],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    return process, line.split(" at ")[1].strip()


def get(url: "str | urllib.request.Request") -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON at an address."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def post(url: str, document: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    """Send JSON; return the JSON of the answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers)
    return get(request)


def keys_of(path: Path) -> list[str]:
    """Return the keys in a copy of the file."""
    connection = sqlite3.connect(path)
    found = [key for (key,) in connection.execute("SELECT key FROM price ORDER BY key")]
    connection.close()
    return found


if __name__ == "__main__":
    main()
