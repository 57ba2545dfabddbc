"""Delta tables that Spark created, with every feature it can set: written right or refused by name.

Spark creates the tables and fills some. A pipeline of ours appends to or upserts into each, its
files are compacted, and more rows come. Then Spark, DuckDB and `deltalake` read every row back, and
Spark the changes of the change data feed. `make spark` runs it; `test_delta_protocol` is the part
that every check runs, with tables whose log is written by hand.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.opening import open_table
from penstock.spark.tables.port import TableMovedError, TableRefusedError
from tests.oracle.spark_jars import delta_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.foreign_world import ForeignWorld
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SECONDS_MAX = 400
ROUNDS_MAX = 60
PLAIN = "id bigint, amount double"
FILLED = ("INSERT INTO {t} SELECT id, id * 1.0 FROM range(0, 10, 1, 1)",)
DELETED = (*FILLED, "DELETE FROM {t} WHERE id IN (2, 3)")
HELD = [(n, float(n)) for n in range(10)]
Row = tuple[int, float | None]
Read = Mapping[str, Mapping[str, list[Any]]]
"""Rows by engine and by table."""


@dataclass(frozen=True)
class Contract:
    """A table of Spark's, and what becomes of it."""

    columns: str = PLAIN
    properties: str = ""
    after: Sequence[str] = ()
    """Statements about the table `{t}` once it is there."""
    held: Sequence[Row] = ()
    """The rows that it has then."""
    refused: str = ""
    """The feature that is named; empty: it is written."""
    refuses_upserts: str = ""
    clustered: str = ""
    rejected: Sequence[int] = ()
    """Offsets of `COME` that break a rule of the table."""


COME: Sequence[Mapping[str, Any]] = (
    {"id": 5, "amount": 55.0},
    {"id": 100, "amount": -1.0},
    {"id": 101},
)
"""What the first batch brings: a key that some tables have, a number below 0, no number."""
CONTRACTS = {
    "plain": Contract(after=FILLED, held=HELD),
    "version_5": Contract(
        properties="'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'",
        after=FILLED,
        held=HELD,
    ),
    "check": Contract(
        after=("ALTER TABLE {t} ADD CONSTRAINT pos CHECK (amount > 0)",), rejected=(1, 2)
    ),
    "not_null": Contract("id bigint, amount double NOT NULL", rejected=(2,)),
    "append_only": Contract(
        properties="'delta.appendOnly'='true'",
        after=FILLED,
        held=HELD,
        refuses_upserts="appendOnly",
    ),
    "change_feed": Contract(
        properties="'delta.enableChangeDataFeed'='true'", after=FILLED, held=HELD
    ),
    "deletion_vectors": Contract(
        properties="'delta.enableDeletionVectors'='true'",
        after=DELETED,
        held=[one for one in HELD if one[0] not in (2, 3)],
    ),
    "local_time": Contract("id bigint, amount double, at timestamp_ntz"),
    "mapping_by_name": Contract(
        properties="'delta.columnMapping.mode'='name'", refused="columnMapping"
    ),
    "mapping_by_id": Contract(
        properties="'delta.columnMapping.mode'='id'", refused="columnMapping"
    ),
    "row_tracking": Contract(properties="'delta.enableRowTracking'='true'", refused="rowTracking"),
    "generated": Contract(
        "id bigint, amount double, twice bigint GENERATED ALWAYS AS (id * 2)",
        refused="generatedColumns",
    ),
    "identity": Contract(
        "id bigint, amount double, n bigint GENERATED ALWAYS AS IDENTITY",
        refused="identityColumns",
    ),
    "checkpoints_v2": Contract(properties="'delta.checkpointPolicy'='v2'", refused="v2Checkpoint"),
    "type_widening": Contract(
        properties="'delta.enableTypeWidening'='true'", refused="typeWidening"
    ),
    "commit_timestamps": Contract(
        properties="'delta.enableInCommitTimestamps'='true'", refused="inCommitTimestamp"
    ),
    "clustered": Contract(clustered="CLUSTER BY (id)", refused="clustering"),
    "variant": Contract("id bigint, amount double, v variant", refused="variantType"),
    "default": Contract(
        "id bigint, amount double DEFAULT 7.0",
        "'delta.feature.allowColumnDefaults'='supported'",
        refused="allowColumnDefaults",
    ),
    "iceberg_compat": Contract(
        properties="'delta.enableIcebergCompatV2'='true', 'delta.columnMapping.mode'='name'",
        refused="icebergCompatV2",
    ),
}
WRITTEN = {
    f"{name}_{mode}": (name, mode)
    for name, one in CONTRACTS.items()
    for mode in ("append", "upsert")
    if not one.refused and not (mode == "upsert" and one.refuses_upserts)
}
REFUSED = [
    (name, mode)
    for name, one in CONTRACTS.items()
    for mode in ("append", "upsert")
    if one.refused or (mode == "upsert" and one.refuses_upserts)
]


