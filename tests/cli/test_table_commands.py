"""`penstock table` without Spark: the output of check, status, bad records and maintenance."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
import pyarrow as pa
import pytest

from penstock.cli.table.again import backfill_line, position_word
from penstock.cli.table.spark_options import parse_settings
from penstock.cli.table.text import print_bad_records
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitCounts,
    LostRange,
    PartitionRange,
)
from penstock.spark.tables.formats.opening import make_table
from penstock.spark.tables.inspection.bad_records import BadRecord
from penstock.spark.tables.run.backfill import BackfillDone
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.replay import ReplayDone
from penstock.testing import Broker
from tests.cli.conftest import Penstock
from tests.spark.tables.inspection_world import VALUES, World, fill_tables, fill_topic, new_world

PYTHON = """
from penstock.spark.pipelines import expect, pipeline

GIVEN = dict(
    bootstrap_servers="{bootstrap}",
    checkpoint="{folder}/checkpoint",
    source={{"topics": ["orders"]}},
    table={{"format": "delta", "name": "shop.orders", "catalog": {{"warehouse": "{folder}/w"}}}},
    value={{"format": "json", "schema": "id bigint, amount double"}},
)

@pipeline(name="one", **GIVEN)
@expect("positive", "amount > 0")
def one(rows):
    return rows

@pipeline(name="two", **GIVEN)
def two(rows):
    return rows
