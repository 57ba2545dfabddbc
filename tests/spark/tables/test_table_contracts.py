"""Tables that Spark created, with all it can ask of a writer: written right or refused by name.

Spark creates the tables and fills some. A pipeline of ours appends to or upserts into each, its
files are compacted, and more rows come. Then Spark, DuckDB and the library of the format read every
row back, and Spark the changes of Delta's change data feed.

CI runs a seeded sample; `make proof` runs all of them (PENSTOCK_PROOF=1). PENSTOCK_SEED chooses a
sample. The quick half needs no Spark: `test_delta_protocol`, `test_delta_features` and
`test_iceberg_contract`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.core.errors import PenstockError
from tests.spark.tables import delta_contracts, iceberg_contracts
from tests.spark.tables.contract_world import (
    COME,
    MODES,
    Contract,
    Row,
    committed,
    sampled,
    spark_app,
    statements,
)
from tests.spark.tables.foreign_world import ForeignWorld

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.timeout(900)]

CONTRACTS = {
    "delta": sampled(delta_contracts.CONTRACTS, ["check", "change_feed"]),
    "iceberg": sampled(
        iceberg_contracts.CONTRACTS,
        ["required_2", "comments", "by_text", "file_deletes_and_merge_on_read"],
    ),
}
LIBRARY = {"delta": "deltalake", "iceberg": "pyiceberg"}
Key = tuple[str, str, str]
"""Format, contract and mode."""
Worlds = Mapping[Key, ForeignWorld]
Expected = Mapping[Key, list[Row] | Exception]
Read = Mapping[str, Mapping[str, Any]]
"""Rows by engine and by table; a text is the error of the engine."""
ALL = [
    (format_, name, mode)
    for format_, contracts in CONTRACTS.items()
    for name in contracts
    for mode in MODES
]


def contract_of(key: Key) -> Contract:
    return CONTRACTS[key[0]][key[1]]


REFUSED = [key for key in ALL if contract_of(key).reason(key[2])]
WRITTEN = [key for key in ALL if key not in REFUSED]
RULES = [
    (format_, name, mode) for format_, name, mode in WRITTEN if CONTRACTS[format_][name].rejected
]
FILTERED = [key for key in WRITTEN if contract_of(key).where]
READ = [
    (key, engine)
    for key in WRITTEN
    for engine in ("spark", "duckdb", LIBRARY[key[0]])
    if engine not in contract_of(key).unread
]


def world_of(folder: Path, key: Key) -> ForeignWorld:
    """Delta tables have a warehouse each, Iceberg tables share a catalog."""
    format_, name, mode = key
    one = contract_of(key)
    if format_ == "delta":
        place, table = folder / f"{name}_{mode}", "shop.orders"
    else:
        place, table = folder, f"{name}_{mode}.orders"
    upserts = {"upserts": one.upserts} if one.upserts and mode == "upsert" else {}
    return ForeignWorld(place, one.schema, mode, format_, table, {**one.settings, **upserts})


def table_in_spark(world: ForeignWorld) -> str:
    return f"delta.`{world.table}`" if world.format == "delta" else f"default.{world.name}"


def catalog_of(folder: Path) -> dict[str, str]:
    return {"database": f"{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contracts")


@pytest.fixture(scope="module")
def worlds(folder: Path) -> Worlds:
    """Every table twice, for appends and for upserts, as Spark has created it."""
    found = {key: world_of(folder, key) for key in ALL}
    job = []
    for key, world in found.items():
        if world.format == "iceberg":
            job.append(f"CREATE NAMESPACE default.{world.name.split('.')[0]}")
        job += statements(table_in_spark(world), world.format, contract_of(key))
    spark_app(
        "contract_app.py",
        str(folder / "created"),
        job={"statements": job, "catalog": catalog_of(folder)},
    )
    return found


def state_of(world: ForeignWorld) -> list[str]:
    """The files of the table's metadata."""
    log = world.table / ("_delta_log" if world.format == "delta" else "metadata")
    return sorted(one.name for one in log.iterdir())


@pytest.mark.parametrize("key", REFUSED, ids="-".join)
def test_a_table_that_cannot_be_written_right_is_refused_by_name(key: Key, worlds: Worlds) -> None:
    world = worlds[key]
    before = state_of(world)
    with pytest.raises(PenstockError, match=contract_of(key).reason(key[2])):
        committed(world, contract_of(key))
    assert contract_of(key).is_late or state_of(world) == before


@pytest.fixture(scope="module")
def expected(worlds: Worlds) -> Expected:
    """What must be in each table; a failure is that of the table's own tests."""
    found: dict[Key, list[Row] | Exception] = {}
    for key in WRITTEN:
        try:
            found[key] = committed(worlds[key], contract_of(key))
        except Exception as error:  # noqa: BLE001 - raised again by `rows_expected`
            found[key] = error
    return found


def rows_expected(expected: Expected, key: Key) -> list[Row]:
    found = expected[key]
    if isinstance(found, Exception):
        raise found
    return found


