"""`penstock log`: inspect the files of a log, without a broker.

`dump` reads, checks and prints a segment or an index. It works on a copy and on the files of a
running broker, whose last batch may be half written. It writes nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli import exits
from penstock.cli.log.segment_dump import (
    Batch,
    Damage,
    IndexEntry,
    walk_offset_index,
    walk_segment,
    walk_time_index,
)
from penstock.cli.log.text import batch_document, batch_line, record_document, record_line
from penstock.cli.options import examples, json_option
from penstock.cli.output import json_line, note
from penstock.core.errors import PenstockError

Found = Batch | IndexEntry | Damage


class UnknownFileError(PenstockError):
    """A file that is neither a segment nor an index."""


@click.group(
    short_help="Look into log files on disk.",
    epilog=examples("penstock log dump penstock-data/orders-0/00000000000000000000.log"),
)
def log() -> None:
    """Look into log files on disk; no broker is needed."""


@log.command(
    short_help="Show and check the batches of a segment or the entries of an index.",
    epilog=examples(
        "penstock log dump penstock-data/orders-0/00000000000000000000.log",
        "penstock log dump --quiet penstock-data/orders-0/*.log",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(dir_okay=False, exists=True))
@click.option("--batches", "only_batches", is_flag=True, help="Leave out the records.")
@click.option("--quiet", is_flag=True, help="Only damage and the last line of each file.")
@json_option("Print one JSON document a line.")
@click.pass_context
def dump(
    context: click.Context,
    paths: tuple[str, ...],
    only_batches: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Show and check segments (.log) and indexes (.index, .timeindex).

    Each batch's checksum and records are verified. Exit code 1 when a file is damaged.
    """
    damaged = False
    for path in paths:
        tally = _Tally(path)
        for found in _walk(path):
            tally.add(found)
            if isinstance(found, Damage) or not quiet:
                _show(path, found, as_json=as_json, with_records=not only_batches)
        damaged = damaged or tally.damages > 0
        click.echo(json_line(tally.document()) if as_json else tally.line())
    if damaged:
        note("penstock: damage was found; the lines above say where.")
        context.exit(exits.FAILED)


def _walk(path: str) -> Iterator[Found]:
    suffix = Path(path).suffix
    if suffix == ".log":
        yield from _walk_file(path)
    elif suffix == ".index":
        yield from walk_offset_index(Path(path).read_bytes(), _base_offset(path))
    elif suffix == ".timeindex":
        yield from walk_time_index(Path(path).read_bytes(), _base_offset(path))
    else:
        raise UnknownFileError(
            f"{path} is no file that can be shown. Give a .log, .index or .timeindex file."
        )


def _walk_file(path: str) -> Iterator[Batch | Damage]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield from walk_segment(
            lambda position, count: os.pread(descriptor, count, position),
            os.fstat(descriptor).st_size,
        )
    finally:
        os.close(descriptor)


def _base_offset(path: str) -> int:
    stem = Path(path).stem
    return int(stem) if stem.isdecimal() else 0


class _Tally:
    """The counts of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.batches = 0
        self.records = 0
        self.entries = 0
        self.damages = 0

    def add(self, found: Found) -> None:
        if isinstance(found, Batch):
            self.batches += 1
            self.records += len(found.records)
        elif isinstance(found, IndexEntry):
            self.entries += 1
        else:
            self.damages += 1

    def document(self) -> dict[str, object]:
        return {
            "type": "summary",
            "file": self.path,
            "batches": self.batches,
            "records": self.records,
            "entries": self.entries,
            "damages": self.damages,
        }

    def line(self) -> str:
        counts = (
            f"{self.batches} batches, {self.records} records"
            if self.path.endswith(".log")
            else f"{self.entries} entries"
        )
        verdict = f"{self.damages} damaged" if self.damages else "no damage"
        return f"{self.path}: {counts}, {verdict}"


def _show(path: str, found: Found, *, as_json: bool, with_records: bool) -> None:
    if isinstance(found, Batch):
        _show_batch(found, as_json=as_json, with_records=with_records)
        return
    if isinstance(found, Damage):
        document: dict[str, object] = {
            "type": "damage",
            "file": path,
            "position": found.position,
            "reason": found.reason,
        }
        text = f"DAMAGE at byte {found.position}: {found.reason}"
    else:
        name = "timestamp_ms" if path.endswith(".timeindex") else "position"
        document = {"type": "entry", "offset": found.offset, name: found.value}
        text = f"offset {found.offset}  {name} {found.value}"
    click.echo(json_line(document) if as_json else text)


def _show_batch(found: Batch, *, as_json: bool, with_records: bool) -> None:
    click.echo(json_line(batch_document(found)) if as_json else batch_line(found))
    if not with_records:
        return
    for record in found.records:
        click.echo(json_line(record_document(record)) if as_json else record_line(record))
