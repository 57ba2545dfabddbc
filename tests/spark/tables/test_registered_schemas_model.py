"""Random Avro schemas against both formats: the pipeline never stops and no record is lost.

For each seed a producer's schemas change from batch to batch and from partition to partition, in
all ways that a registry without rules of compatibility allows. Asserted: every batch is committed;
each record is in the table or among the rejects, once; the rows are those that were sent; an id
that was accepted once is accepted always; no driver that starts in between is stopped.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.spark.tables.files.file_partitions import read_partition_fields
from tests.spark.tables.avro_schemas import BASE, Evolution, Values
from tests.spark.tables.registry_world import PARTITIONS, RegistryWorld, Shelf, on_shelf

pytestmark = pytest.mark.slow

BATCHES = 3
RECORDS = 4
"""Of a partition in a batch."""
TABLES: tuple[dict[str, Any], ...] = (
    {},
    {"partition_by": ["day(ts)"]},
    {"partition_by": ["region", "month(ts)"]},
    {"mode": "upsert", "key": ["id"]},
    {"mode": "upsert", "key": ["id"], "partition_by": ["day(ts)"]},
)
Place = tuple[int, int]


class Play:
    """One pipeline, and the records that were sent to it."""

    def __init__(self, folder: Path, format_: str, seed: int) -> None:
        self.random = Random(seed)
        self.table = TABLES[seed % len(TABLES)]
        self.shelf = Shelf()
        self.base = self.shelf.register(BASE)
        self.sent: dict[Place, tuple[int, dict[str, Any]]] = {}
        self.order: list[Place] = []
        """As the batches were: within one the partitions in turn."""
        self.known = {self.base: BASE}
        self.taken = {self.base}
        with on_shelf(self.shelf):
            self.world = RegistryWorld(folder, format_, self.shelf, self.table)
            evolution = Evolution(self.random)
            for _ in range(BATCHES):
                for _ in range(self.random.randrange(1, 4)):
                    schema = evolution.next()
                    self.known[self.shelf.register(schema)] = schema
                self._send()
                self.world.batch()
                self._check()
                if self.random.random() < 0.3:
                    self.world.start()

    def _send(self) -> None:
        for partition in range(PARTITIONS):
            for schema_id in self.random.choices(list(self.known), k=RECORDS):
                try:
                    body, shown = Values(self.random, self.known[schema_id]).next()
                except (ValueError, TypeError, KeyError, OverflowError):
                    continue  # no Avro, so that no producer sends it
                self.order.append((partition, len(self.world.topic[partition])))
                self.sent[self.order[-1]] = (schema_id, shown)
                self.world.send(partition, schema_id, body)

    def _check(self) -> None:
        rows = self.world.world.rows().to_pylist()
        held = {(one["_kafka"]["partition"], one["_kafka"]["offset"]): one for one in rows}
        assert len(held) == len(rows), "a record is there twice"
        bad = self.world.world.rejected()
        assert len(set(bad)) == len(bad), "a reject is there twice"
        assert not set(bad) & set(held), "a record is a row and a reject"
        if "key" in self.table:
            assert set(held) == self._last_of_keys(set(bad))
        else:
            assert {*held, *bad} == set(self.sent)
        fields = read_partition_fields(self.table.get("partition_by", []))
        for place, row in held.items():
            schema_id, shown = self.sent[place]
            self.taken.add(schema_id)
            mine = {name: row[name] for name in row if not name.startswith("_")}
            made = {one.name for one in fields if one.name != one.column}
            assert same(shown, {name: mine[name] for name in mine if name not in made})
        self._check_reasons()

    def _last_of_keys(self, bad: set[Place]) -> set[Place]:
        last: dict[int, Place] = {}
        for place in self.order:
            if place not in bad:
                last[self.sent[place][1]["id"]] = place
        return set(last.values())

    def _check_reasons(self) -> None:
        for one in self.world.world.rejects().to_pylist():
            assert one["message"]
            if one["error_class"] == "incompatible_schema":
                assert one["schema_id"] not in self.taken, one["message"]


def same(shown: Any, found: Any) -> bool:  # noqa: ANN401 - any value
    """Whether the table shows this; rows and structs may have fields that were not sent."""
    if isinstance(shown, dict) and isinstance(found, dict):
        return all(same(shown.get(name), found[name]) for name in found) and set(shown) <= set(
            found
        )
    if shown is None and found == []:
        return True  # pyiceberg shows a null list of structs so, and a null map
    if isinstance(shown, dict):
        pairs = dict(found or [])
        return set(pairs) == set(shown) and all(same(shown[name], pairs[name]) for name in pairs)
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(same, shown, found))
    return bool(shown == found) and (shown is None) == (found is None)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(5))
def test_no_schema_stops_a_pipeline(tmp_path: Path, format_: str, seed: int) -> None:
    Play(tmp_path, format_, seed)
