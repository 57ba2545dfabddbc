"""Tables of other owners for the contract suite: how one is created, written to and read back.

A `Contract` describes a table that Spark creates and Penstock's required behaviour. `committed`
writes every writable table: two batches with a compaction in between.
"""

import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.spark.tables.formats.opening import open_table
from tests.oracle.spark_jars import delta_jars, iceberg_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.foreign_world import ForeignWorld

HERE = Path(__file__).parent
SECONDS_MAX = 400
PLAIN = "id bigint, amount double"
MODES = ("append", "upsert")
IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED", "16"))
SAMPLE_COUNT = 1
"""Tables of each format that a sample takes, of those that are written and of those that are
refused; each is two tables, for appends and for upserts."""
Row = tuple[int, float | None]


@dataclass(frozen=True)
class Contract:
    """A table of Spark, and the required outcome."""

    columns: str = PLAIN
    properties: str = ""
    clause: str = ""
    """What follows the columns: partitions or a clustering."""
    after: Sequence[str] = ()
    """Statements about the table `{t}` once it is there."""
    held: Sequence[Row] = ()
    """The rows that it has then."""
    refused: str = ""
    """The feature that is named; empty: it is written."""
    refuses_upserts: str = ""
    rejected: Sequence[int] = ()
    """Offsets of `COME` that break a rule of the table."""
    is_late: bool = False
    """The refusal comes with the first batch: the pipeline has taken the table by then."""
    schema: str = PLAIN
    """The columns of values."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More of the definition's section of the table."""
    upserts: str = ""
    """The way of upserts, for tables that are upserted into."""
    where: str = ""
    """A condition that the rows of `COME` meet, and no others."""
    unread: Sequence[str] = ()
    """Engines that cannot read the table, whoever wrote to it."""

    def reason(self, mode: str) -> str:
        """Why a pipeline of this mode is refused; empty: it is not."""
        return self.refused or (self.refuses_upserts if mode == "upsert" else "")


CITY = "Zü rich/=%20:+#"
TIME = "2026-01-31T23:30:00Z"
COME: Sequence[Mapping[str, Any]] = (
    {"id": 5, "amount": 55.0, "city": CITY, "at": TIME},
    {"id": 100, "amount": -1.0, "city": CITY, "at": TIME},
    {"id": 101, "city": CITY, "at": TIME},
)
"""The rows of the first batch: a key that some tables have, a number below 0, no number."""


def sampled(contracts: Mapping[str, Contract], always: Sequence[str] = ()) -> dict[str, Contract]:
    """All of them in a proof; otherwise `always` and a few that the seed chooses."""
    if IS_PROOF:
        return dict(contracts)
    chance, names = random.Random(SEED), set(always)
    for is_refused in (False, True):
        others = [name for name, one in contracts.items() if bool(one.refused) == is_refused]
        names.update(chance.sample(sorted(set(others) - names), SAMPLE_COUNT))
    return {name: one for name, one in contracts.items() if name in names}


def spark_app(app: str, *words: str, job: object) -> None:
    """Run a script with Spark and the jars of both formats."""
    jars = ",".join(str(jar) for jar in (*delta_jars("4.1"), *iceberg_jars()))
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


def statements(table: str, format_: str, one: Contract) -> list[str]:
    """What creates this table in Spark."""
    properties = f" TBLPROPERTIES ({one.properties})" if one.properties else ""
    first = f"CREATE TABLE {table} ({one.columns}) USING {format_} {one.clause}{properties}"
    return [first, *(text.format(t=table) for text in one.after)]


def committed(world: ForeignWorld, contract: Contract) -> list[Row]:
    """Two batches with a compaction in between; what must be in the table."""
    pipeline = world.start()
    pipeline.commit(*COME, keys=[{"id": one["id"]} for one in COME])
    come = [one for n, one in enumerate(COME) if n not in contract.rejected]
    rows = [*contract.held, *((int(one["id"]), one.get("amount")) for one in come)]
    if world.mode == "upsert":
        rows = list({key: (key, amount) for key, amount in rows}.values())
    settings = world.definition.table
    table = open_table(settings, settings.name)
    table.compact(table.load(), target_bytes=2**20)
    if world.mode == "append":
        pipeline.commit({"id": 102, "amount": 2.0})
        return sorted([*rows, (102, 2.0)], key=repr)
    pipeline.commit({"id": 102, "amount": 2.0}, None, keys=[{"id": 102}, {"id": 5}])
    return sorted([*(one for one in rows if one[0] != 5), (102, 2.0)], key=repr)