def spark_app(app: str, *words: str, job: object) -> None:
    jars = ",".join(str(jar) for jar in delta_jars("4.1"))
    done = subprocess.run(
        [engine_python(), str(HERE / app), *words],
        input=json.dumps(job),
        env={**os.environ, "ENGINE_JARS": jars, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
    assert done.returncode == 0, "\n".join(lines)[-4000:]


def created(location: Path, one: Contract) -> list[str]:
    table = f"delta.`{location}`"
    properties = f" TBLPROPERTIES ({one.properties})" if one.properties else ""
    first = f"CREATE TABLE {table} ({one.columns}) USING delta {one.clustered}{properties}"
    return [first, *(text.format(t=table) for text in one.after)]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], ForeignWorld]:
    """Every table twice, for appends and for upserts, as Spark has created it."""
    folder = tmp_path_factory.mktemp("contracts")
    found = {
        (name, mode): ForeignWorld(folder / f"{name}_{mode}", PLAIN, mode)
        for name in CONTRACTS
        for mode in ("append", "upsert")
    }
    statements = [
        text for (name, _), world in found.items() for text in created(world.table, CONTRACTS[name])
    ]
    spark_app("contract_app.py", str(folder / "created"), job={"statements": statements})
    return found


@pytest.mark.parametrize(("name", "mode"), REFUSED)
def test_a_table_that_cannot_be_written_right_is_refused_by_name(
    name: str, mode: str, worlds: dict[tuple[str, str], ForeignWorld]
) -> None:
    world, contract = worlds[name, mode], CONTRACTS[name]
    entries = sorted((world.table / "_delta_log").iterdir())
    with pytest.raises(TableRefusedError, match=contract.refused or contract.refuses_upserts):
        world.start()
    assert sorted((world.table / "_delta_log").iterdir()) == entries


def brought(world: ForeignWorld, contract: Contract) -> list[Row]:
    """Two batches with a compaction in between; what must be in the table."""
    pipeline = world.start()
    pipeline.bring(*COME, keys=[{"id": one["id"]} for one in COME])
    come = [one for n, one in enumerate(COME) if n not in contract.rejected]
    rows = [*contract.held, *((int(one["id"]), one.get("amount")) for one in come)]
    if world.mode == "upsert":
        rows = list({key: (key, amount) for key, amount in rows}.values())
    settings = world.definition.table
    table = open_table(settings, settings.name)
    table.compact(table.load(), target_bytes=2**20)
    if world.mode == "append":
        pipeline.bring({"id": 102, "amount": 2.0})
        return sorted([*rows, (102, 2.0)])
    pipeline.bring({"id": 102, "amount": 2.0}, None, keys=[{"id": 102}, {"id": 5}])
    return sorted([*(one for one in rows if one[0] != 5), (102, 2.0)])


@pytest.fixture(scope="module")
def expected(worlds: dict[tuple[str, str], ForeignWorld]) -> dict[str, list[Row]]:
    return {name: brought(worlds[key], CONTRACTS[key[0]]) for name, key in WRITTEN.items()}