"""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


@pytest.fixture
def world(bootstrap: str, tmp_path: Path) -> World:
    return new_world(tmp_path, bootstrap, "iceberg")


def test_check(penstock: Penstock, world: World) -> None:
    done = penstock("table", "check", str(world.file))
    assert done.code == 0
    lines = done.output.splitlines()
    assert lines[0].split()[:3] == ["ok", "broker", "1"]
    assert any(line.startswith("ok      mode") and "in_task" in line for line in lines)
    assert any(line.split()[:2] == ["id", "amount"] for line in lines)
    assert any("type_mismatch" in line for line in lines)
    document = json.loads(penstock("table", "check", str(world.file), "--json").output)
    assert document["ok"]
    assert document["mode"] == "in_task"
    assert document["sample"]["records"] == len(VALUES)


def test_a_check_that_fails(penstock: Penstock, world: World) -> None:
    world.file.write_text(world.file.read_text().replace('topics = ["orders"]', 'topics = ["x"]'))
    done = penstock("table", "check", str(world.file))
    assert done.code == 1
    assert "failed  topics" in done.output
    world.file.write_text("[pipeline]\nnam = 1")
    done = penstock("table", "check", str(world.file))
    assert done.code == 1
    assert "failed  definition" in done.output


def test_status(penstock: Penstock, world: World) -> None:
    missing = penstock("table", "status", str(world.file))
    assert missing.code == 1
    assert "there is no table 'shop.orders'" in missing.errors
    fill_tables(world, end=4)
    done = penstock("table", "status", str(world.file))
    assert (done.code, done.errors) == (0, "")
    assert "pipeline orders: epoch 1, 2 commits" in done.output
    assert "1 row, 2 rejects, positive_amount broken by 1" in done.output
    assert done.output.splitlines()[-1].split() == ["orders", "1", "1"]
    every = penstock("table", "status", str(world.file), "--partitions").output
    assert every.splitlines()[-1].split() == ["orders", "0", "0", "4", "5", "1"]
    document = json.loads(penstock("table", "status", str(world.file), "--json").output)
    assert document["bad_records"] == 2
    assert document["pipelines"][0]["lag"] == 1


def test_words_stay_whole_on_a_narrow_terminal(
    penstock: Penstock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_tables(world)
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        for words in (["status"], ["check"], ["dlq", "list"]):
            drawn = penstock("table", *words, str(world.file), "--color").output
            for word in ("shop.orders",) if words == ["status"] else ("orders", "type_mismatch"):
                assert f" {word} " in drawn


def test_a_status_shows_replays_and_backfills_with_their_pipeline(
    penstock: Penstock, world: World
) -> None:
    fill_tables(world)
    table = make_table(world.definition.table, world.definition.table.name, pa.schema([]))
    for name in ("orders.replay", "orders.backfill-0123456789ab", "second"):
        TableCommitter(table, name, "run").take()
    lines = penstock("table", "status", str(world.file)).output.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("pipeline ")] == [
        "pipeline orders",
        "pipeline second",
    ]
    assert "replays: 1 commit" in lines
    assert "backfills: 1, 1 commit" in lines
    document = json.loads(penstock("table", "status", str(world.file), "--json").output)
    assert len(document["pipelines"]) == 4
    assert isinstance(document["version"], str)


def test_a_status_shows_what_was_lost(penstock: Penstock, world: World) -> None:
    """With `failOnDataLoss=false` a loss was in no place where an operator looks."""
    fill_tables(world, end=4)
    assert "lost" not in penstock("table", "status", str(world.file)).output
    table = make_table(world.definition.table, world.definition.table.name, pa.schema([]))
    committer = TableCommitter(table, "orders", "second")
    committer.take()
    ranges = BatchRanges((PartitionRange("orders", 0, 9, 12),))
    lost = (LostRange("orders", 0, 10, 11),)
    offered = Offer(committer.driver, ranges, allows_gaps=True, lost=lost, at_ms=1_700_000_000_000)
    committer.commit(offered, ())
    lines = penstock("table", "status", str(world.file)).output.splitlines()
    assert "lost: 6 offsets, gone from the topic before they were read" in lines
    assert "  orders-0: offsets 4 to 8, at 2023-11-14T22:13:20.000Z" in lines
    document = json.loads(penstock("table", "status", str(world.file), "--json").output)
    (pipeline,) = document["pipelines"]
    assert (pipeline["lost_offsets"], pipeline["partitions"][0]["lost_offsets"]) == (6, 6)
    assert pipeline["losses"][1]["to_offset"] == 11


def test_a_status_shows_columns_that_became_empty(penstock: Penstock, world: World) -> None:
    """A renamed field emptied its column, and no operator saw it."""
    fill_tables(world, end=4)
    assert "NULL" not in penstock("table", "status", str(world.file)).output
    table = make_table(world.definition.table, world.definition.table.name, pa.schema([]))
    committer = TableCommitter(table, "orders", "second")
    committer.take()
    for start, empty in ((4, {"city": False}), (6, {"city": False, "amount": False})):
        ranges = BatchRanges((PartitionRange("orders", 0, start, start + 2),))
        counts = CommitCounts(1_500, empty_columns=empty)
        committer.commit(Offer(committer.driver, ranges, counts), ())
    lines = penstock("table", "status", str(world.file)).output.splitlines()
    assert "columns that had values and are NULL in the last rows: amount (1,500 rows)" in lines
    document = json.loads(penstock("table", "status", str(world.file), "--json").output)
    assert document["pipelines"][0]["emptied_columns"] == {"amount": 1_500}


def test_forget_asks_and_names_what_is_there(penstock: Penstock, world: World) -> None:
    fill_tables(world)
    refused = penstock("table", "forget", str(world.file))
    assert refused.code == 2
    assert "--yes" in refused.errors
    unknown = penstock("table", "forget", str(world.file), "order", "--yes")
    assert unknown.code == 1
    assert "Did you mean 'orders'?" in unknown.errors
    done = penstock("table", "forget", str(world.file), "--yes")
    assert done.output == "orders forgotten by shop.orders and shop.orders__dlq\n"
    assert "pipeline orders" not in penstock("table", "status", str(world.file)).output
    again = penstock("table", "forget", str(world.file), "orders", "--yes", "--json")
    assert json.loads(again.output) == {"pipeline": "orders", "tables": []}


def test_rows_before_a_function_are_called_so(
    penstock: Penstock, bootstrap: str, tmp_path: Path
) -> None:
    file = tmp_path / "orders.py"
    file.write_text(PYTHON.format(bootstrap=bootstrap, folder=tmp_path))
    done = penstock("table", "check", f"{file}:one").output
    assert "rows before the function; Spark is not started for a check" in done
    assert re.search(r"\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z", done)


def test_bad_records_of_two_pipelines_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    one = BadRecord("orders", 0, 1, 1_000, "malformed", "no JSON", None, "orders", 1)
    print_bad_records([one, replace(one, pipeline="orders.replay")])
    assert "pipeline" not in capsys.readouterr().out
    print_bad_records([one, replace(one, pipeline="second")])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["pipeline", "orders", "second"]


def test_bad_records(penstock: Penstock, world: World) -> None:
    fill_tables(world)
    file = str(world.file)
    listed = penstock("table", "dlq", "list", file, "--limit", "1")
    assert listed.output.splitlines()[1].split()[:3] == ["orders", "0", "2"]
    assert "1 of 2 records" in listed.errors
    none = penstock("table", "dlq", "list", file, "--topic", "x").output
    assert none == "no such records in shop.orders__dlq\n"
    only = penstock("table", "dlq", "list", file, "--error-class", "malformed", "--json").output
    assert [one["offset"] for one in json.loads(only)] == [3]
    shown = penstock("table", "dlq", "show", file, "orders", "0", "3").output
    assert shown.splitlines()[1:] == [
        "attempt 1 by orders: malformed: reason 3",
        "key:       key",
        "header:    h=1",
        "value:     no JSON",
    ]
    whole = json.loads(penstock("table", "dlq", "show", file, "orders", "0", "3", "--json").output)
    assert whole[0]["value"] == "no JSON"
    gone = penstock("table", "dlq", "show", file, "orders", "0", "99")
    assert gone.code == 1
    assert "dlq list" in gone.errors


def test_a_pipeline_in_python(penstock: Penstock, bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(PYTHON.format(bootstrap=bootstrap, folder=tmp_path))
    done = penstock("table", "check", str(file))
    assert done.code == 1
    assert f"Name one: {file}:one or {file}:two" in done.output
    done = penstock("table", "check", f"{file}:one")
    assert done.code == 0, done.output
    assert "dataframe: rows pass through a function" in done.output
    assert "no pipeline 'three'" in penstock("table", "check", f"{file}:three").output
    file.write_text("x = 1")
    assert "it makes no pipeline" in penstock("table", "check", str(file)).output


BAD_PYTHON = [
    ("def f(:", "line 1: SyntaxError: "),
    ("\nimport nopackage", "line 2: ModuleNotFoundError: No module named 'nopackage'"),
    (
        "from penstock.spark.pipelines import pipeline\n@pipeline(valeu={})\ndef f(r): return r",
        "line 2: TypeError: ",
    ),
]


@pytest.mark.parametrize(("text", "problem"), BAD_PYTHON)
def test_a_python_file_that_fails_is_told_by_its_line(
    penstock: Penstock, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "orders.py"
    file.write_text(text)
    for words in (["run"], ["status"], ["check"]):
        done = penstock("table", *words, str(file))
        told = done.output + done.errors
        assert f"{file}, {problem}" in told
        assert "Traceback" not in told
        assert done.code == (1 if words == ["check"] else 2)


def change(world: World, old: str, new: str) -> str:
    text = world.file.read_text()
    assert old in text
    world.file.write_text(text.replace(old, new))
    return str(world.file)


def refused(penstock: Penstock, *words: str) -> tuple[int, str]:
    done = penstock("table", *words)
    assert "Traceback" not in done.errors
    return done.code, done.errors


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.spark.pipeline_runs.open_session", lambda *_, **__: pytest.fail("Spark started")
    )


@pytest.mark.usefixtures("no_spark")
def test_a_run_that_cannot_work_ends_before_spark(penstock: Penstock, world: World) -> None:
    file = change(world, 'topics = ["orders"]', 'topics = ["odrers"]')
    code, text = refused(penstock, "run", file)
    assert code == 1
    assert f"{file}, key 'source.topics': there is no topic 'odrers'. Did you mean 'orders'" in text


@pytest.mark.usefixtures("no_spark")
def test_wrong_settings_have_the_code_of_wrong_settings(penstock: Penstock, world: World) -> None:
    file = change(world, "amount > 0", "amunt > 0")
    code, text = refused(penstock, "run", file, "--once")
    assert (code, "key 'expectations[0].sql'" in text) == (2, True)
    world.file.write_text("[pipeline]\nnam = 1")
    assert refused(penstock, "run", file)[0] == 2
    assert refused(penstock, "run", "nowhere.toml")[0] == 2
    assert "or of a .py file" in refused(penstock, "status", "nowhere.toml")[1]


@pytest.mark.usefixtures("no_spark")
def test_a_broker_that_is_down_is_told_with_the_key(penstock: Penstock, world: World) -> None:
    file = change(world, world.bootstrap, "127.0.0.1:1")
    code, text = refused(penstock, "run", file)
    assert code == 3
    assert f"correct pipeline.bootstrap_servers in {file}" in text
    assert "--bootstrap-server" not in text


def test_a_catalog_that_cannot_be_opened_is_one_line(
    penstock: Penstock, world: World, tmp_path: Path
) -> None:
    file = change(world, f"{tmp_path}/catalog.db", f"{tmp_path}/nodir/x.db")
    for words in (["status"], ["dlq", "list"]):
        code, text = refused(penstock, *words, file)
        assert code == 1
        assert text.count("\n") == 1
        assert f"there is no catalog at {tmp_path}/nodir/x.db" in text
    code, text = refused(penstock, "run", file)
    assert code == 1
    assert text.count("\n") == 1
    assert f"{file}, key 'table.catalog.uri'" in text
    assert "Create the folder, or correct it." in penstock("table", "check", file).output


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["backfill", "--from", "latest"], "--from: a batch cannot start at the latest"),
        (["backfill", "--from", "{bad"], "--from: '{bad' is not JSON"),
        (["backfill", "--to", "yesterday"], "--to: 'yesterday' names no position. Use latest, an"),
        (["backfill", "--from", "@9", "--to", "@5"], "--from: it is 9, which is after --to, 5"),
        (["dlq", "replay", "--from", "100", "--to", "50"], "--from 100 is not before --to 50"),
    ],
)
def test_wrong_positions_are_told_before_spark(
    penstock: Penstock, world: World, words: list[str], told: str
) -> None:
    code, text = refused(penstock, *words, str(world.file))
    assert code == 2
    assert told in text


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("words", [["backfill"], ["dlq", "replay"]])
def test_upserts_are_refused_before_spark(
    penstock: Penstock, world: World, words: list[str]
) -> None:
    file = change(world, "[table]", '[table]\nmode = "upsert"\nkey = ["id"]')
    code, text = refused(penstock, *words, file)
    assert code == 1
    assert "is written by upserts" in text


def test_a_missing_extra_is_named(
    penstock: Penstock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("penstock.spark.tables.inspection")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "penstock.spark.tables.rules.sql", raising=False)
    monkeypatch.delitem(sys.modules, "penstock.spark.tables.rules.planner", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = penstock("table", "check", str(world.file))
    assert done.code == 1
    assert "pip install 'penstock[spark,iceberg]'" in done.errors
    assert "duckdb" in done.errors


def test_care(penstock: Penstock, world: World) -> None:
    fill_tables(world)
    done = penstock("table", "maintain", str(world.file))
    assert done.code == 0
    rows = [line.split() for line in done.output.splitlines()]
    assert [row[0] for row in rows] == ["table", "shop.orders", "shop.orders__dlq"]
    document = json.loads(penstock("table", "maintain", str(world.file), "--json").output)
    assert [one["files"] for one in document] == [1, 1]
    assert document[0]["problem"] is None
    after = json.loads(penstock("table", "status", str(world.file), "--json").output)
    assert after["pipelines"][0]["epoch"] == 1  # no driver was fenced


def test_a_backfill_says_how_far_it_is() -> None:
    done = BackfillDone("orders.backfill-1", 2, 2_000, 1_990, 10, portions=3)
    assert backfill_line(done) == (
        "orders.backfill-1  commit 2 of 3  2,000 records  1,990 rows  10 rejects"
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("@1500", "1500"),
        ("1970-01-01T00:00:02Z", "2000"),
        ('{"orders": {"0": 4}}', '{"orders": {"0": 4}}'),
    ],
)
def test_positions_of_a_backfill(text: str, word: str) -> None:
    assert position_word(text) == word


@pytest.mark.parametrize("text", ["42", "-3"])
def test_a_bare_number_is_no_position_of_a_backfill(text: str) -> None:
    with pytest.raises(click.UsageError, match="could be an offset or a time"):
        position_word(text)


def test_settings_of_spark() -> None:
    assert parse_settings(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
    with pytest.raises(click.UsageError, match="NAME=VALUE"):
        parse_settings(["spark.x"])


@pytest.mark.parametrize("words", [[], ["--anew"]])
def test_a_replay_takes_tables_as_they_are_only_when_told(
    penstock: Penstock, world: World, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    asked: list[bool] = []

    def put_in(*_: object, anew: bool, **__: object) -> ReplayDone:
        asked.append(anew)
        return ReplayDone(2, 1, 1)

    monkeypatch.setattr("penstock.spark.tables.run.replay.replay", put_in)
    monkeypatch.setattr("penstock.spark.pipeline_runs.session_of", lambda *_: nullcontext())
    monkeypatch.setattr("penstock.cli.table.dlq.chosen_session", lambda *_: nullcontext())
    done = penstock("table", "dlq", "replay", str(world.file), *words)
    assert done.output == "2 records tried again: 1 row in shop.orders, 1 reject\n"
    assert asked == [bool(words)]


def test_a_log_that_cannot_be_written_is_told_first(penstock: Penstock, world: World) -> None:
    log = world.file.parent / "nothing" / "spark.log"
    done = penstock("table", "run", str(world.file), "--spark-log", str(log))
    assert done.code == 2
    assert f"--spark-log {log} cannot be written: No such file or directory." in done.errors
    assert "own messages" not in done.errors
