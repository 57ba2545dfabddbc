"""`penstock table`: topics into Iceberg and Delta tables; check, run and maintain a pipeline.

FILE is a pipeline: a TOML file, or a Python file with a function that `@pipeline` decorates.
`penstock.spark` implements these commands; this folder prints the results. Spark and the formats
are imported when a command runs, so `--help` and all other commands of Penstock do not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli import exits
from penstock.cli.extras import extras_named
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json
from penstock.cli.table.again import backfill, maintain
from penstock.cli.table.dlq import dlq
from penstock.cli.table.forget import forget
from penstock.cli.table.many_text import many_document, print_many
from penstock.cli.table.run import run
from penstock.cli.table.skip import resume_at, skip
from penstock.cli.table.text import (
    check_document,
    print_check,
    print_status,
    status_document,
)
from penstock.cli.text.pipeline_words import errors_of_definition

if TYPE_CHECKING:
    from penstock.spark.tables.definition.model import PipelineDefinition


@click.group(
    short_help="Write topics to Iceberg and Delta tables.",
    epilog=examples(
        "penstock table check orders.toml        does it fit? nothing is changed",
        "penstock table run orders.toml --once   all that is in the topics now",
        "penstock table run orders.toml          go on until Ctrl-C",
        "penstock table status orders.toml",
    ),
)
def table() -> None:
    """Write topics to Iceberg and Delta tables, each record once.

    FILE is the pipeline: a TOML file, or file.py or file.py:name with decorators.
    """


table.add_command(backfill)
table.add_command(maintain)
table.add_command(dlq)
table.add_command(forget)
table.add_command(resume_at)
table.add_command(run)
table.add_command(skip)


@table.command(
    short_help="Check a pipeline without writing.",
    epilog=examples("penstock table check orders.toml", "penstock table check orders.py --json"),
)
@click.argument("file", metavar="FILE")
@click.option(
    "--rows",
    "row_count_max",
    type=WholeNumber(min=0),
    default=10,
    show_default=True,
    help="Rows of the sample to show.",
)
@json_option()
def check(file: str, row_count_max: int, as_json: bool) -> int:
    """Check brokers, topics, schema, table and warehouse of FILE, and parse a sample.

    Nothing is written. The sample has the last records of each partition. The exit code is
    1 when the pipeline could not start.
    """
    with extras_named():
        from penstock.spark.pipeline_files import load_pipelines
        from penstock.spark.tables.definition.errors import DefinitionError
        from penstock.spark.tables.definition.many_tables import has_many_tables
        from penstock.spark.tables.inspection.check import check_pipeline, failed_definition

    try:
        loaded = load_pipelines(file)
    except DefinitionError as error:
        report = failed_definition(error)
    else:
        if has_many_tables(loaded.definition):
            return _check_many(loaded.definition, file, row_count_max, as_json=as_json)
        report = check_pipeline(loaded.definition, has_transform=loaded.transform is not None)
    if as_json:
        print_json(check_document(report))
    else:
        print_check(report, row_count_max)
    return exits.DONE if report.is_good else exits.FAILED


def _check_many(
    definition: PipelineDefinition, file: str, row_count_max: int, *, as_json: bool
) -> int:
    """Check the first topics of a definition with many tables."""
    from penstock.spark.tables.definition.many_tables import table_of_topic
    from penstock.spark.tables.inspection.check import check_pipeline
    from penstock.spark.tables.inspection.many_status import some_topics

    is_good, documents = True, {}
    with errors_of_definition(file):
        for topic in some_topics(definition):
            report = check_pipeline(table_of_topic(definition, topic), has_transform=False)
            is_good = is_good and report.is_good
            documents[topic] = check_document(report)
            if not as_json:
                click.echo(f"topic {topic}")
                print_check(report, row_count_max)
                click.echo("")
    if as_json:
        print_json({"topics": documents})
    return exits.DONE if is_good else exits.FAILED


@table.command(
    short_help="Show a table's commits, lag and files.",
    epilog=examples(
        "penstock table status orders.toml", "penstock table status orders.toml --json"
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--partitions", "every", is_flag=True, help="Show each partition, not each topic.")
@json_option()
def status(file: str, every: bool, as_json: bool) -> None:
    """Show the table of FILE: commits, offsets, lag, freshness, files, snapshots, bad records.

    Commits and offsets are read from the table itself. Lag is unknown (-) when no broker answers.
    """
    with extras_named():
        from penstock.spark.pipeline_files import load_pipelines
        from penstock.spark.tables.definition.many_tables import has_many_tables
        from penstock.spark.tables.inspection.status import table_status

    with errors_of_definition(file):
        definition = load_pipelines(file).definition
        if has_many_tables(definition):
            _show_many(definition, as_json=as_json)
            return
        found = table_status(definition)
    if found.problem:
        note(f"the ends of the topics are not known: {found.problem}")
    if as_json:
        print_json(status_document(found))
    else:
        print_status(found, every_partition=every)


def _show_many(definition: PipelineDefinition, *, as_json: bool) -> None:
    """Show each topic's table in a line."""
    from penstock.spark.tables.inspection.many_status import many_status

    found = many_status(definition)
    if as_json:
        print_json(many_document(found))
    else:
        print_many(found)
