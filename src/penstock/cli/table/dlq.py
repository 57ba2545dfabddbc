"""`penstock table dlq`: the bad records of a pipeline, each with its reason."""

import click

from penstock.cli.extras import extras_named
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json
from penstock.cli.table.spark_options import SparkWish, chosen_session, spark_options
from penstock.cli.table.text import bad_record_document, print_bad_record, print_bad_records
from penstock.cli.text.pipeline_words import errors_of_definition
from penstock.core.quantities import count_text

_ERROR_CLASSES = (
    "malformed",
    "type_mismatch",
    "missing_value",
    "unknown_schema",
    "incompatible_schema",
    "expectation",
    "constraint",
    "late",
    "future",
)


@click.group(
    short_help="Look at bad records, try them again.",
    epilog=examples(
        "penstock table dlq list orders.toml --error-class malformed",
        "penstock table dlq show orders.toml orders 0 4711",
        "penstock table dlq replay orders.toml --error-class type_mismatch",
    ),
)
def dlq() -> None:
    """Bad records: what could not be written to the table of a pipeline, and why."""


@dlq.command(
    name="list",
    short_help="List bad records with their reasons.",
    epilog=examples("penstock table dlq list orders.toml --topic orders --limit 20"),
)
@click.argument("file", metavar="FILE")
@click.option("--error-class", type=click.Choice(_ERROR_CLASSES), help="Only these.")
@click.option("--topic", help="Only records of this topic.")
@click.option("--partition", type=WholeNumber(min=0), help="Only records of this partition.")
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="Records to show."
)
@json_option()
def list_(
    file: str,
    error_class: str | None,
    topic: str | None,
    partition: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the bad records of FILE in the order of their offsets, without their values."""
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.tables.inspection.bad_records import BadRecordFilter, list_bad_records

    with errors_of_definition(file):
        definition = load_pipeline(file).definition
        found = list_bad_records(
            definition, BadRecordFilter(error_class, topic, partition), limit=limit
        )
    if as_json:
        print_json([bad_record_document(one, is_whole=False) for one in found.records])
    elif not found.records:
        click.echo(f"no such records in {definition.table.dlq_name}")
    else:
        print_bad_records(found.records)
    if found.count > len(found.records):
        more = "" if found.is_count_whole else "more than "
        note(f"{len(found.records)} of {more}{found.count} records; --limit shows more")


@dlq.command(
    short_help="Show one bad record whole.",
    epilog=examples("penstock table dlq show orders.toml orders 0 4711 --json"),
)
@click.argument("file", metavar="FILE")
@click.argument("topic")
@click.argument("partition", type=WholeNumber(min=0))
@click.argument("offset", type=WholeNumber(min=0))
@json_option()
def show(file: str, topic: str, partition: int, offset: int, as_json: bool) -> None:
    """Show one bad record of FILE: key, value, headers, and why its last attempt failed."""
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.tables.inspection.bad_records import show_bad_record

    with errors_of_definition(file):
        found = show_bad_record(load_pipeline(file).definition, topic, partition, offset)
    if as_json:
        print_json([bad_record_document(one, is_whole=True) for one in found])
        return
    for one in found:
        print_bad_record(one)


@dlq.command(
    short_help="Try bad records again.",
    epilog=examples(
        "penstock table dlq replay orders.toml",
        "penstock table dlq replay orders.toml --topic orders --partition 0 --from 100 --to 200",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--error-class", type=click.Choice(_ERROR_CLASSES), help="Only these.")
@click.option("--topic", help="Only records of this topic.")
@click.option("--partition", type=WholeNumber(min=0), help="Only records of this partition.")
@click.option("--from", "from_offset", type=WholeNumber(min=0), help="Only from this offset on.")
@click.option("--to", "to_offset", type=WholeNumber(min=0), help="Only before this offset.")
@click.option(
    "--anew",
    is_flag=True,
    help="Take both tables as they are, after one was dropped or rolled back.",
)
@spark_options
@json_option()
def replay(
    file: str,
    error_class: str | None,
    topic: str | None,
    partition: int | None,
    from_offset: int | None,
    to_offset: int | None,
    anew: bool,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Put bad records of FILE into the table, once each, after the schema or a rule was corrected.

    Records that are bad again stay, with the new reason and one more attempt.
    """
    if from_offset is not None and to_offset is not None and from_offset >= to_offset:
        raise click.UsageError(
            f"--from {from_offset} is not before --to {to_offset}: no offset is between them."
        )
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.pipeline_runs import session_of
        from penstock.spark.tables.run.replay import RejectFilter, require_possible
        from penstock.spark.tables.run.replay import replay as put_in

    with errors_of_definition(file):
        loaded = load_pipeline(file)
        require_possible(loaded.definition)
    where = RejectFilter(error_class, topic, partition, from_offset, to_offset)
    with (
        errors_of_definition(file),
        chosen_session(SparkWish(master, settings, log)) as choice,
        session_of(loaded, choice) as spark,
    ):
        done = put_in(loaded.definition, spark, where=where, transform=loaded.transform, anew=anew)
    if as_json:
        print_json({"records": done.records, "rows": done.rows, "rejects": done.rejects})
    else:
        click.echo(
            f"{count_text(done.records, 'record')} tried again: {count_text(done.rows, 'row')} in "
            f"{loaded.definition.table.name}, {count_text(done.rejects, 'reject')}"
        )
