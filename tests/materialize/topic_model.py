"""A plain reference: the rows of a compacted topic, from all of its records.

It knows nothing of SQLite: a dictionary for each partition. The tests compare the file with it.
"""

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.positions import EARLIEST, Start
from penstock.client.records.topic_reader import TopicReader
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions

ROOT = Path(__file__).resolve().parents[2]

Rows = dict[tuple[bytes, int], tuple[bytes, int]]
"""(key, partition) to (value, offset)."""


class Event(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def compacted(events: Iterable[Event]) -> Rows:
    rows: Rows = {}
    for partition, offset, key, value in events:
        if key is None:
            continue
        if value is None:
            rows.pop((key, partition), None)
        else:
            rows[key, partition] = (value, offset)
    return rows


def stored_rows(path: Path, table: str) -> Rows:
    with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as connection:
        found = connection.execute(f'SELECT "key", "partition", "value", "offset" FROM "{table}"')
        rows = {
            (encoded(key), partition): (encoded(value), offset)
            for key, partition, value, offset in found
        }
    connection.close()
    return rows


def stored_positions(path: Path, topic: str) -> dict[int, int]:
    with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as connection:
        found = dict(
            connection.execute(
                'SELECT "partition", next_offset FROM penstock_positions NATURAL JOIN '
                "(SELECT topic, generation FROM penstock_topics) WHERE topic = ?",
                (topic,),
            ).fetchall()
        )
    connection.close()
    return found


def encoded(column: str | bytes) -> bytes:
    return column.encode() if isinstance(column, str) else column


def cluster_at(bootstrap: str) -> Cluster:
    options = ClientOptions(tuple(parse_addresses(bootstrap)), retry_timeout_ms=5_000)
    return open_cluster(options)


def topic_events(bootstrap: str, topic: str) -> list[Event]:
    """All records of a topic without transactions, as a plain reader returns them."""
    with cluster_at(bootstrap) as cluster:
        reader = TopicReader(cluster, cluster.partitions_of(topic), Start(EARLIEST))
        return [Event(one.partition, one.offset, one.key, one.value) for one in reader.records()]


def environment(folder: Path) -> dict[str, str]:
    """Without Hypothesis, which users do not have: the schemas register with it for seconds."""
    hidden = folder / "modules"
    hidden.mkdir(exist_ok=True)
    (hidden / "hypothesis.py").write_text('raise ImportError("not for this process")\n')
    paths = [str(hidden), str(ROOT / "src"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
