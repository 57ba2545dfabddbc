"""Speed of parsing values to columns on one core: `python -m benchmarks.table_values`.

Values are JSON of about 200 bytes, in batches as the decoder passes them to a task. All parsers of
them return the same eight columns; the lines of other formats have the values of `table_kinds`. Two
parsers are not Penstock's and are measured for comparison: DuckDB's `from_json` alone, which
converts fractions to integers, and pyarrow's reader, which fails a batch for one bad record. Time
is the CPU time of the process; the best of several rounds is printed.
"""

import argparse
import functools
import io
import json
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.json

from benchmarks.table_kinds import (
    AVRO_SCHEMA,
    KINDS,
    NESTED_SCHEMA,
    PROTOBUF_FILE,
    PROTOBUF_MESSAGE,
    SCHEMA_ID,
)
from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.avro.values import avro_registry_values
from penstock.spark.tables.values.database import answer_of, new_database, registered
from penstock.spark.tables.values.json.shape import structure
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.parser import ValueParser
from penstock.spark.tables.values.protobuf.values import protobuf_file_values
from penstock.spark.tables.values.registry import RegisteredSchema

NOW = 1_700_000_000_000
BATCH_ROWS = 32_768
DDL = (
    "id bigint, user string, action string, page string, price double, time bigint, "
    "session string, agent string"
)


def value(number: int, *, is_bad: bool = False, is_cut: bool = False) -> bytes:
    """Return a click event; a bad one has a text as its price, a cut one has no end."""
    content = {
        "id": number,
        "user": f"user-{number % 1000:06d}",
        "action": "click",
        "page": f"/products/{number % 5000}",
        "price": f"free {number}" if is_bad else number % 997 / 10,
        "time": NOW + number,
        "session": f"{number * 2654435761 % 2**32:08x}",
        "agent": "Mozilla/5.0 (X11; Linux x86_64)",
    }
    text = json.dumps(content).encode()
    return text[:-20] if is_cut else text


def batches(count: int, bad_every: int = 0, cut_every: int = 0) -> list[pa.Array]:
    """Return values in columns; one in `bad_every` is bad, one in `cut_every` is cut."""
    values = [
        value(
            number,
            is_bad=bad_every > 0 and number % bad_every == 0,
            is_cut=cut_every > 0 and number % cut_every == 0,
        )
        for number in range(count)
    ]
    return [
        pa.array(values[start : start + BATCH_ROWS], pa.binary())
        for start in range(0, count, BATCH_ROWS)
    ]


def ours(given: list[pa.Array]) -> int:
    """The parser of the pipelines."""
    parser = JsonValues(parse_ddl(DDL))
    return sum(parser.parse(values).rows.num_rows for values in given)


def other_parsers() -> Mapping[str, ValueParser]:
    """The parsers of the pipelines for other formats."""
    schema = RegisteredSchema(SCHEMA_ID, "AVRO", AVRO_SCHEMA)
    registry = SimpleNamespace(by_id=lambda _: schema)
    files = {"event.proto": PROTOBUF_FILE}
    return {
        "nested": JsonValues(parse_ddl(NESTED_SCHEMA)),
        "avro": avro_registry_values(registry),
        "protobuf": protobuf_file_values(files, "event.proto", PROTOBUF_MESSAGE, "event.proto"),
    }


def parsed_by(parser: ValueParser, given: list[pa.Array]) -> int:
    """Parse with this parser."""
    return sum(parser.parse(values).rows.num_rows for values in given)


def duckdb_alone(given: list[pa.Array]) -> int:
    """DuckDB's own reading, without a check."""
    database = new_database()
    shape = json.dumps({field.name: structure(field.type) for field in parse_ddl(DDL)})
    rows = 0
    for values in given:
        table = pa.table({"value": values.cast(pa.string())})
        with registered(database, "input", table):
            query = f"SELECT from_json(value, '{shape}') AS parsed FROM input"
            rows += answer_of(database, query).num_rows
    return rows


def pyarrow_alone(given: list[pa.Array]) -> int:
    """The reader of pyarrow, over lines."""
    options = pyarrow.json.ParseOptions(
        explicit_schema=parse_ddl(DDL), unexpected_field_behavior="ignore"
    )
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=2**26)
    rows = 0
    for values in given:
        lines = b"\n".join(values.to_pylist())
        rows += pyarrow.json.read_json(io.BytesIO(lines), reading, options).num_rows
    return rows


def measured(name: str, work: Callable[[], int], count: int, rounds: int) -> None:
    """Print the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    print(f"{name:<42} {count / best / 1e6:6.2f} M values/s   {best / count * 1e9:6.0f} ns each")


def main() -> None:
    """Measure all."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--values", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    count, rounds = chosen.values, chosen.rounds
    clean, bad, cut = batches(count), batches(count, 100), batches(count, cut_every=100)
    size = sum(values.nbytes for values in clean) / count
    print(f"{count} values of {size:.0f} bytes, {BATCH_ROWS} in a batch, one core")
    measured("penstock", lambda: ours(clean), count, rounds)
    measured("penstock, 1 % with a text for a price", lambda: ours(bad), count, rounds)
    measured("penstock, 1 % cut", lambda: ours(cut), count, rounds)
    for kind, parser in other_parsers().items():
        given = [pa.array(KINDS[kind].values(BATCH_ROWS), pa.binary())] * (count // BATCH_ROWS)
        work = functools.partial(parsed_by, parser, given)
        measured(f"penstock, {KINDS[kind].text}", work, len(given) * BATCH_ROWS, rounds)
    measured("duckdb from_json alone, unchecked", lambda: duckdb_alone(clean), count, rounds)
    measured("pyarrow.json, all or nothing", lambda: pyarrow_alone(clean), count, rounds)


if __name__ == "__main__":
    main()
