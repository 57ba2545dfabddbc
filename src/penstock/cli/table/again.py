"""`penstock table backfill` and `maintain`: work on a table outside its pipeline.

Both can run while the pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from penstock.cli import exits
from penstock.cli.extras import extras_named
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json, print_table
from penstock.cli.table.spark_options import SparkWish, chosen_session, spark_options
from penstock.cli.text.pipeline_words import errors_of_definition
from penstock.client.records.positions import AT_TIMESTAMP, EARLIEST, LATEST, parse_start
from penstock.core.errors import InvalidRequestError
from penstock.core.quantities import count_text, size_text

if TYPE_CHECKING:
    from penstock.spark.tables.run.backfill import BackfillDone

_NAMES: Final = {"starting": "--from", "ending": "--to"}
"""By the prefix of the source's options."""
_OPTION: Final = re.compile(r"\b(starting|ending)(?:Offsets|Timestamp|OffsetsByTimestamp)\b")


@click.command(
    short_help="Write records from before a pipeline's first offset.",
    epilog=examples(
        "penstock table backfill orders.toml --from earliest --to latest",
        "penstock table backfill orders.toml --from 2024-05-01T00:00:00Z --to 2024-06-01T00:00:00Z",
    ),
)
@click.argument("file", metavar="FILE")
@click.option(
    "--from",
    "start",
    default=EARLIEST,
    show_default=True,
    metavar="POSITION",
    help="earliest, an ISO time, @ and milliseconds since 1970, or offsets in JSON.",
)
@click.option(
    "--to",
    "end",
    default=LATEST,
    show_default=True,
    metavar="POSITION",
    help="The same, or latest; it ends at the pipeline's first offset in any case.",
)
@spark_options
@json_option()
def backfill(
    file: str,
    start: str,
    end: str,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Write records of FILE's topics from before its pipeline's first offset.

    Offsets in JSON are {"topic": {"0": 42}}. An interrupted backfill continues when it is started
    again with the same positions.
    """
    words = (position_word(start, "--from"), position_word(end, "--to"))
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.pipeline_runs import session_of
        from penstock.spark.tables.run.backfill import backfill as run_backfill
        from penstock.spark.tables.run.backfill import require_possible

    with errors_of_definition(file):
        loaded = load_pipeline(file)
        with words_blamed():
            require_possible(loaded.definition, *words)
    note("starts Spark")
    with (
        errors_of_definition(file),
        words_blamed(),
        chosen_session(SparkWish(master, settings, log)) as choice,
        session_of(loaded, choice) as spark,
    ):
        done = run_backfill(
            loaded.definition,
            spark,
            start=words[0],
            end=words[1],
            transform=loaded.transform,
            on_commit=lambda now: note(backfill_line(now)),
        )
    if as_json:
        print_json(
            {
                "pipeline": done.pipeline,
                "table": loaded.definition.table.name,
                "commits": done.commits,
                "records": done.records,
                "rows": done.rows,
                "rejects": done.rejects,
            }
        )
    else:
        click.echo(
            f"{done.pipeline}: {count_text(done.commits, 'commit')}, "
            f"{count_text(done.records, 'record')}: {count_text(done.rows, 'row')} in "
            f"{loaded.definition.table.name}, {count_text(done.rejects, 'reject')}"
        )


def backfill_line(done: BackfillDone) -> str:
    """Return the progress of a backfill as a line."""
    return (
        f"{done.pipeline}  commit {done.commits:,} of {done.portions:,}  "
        f"{count_text(done.records, 'record')}  {count_text(done.rows, 'row')}  "
        f"{count_text(done.rejects, 'reject')}"
    )


@contextmanager
def words_blamed() -> Iterator[None]:
    """Rename the source's options in errors to the options of the command line."""
    from penstock.spark.errors import OptionError

    try:
        yield
    except OptionError as error:
        option = error.option.lower()
        named = next((_NAMES[one] for one in _NAMES if option.startswith(one)), None)
        if named is None:
            raise
        text = _OPTION.sub(lambda found: _NAMES[found[1]], f"{error.problem} {error.remedy}")
        raise click.BadParameter(text, param_hint=named) from error


def position_word(text: str, option: str = "--from") -> str:
    """Return a position in the format of a backfill, where a time is milliseconds."""
    if text.startswith("{"):
        return text
    if text.lstrip("-").isdecimal():
        raise click.BadParameter(
            f"{text} could be an offset or a time. Write offsets of partitions in JSON, "
            '{"orders": {"0": ' + text + "}}, or a time as @" + text + ".",
            param_hint=option,
        )
    try:
        found = parse_start(text)
    except InvalidRequestError as error:
        edge = EARLIEST if option == "--from" else LATEST
        raise click.BadParameter(
            f"{text!r} names no position. Use {edge}, an ISO time such as 2024-05-01T12:00:00Z, "
            '@ and milliseconds since 1970, or offsets in JSON, {"orders": {"0": 42}}.',
            param_hint=option,
        ) from error
    return str(found.value) if found.kind == AT_TIMESTAMP else found.kind


@click.command(
    short_help="Compact, expire and clean up now.",
    epilog=examples("penstock table maintain orders.toml"),
)
@click.argument("file", metavar="FILE")
@json_option()
def maintain(file: str, as_json: bool) -> int:
    """Put small files of FILE's tables together, expire old snapshots, remove orphaned files.

    A running pipeline does this by itself. The exit code is 1 when something could not be done.
    """
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.tables.run.maintenance_now import maintain_now

    with errors_of_definition(file):
        done = maintain_now(load_pipeline(file).definition)
    if as_json:
        print_json(
            [
                {
                    "table": name,
                    "compacted_files": one.compacted_files,
                    "written_files": one.written_files,
                    "expired_snapshots": one.expired_snapshots,
                    "removed_orphans": one.removed_orphans,
                    "files": one.live_files,
                    "file_bytes": one.live_bytes,
                    "duration_ms": round(one.duration_ms),
                    "problem": one.problem or None,
                }
                for name, one in done
            ]
        )
    else:
        print_table(
            ["table", "compacted", "into", "expired", "orphans", "files", "size", "problem"],
            [
                [
                    name,
                    one.compacted_files,
                    one.written_files,
                    one.expired_snapshots,
                    one.removed_orphans,
                    one.live_files,
                    size_text(one.live_bytes),
                    one.problem or None,
                ]
                for name, one in done
            ],
            folds="problem",
        )
    return exits.FAILED if any(one.problem for _, one in done) else exits.DONE