def test_all_of_them_are_counted(expected: Expected, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is one of the figures of `make proof`."""
    assert all(isinstance(one, list) for one in expected.values())
    with capsys.disabled():
        print(
            f"\ntables of other owners: {len(ALL)} by Spark, {len(WRITTEN)} of them written, "
            f"{len(REFUSED)} refused by name"
        )


def queries_for(worlds: Worlds) -> dict[str, str]:
    """What Spark is asked about the tables that were written."""
    found = {
        "-".join(key): f"SELECT id, amount FROM {table_in_spark(worlds[key])}" for key in WRITTEN
    }
    for key in FILTERED:
        query = found["-".join(key)]
        found["-".join(("filtered", *key))] = f"{query} WHERE {contract_of(key).where}"
    for mode in MODES:
        place = worlds["delta", "change_feed", mode].table
        found[f"changes-{mode}"] = (
            f"SELECT id, amount, _change_type FROM table_changes_by_path('{place}', 2)"
        )
        found[f"comments-{mode}"] = f"DESCRIBE TABLE default.comments_{mode}.orders"
    return found


@pytest.fixture(scope="module")
def read_by(worlds: Worlds, expected: Expected, folder: Path) -> Read:
    """What each engine reads of each table that was written."""
    assert set(expected) == set(WRITTEN)
    read: dict[str, dict[str, Any]] = {name: {} for name in ("spark", "duckdb", *LIBRARY.values())}
    queries = queries_for(worlds)
    job = {"queries": queries, "catalog": catalog_of(folder)}
    spark_app("contract_app.py", str(folder / "read"), job=job)
    for name in queries:
        read["spark"][name] = by_spark(folder / "read" / f"{name}.json")
    jobs = []
    for key in WRITTEN:
        found, location = by_library(worlds[key], is_read=(key, LIBRARY[key[0]]) in READ)
        read[LIBRARY[key[0]]]["-".join(key)] = found
        if (key, "duckdb") in READ:
            jobs.append({"name": "-".join(key), "format": key[0], "location": location})
    spark_app("engine_app.py", str(folder / "duckdb"), "duckdb", job=jobs)
    for one in jobs:
        with pa.memory_map(str(folder / "duckdb" / f"{one['name']}.arrow")) as source:
            read["duckdb"][one["name"]] = pairs_in(pa.ipc.open_file(source).read_all())
    return read


def by_spark(place: Path) -> object:
    rows = json.loads(place.read_text())
    return (
        rows if isinstance(rows, str) else sorted((tuple(one.values()) for one in rows), key=repr)
    )


def by_library(world: ForeignWorld, *, is_read: bool) -> tuple[list[Row], str]:
    """The rows by the library of the format, and where another engine finds the table."""
    if world.format == "delta":
        return pairs_in(pa.table(DeltaTable(world.table).scan().read_all())), str(world.table)
    with load_catalog("default", **dict(world.definition.table.catalog)) as catalog:
        table = catalog.load_table(world.name)
        rows = pairs_in(table.scan().to_arrow()) if is_read else []
        return rows, table.metadata_location.removeprefix("file://")


def pairs_in(table: pa.Table) -> list[Row]:
    return list(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("key", "engine"), READ, ids=["-".join((*key, engine)) for key, engine in READ]
)
def test_every_engine_reads_what_was_written(
    key: Key, engine: str, read_by: Read, expected: Expected
) -> None:
    wanted = rows_expected(expected, key)
    found = read_by[engine]["-".join(key)]
    assert not isinstance(found, str), found
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("key", FILTERED, ids="-".join)
def test_a_filter_by_partitions_and_bounds_finds_what_was_written(
    key: Key, read_by: Read, expected: Expected
) -> None:
    rows_expected(expected, key)
    come = {one["id"]: (one["id"], one.get("amount")) for one in COME}
    if key[2] == "upsert":
        del come[5]  # deleted by the second batch
    found = read_by["spark"]["-".join(("filtered", *key))]
    assert found == sorted(come.values(), key=repr)


@pytest.mark.parametrize("key", RULES, ids="-".join)
def test_rows_that_break_a_rule_are_bad_records(
    key: Key, worlds: Worlds, expected: Expected
) -> None:
    assert rows_expected(expected, key)
    assert [one[0] for one in worlds[key].rejects()] == list(contract_of(key).rejected)


def test_an_upsert_writes_the_change_feed(read_by: Read) -> None:
    """And a compaction is no change."""
    assert read_by["spark"]["changes-append"] == sorted(
        [
            (5, 55.0, "insert"),
            (100, -1.0, "insert"),
            (101, None, "insert"),
            (102, 2.0, "insert"),
        ],
        key=repr,
    )
    assert read_by["spark"]["changes-upsert"] == sorted(
        [
            (5, 5.0, "update_preimage"),
            (5, 55.0, "update_postimage"),
            (100, -1.0, "insert"),
            (101, None, "insert"),
            (102, 2.0, "insert"),
            (5, 55.0, "delete"),
        ],
        key=repr,
    )


@pytest.mark.parametrize("mode", MODES)
def test_comments_of_columns_stay(mode: str, read_by: Read) -> None:
    """Penstock adds its own column to the schema, which must not touch the others."""
    found = {one[0]: one[2] for one in read_by["spark"][f"comments-{mode}"]}
    assert (found["id"], found["amount"]) == ("the key", "in CHF")
    assert "_kafka" in found
