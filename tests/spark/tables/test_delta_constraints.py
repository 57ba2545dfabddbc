"""CHECK constraints, invariants and NOT NULL of a Delta table are kept, without Spark.

Guards defects C2 and C3: an append wrote rows that broke a CHECK, and in upsert mode one such row
stopped the pipeline for good, after 20 attempts with a wrong reason.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.formats.delta.protocol import DeltaProtocol
from penstock.spark.tables.formats.delta.rules import constraints_key, constraints_of
from penstock.spark.tables.formats.port import TableRefusedError
from penstock.spark.tables.rules.planner import choose_mode
from tests.spark.tables.foreign_delta import PLAIN, column, create_foreign, protocol_of
from tests.spark.tables.foreign_world import ForeignWorld

MODES = ("append", "upsert")
CHECK = {"delta.constraints.pos": "amount > 0"}
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "amount > 0"}})}


def made(
    folder: Path, mode: str = "append", schema: str = "id bigint, amount double"
) -> ForeignWorld:
    return ForeignWorld(folder, schema, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_breaks_a_check_is_a_reject_with_its_name(tmp_path: Path, mode: str) -> None:
    world = made(tmp_path, mode)
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN, properties=CHECK)
    pipeline = world.start()
    pipeline.commit({"id": 1, "amount": 5.0}, {"id": 2, "amount": -5.0}, {"id": 3})
    pipeline.commit({"id": 4, "amount": 1.0})
    assert world.rows("id", "amount") == [(1, 5.0), (4, 1.0)]
    reason = "CHECK pos: amount > 0"
    assert world.rejects() == [(1, "constraint", reason), (2, "constraint", reason)]


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_breaks_an_invariant_is_a_reject(tmp_path: Path, mode: str) -> None:
    world = made(tmp_path, mode)
    fields = [column("id"), column("amount", "double", INVARIANT)]
    create_foreign(world.table, protocol_of(writer=2), fields=fields)
    world.start().commit({"id": 1, "amount": 5.0}, {"id": 2, "amount": -5.0}, {"id": 3})
    assert world.rows("id") == [(1,)]
    reason = "INVARIANT amount: amount > 0"
    assert world.rejects() == [(1, "constraint", reason), (2, "constraint", reason)]


@pytest.mark.parametrize("mode", MODES)
def test_a_row_without_a_required_value_is_a_reject(tmp_path: Path, mode: str) -> None:
    world = made(tmp_path, mode)
    fields = [column("id"), column("amount", "double", nullable=False)]
    create_foreign(world.table, protocol_of(writer=2), fields=fields)
    world.start().commit({"id": 1, "amount": 5.0}, {"id": 2})
    assert world.rows("id") == [(1,)]
    assert world.rejects() == [(1, "missing_value", "NOT NULL amount: the column has no value")]
    (required,) = [one for one in DeltaTable(world.table).schema().fields if one.name == "amount"]
    assert not required.nullable


def test_a_required_column_that_values_never_have_is_refused(tmp_path: Path) -> None:
    world = made(tmp_path)
    fields = [*PLAIN, column("city", "string", nullable=False)]
    create_foreign(world.table, protocol_of(writer=2), fields=fields)
    with pytest.raises(SchemaError, match="'city' is required"):
        world.start()


def test_a_text_longer_than_its_column_is_a_reject(tmp_path: Path) -> None:
    world = made(tmp_path, schema="id bigint, name string")
    named = column("name", "string", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})
    create_foreign(world.table, protocol_of(writer=2), fields=[column("id"), named])
    world.start().commit({"id": 1, "name": "abc"}, {"id": 2, "name": "abcd"}, {"id": 3})
    assert world.rows("id") == [(1,), (3,)]
    assert [one[0] for one in world.rejects()] == [1]


def test_a_check_about_a_column_that_values_do_not_have(tmp_path: Path) -> None:
    """It is NULL in every row, so a check of it breaks and `city IS NULL` does not."""
    world = made(tmp_path)
    fields = [*PLAIN, column("city", "string")]
    properties = {"delta.constraints.nowhere": "city IS NULL OR city <> 'x'"}
    create_foreign(world.table, protocol_of(writer=3), fields=fields, properties=properties)
    world.start().commit({"id": 1, "amount": 5.0})
    assert world.rows("id") == [(1,)]


def test_a_number_is_judged_as_wide_as_the_table_has_it(tmp_path: Path) -> None:
    """As an int it would overflow, which is no answer, and the row would be a reject."""
    world = made(tmp_path, schema="id bigint, amount int")
    fields = [column("id"), column("amount", "long")]
    properties = {"delta.constraints.big": "amount * 2 > 0"}
    create_foreign(world.table, protocol_of(writer=3), fields=fields, properties=properties)
    world.start().commit({"id": 1, "amount": 2_000_000_000})
    assert world.rows("id", "amount") == [(1, 2_000_000_000)]


def test_a_deletion_is_asked_no_rule(tmp_path: Path) -> None:
    world = made(tmp_path, "upsert")
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN, properties=CHECK)
    pipeline = world.start()
    pipeline.commit({"id": 1, "amount": 5.0}, {"id": 2, "amount": 5.0}, keys=[{"id": 1}, {"id": 2}])
    pipeline.commit(None, keys=[{"id": 1}])
    assert world.rows("id") == [(2,)]


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_that_is_added_while_it_runs_is_kept_from_the_next_commit(
    tmp_path: Path, mode: str
) -> None:
    """Also by files that were written before it was there."""
    world = made(tmp_path, mode)
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN)
    pipeline = world.start()
    pipeline.commit({"id": 1, "amount": 5.0})
    commit = pipeline.write({"id": 2, "amount": -5.0}, {"id": 3, "amount": 5.0})
    DeltaTable(world.table).alter.add_constraint({"pos": "amount > 0"})
    commit()
    pipeline.commit({"id": 4, "amount": -1.0})
    assert world.rows("id") == [(1,), (3,)]
    assert [one[0] for one in world.rejects()] == [1, 3]
    DeltaTable(world.table).alter.drop_constraint("pos")
    pipeline.commit({"id": 5, "amount": -1.0}, {"id": 6, "amount": 1.0})
    assert world.rows("id") == [(1,), (3,), (5,), (6,)]
    assert [one[0] for one in world.rejects()] == [1, 3]


def test_one_that_only_spark_evaluates_stops_a_pipeline_that_runs_by_its_name(
    tmp_path: Path,
) -> None:
    world = made(tmp_path)
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN)
    pipeline = world.start()
    commit = pipeline.write({"id": 2, "amount": -5.0})
    table = DeltaTable(world.table)
    table.alter.set_table_properties(
        {"delta.constraints.half": "amount / 2 > 0"}, raise_if_not_exists=False
    )
    with pytest.raises(SchemaError, match="'CHECK half'"):
        commit()
    assert world.rows("id") == []


def test_one_that_only_spark_evaluates_chooses_the_mode(tmp_path: Path) -> None:
    world = made(tmp_path)
    rules = constraints_of(protocol(properties={"delta.constraints.half": "amount / 2 > 0"}))
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.float64())])
    with pytest.raises(Exception, match="the table's constraint 'CHECK half'"):
        choose_mode(world.definition, has_transform=False, columns=columns, constraints=rules)


def test_an_upsert_that_deltalake_cannot_check_is_refused_by_the_constraints_name(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, "upsert")
    properties = {"delta.constraints.word": "cast(id AS string) RLIKE '^[0-9]+$'"}
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN, properties=properties)
    with pytest.raises(TableRefusedError, match=r"\(CHECK word\)"):
        world.start()


def test_rows_of_the_table_that_break_its_constraint_are_told_as_that(tmp_path: Path) -> None:
    """They stop an upsert of the same file, with the row and what to do, at the first attempt."""
    world = made(tmp_path, "upsert")
    create_foreign(world.table, protocol_of(writer=3), fields=PLAIN)
    write_deltalake(world.table, pa.table({"id": [1, 2], "amount": [-1.0, 1.0]}), mode="append")
    DeltaTable(world.table).alter.set_table_properties(CHECK, raise_if_not_exists=False)
    with pytest.raises(TableRefusedError, match="Correct or delete these rows"):
        world.start().commit({"id": 2, "amount": 3.0})


# --- The rules themselves ---


def protocol(**changes: Any) -> DeltaProtocol:  # noqa: ANN401
    return replace(DeltaProtocol(1, 3, frozenset(), {}, PLAIN), **changes)


def test_the_key_changes_with_every_rule() -> None:
    invariant = [column("id"), column("amount", "double", INVARIANT)]
    required = [column("id"), column("amount", "double", nullable=False)]
    found = [
        constraints_key(one)
        for one in (
            protocol(),
            protocol(properties=CHECK),
            protocol(properties={"delta.constraints.pos": "amount > 1"}),
            protocol(properties={"delta.constraints.neg": "amount > 0"}),
            protocol(fields=invariant),
            protocol(fields=required),
        )
    ]
    assert found[0] == ""
    assert len(set(found)) == len(found)


def test_an_invariant_that_cannot_be_read_is_still_a_rule() -> None:
    """Nobody can evaluate it, so the table is refused by its name and not written unchecked."""
    fields = [column("id", "long", {"delta.invariants": "not JSON"})]
    (rule,) = constraints_of(protocol(fields=fields))
    assert (rule.name, rule.sql) == ("INVARIANT id", "not JSON")