@pytest.fixture(scope="module")
def read_by(
    worlds: dict[tuple[str, str], ForeignWorld],
    expected: dict[str, list[Row]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Read:
    """What each engine reads of each table that was written."""
    folder = tmp_path_factory.mktemp("read")
    places = {name: worlds[key].table for name, key in WRITTEN.items()}
    queries = {name: f"SELECT id, amount FROM delta.`{one}`" for name, one in places.items()}
    for mode in ("append", "upsert"):
        place = worlds["change_feed", mode].table
        queries[f"changes_{mode}"] = (
            f"SELECT id, amount, _change_type FROM table_changes_by_path('{place}', 2)"
        )
    spark_app("contract_app.py", str(folder), job={"queries": queries})
    jobs = [{"name": name, "format": "delta", "location": str(one)} for name, one in places.items()]
    spark_app("engine_app.py", str(folder / "duckdb"), "duckdb", job=jobs)
    read: dict[str, dict[str, list[Any]]] = {"spark": {}, "duckdb": {}, "deltalake": {}}
    for name in queries:
        rows = json.loads((folder / f"{name}.json").read_text())
        read["spark"][name] = sorted((tuple(one.values()) for one in rows), key=repr)
    for name, one in places.items():
        with pa.memory_map(str(folder / "duckdb" / f"{name}.arrow")) as source:
            table = pa.ipc.open_file(source).read_all()
        read["duckdb"][name] = pairs_in(table)
        read["deltalake"][name] = pairs_in(pa.table(DeltaTable(one).scan().read_all()))
    return read


def pairs_in(table: pa.Table) -> list[Row]:
    return list(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", ["spark", "duckdb", "deltalake"])
@pytest.mark.parametrize("name", WRITTEN)
def test_every_engine_reads_what_was_written(
    name: str,
    engine: str,
    read_by: Read,
    expected: dict[str, list[Row]],
) -> None:
    assert sorted(read_by[engine][name], key=repr) == sorted(expected[name], key=repr)


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", ["check", "not_null"])
def test_rows_that_break_a_rule_are_bad_records(
    name: str,
    mode: str,
    worlds: dict[tuple[str, str], ForeignWorld],
    expected: dict[str, list[Row]],
) -> None:
    assert expected
    assert [one[0] for one in worlds[name, mode].rejects()] == list(CONTRACTS[name].rejected)


def test_an_upsert_writes_the_change_feed(read_by: Read) -> None:
    """And a compaction is no change."""
    assert read_by["spark"]["changes_append"] == sorted(
        [
            (5, 55.0, "insert"),
            (100, -1.0, "insert"),
            (101, None, "insert"),
            (102, 2.0, "insert"),
        ],
        key=repr,
    )
    assert read_by["spark"]["changes_upsert"] == sorted(
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


# --- Beside Spark ---


@pytest.fixture
def optimizing(tmp_path: Path) -> Iterator[DeltaKind]:
    """A table on which Spark runs OPTIMIZE all the time."""
    kind = DeltaKind(tmp_path, schema=SCHEMA)
    kind.create()
    folder = tmp_path / "spark"
    jars = ",".join(str(jar) for jar in delta_jars("4.1"))
    job = {"repeat": f"OPTIMIZE delta.`{kind.uri}`"}
    with subprocess.Popen(
        [engine_python(), str(HERE / "contract_app.py"), str(folder)],
        stdin=subprocess.PIPE,
        env={**os.environ, "ENGINE_JARS": jars, "PYTHONPATH": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        try:
            while not (folder / "ready").exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
                assert process.poll() is None, "Spark did not start"
            yield kind
        finally:
            (folder / "stop").touch()
            process.wait(SECONDS_MAX)


def test_no_row_is_doubled_beside_an_optimize_of_spark(optimizing: DeltaKind) -> None:
    table, caring = optimizing.open(), optimizing.open()
    driver, state = taken(table, "run-a")
    compacted, start = 0, 0
    for _ in range(ROUNDS_MAX):
        files = written(table, (0, start, start + 10))
        while True:
            try:
                state = table.append(commit_of(state, driver, (0, start, start + 10)), files)
                break
            except (TableMovedError, SparkQueryError):
                state = table.load()
        start += 10
        try:
            compacted += caring.compact(caring.load(), target_bytes=2**20).removed_count
        except TableMovedError:
            continue
        if compacted > 20:
            break
    assert compacted > 0
    folder = optimizing.folder / "spark"
    (folder / "stop").touch()
    assert offsets_in(optimizing.read()) == span(0, 0, start)
