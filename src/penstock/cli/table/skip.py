"""`penstock table skip` and `resume-at`: move a pipeline forward, and record the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from penstock.cli.confirmation import check_can_ask, confirm, yes_option
from penstock.cli.extras import extras_named
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import blamed_on, examples, json_option
from penstock.cli.output import note, print_json
from penstock.cli.text.pipeline_words import errors_of_definition
from penstock.client.records.positions import AT_OFFSET, AT_TIMESTAMP, parse_start
from penstock.core.clock import SystemClock
from penstock.core.quantities import count_text
from penstock.core.types import TopicPartition

if TYPE_CHECKING:
    from penstock.spark.tables.operation.skipping import Targets
    from penstock.spark.tables.operation.skips import SkipPlan

OFFSET_MAX: Final = 2**63 - 1
RANGES_SHOWN_MAX: Final = 20
LATEST: Final = "latest"


@click.command(
    short_help="Skip offsets of a partition.",
    epilog=examples(
        "penstock table skip orders.toml --topic orders --partition 1 --to 60",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", required=True, type=WholeNumber(min=0), help="The partition.")
@click.option(
    "--to",
    "offset",
    required=True,
    type=WholeNumber(min=0, max=OFFSET_MAX),
    help="The first offset that the pipeline reads again.",
)
@yes_option
@json_option()
def skip(file: str, topic: str, partition: int, offset: int, yes: bool, as_json: bool) -> None:
    """Let the pipeline of FILE continue at an offset of one partition, without those before.

    The table records the skipped offsets as lost; `table status` shows them. Stop the pipeline
    first: a driver that runs is fenced, and ends at its next commit. A pipeline never goes back.
    """
    check_can_ask(yes=yes)
    with extras_named():
        from penstock.spark.tables.operation.skipping import to_offset

    at = TopicPartition(topic, partition)
    _skip(file, to_offset(at, offset), (at, offset), yes=yes, as_json=as_json)


@click.command(
    name="resume-at",
    short_help="Skip a backlog up to a time.",
    epilog=examples(
        "penstock table resume-at orders.toml 2026-01-31T06:00:00Z",
        "penstock table resume-at orders.toml latest --yes",
    ),
)
@click.argument("file", metavar="FILE")
@click.argument("time", metavar="TIME")
@yes_option
@json_option()
def resume_at(file: str, time: str, yes: bool, as_json: bool) -> None:
    """Let the pipeline of FILE continue at TIME in all partitions, without the backlog before.

    TIME is as in 2026-01-31T06:00:00Z, or `latest` for the current end. Partitions that are
    further already stay. The table records the skipped offsets as lost. Stop the pipeline first:
    a driver that runs is fenced, and ends at its next commit.
    """
    check_can_ask(yes=yes)
    with extras_named():
        from penstock.spark.tables.operation.skipping import to_time

    at_ms = None if time == LATEST else _time_ms(time)
    if at_ms is not None and at_ms > SystemClock().now_ms():
        raise click.BadParameter(f"{time} is in the future. Write `latest` for the current end.")
    _skip(file, to_time(at_ms), None, yes=yes, as_json=as_json)


def _skip(
    file: str,
    targets: Targets,
    one: tuple[TopicPartition, int] | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from penstock.spark.pipeline_files import load_pipeline
    from penstock.spark.tables.operation.skipping import skip_offsets

    def ask(plan: SkipPlan) -> None:
        if not plan.ranges:
            return
        for line in _lines(plan):
            note(line)
        table = definition.table.name
        confirm(f"Record these offsets of {plan.pipeline} as lost in {table}?", yes=yes)

    with errors_of_definition(file):
        definition = load_pipeline(file).definition
        done = skip_offsets(definition, targets, confirm=ask, one=one)
    if as_json:
        print_json(_document(done))
    elif done.ranges:
        click.echo(f"{done.pipeline}: {count_text(done.offset_count, 'offset')} skipped")
    else:
        click.echo(f"{done.pipeline}: nothing to skip; nothing was changed")


def _lines(plan: SkipPlan) -> list[str]:
    lines = [
        f"{one.at}: offsets {one.start_offset} to {one.end_offset - 1}"
        for one in plan.ranges[:RANGES_SHOWN_MAX]
    ]
    more = len(plan.ranges) - RANGES_SHOWN_MAX
    return [*lines, f"and {count_text(more, 'partition')} more"] if more > 0 else lines


def _document(plan: SkipPlan) -> dict[str, object]:
    return {
        "pipeline": plan.pipeline,
        "skipped_offsets": plan.offset_count,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "from_offset": one.start_offset,
                "to_offset": one.end_offset,
            }
            for one in plan.ranges
        ],
    }


def _time_ms(text: str) -> int:
    with blamed_on("TIME"):
        start = parse_start(text)
    if start.kind not in {AT_TIMESTAMP, AT_OFFSET}:
        raise click.UsageError(
            f"{text!r} is not a time. Write 2026-01-31T06:00:00Z, milliseconds since 1970, or "
            "latest."
        )
    return start.value
