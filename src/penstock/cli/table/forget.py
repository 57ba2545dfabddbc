"""`penstock table forget`: remove a pipeline or a backfill from a table's state."""

import click

from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.extras import extras_named
from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json
from penstock.cli.text.pipeline_words import errors_of_definition


@click.command(
    short_help="Let a table forget a pipeline or backfill.",
    epilog=examples(
        "penstock table forget orders.toml orders.backfill-5f0c7d2e91ab",
        "penstock table forget orders.toml --yes",
    ),
)
@click.argument("file", metavar="FILE")
@click.argument("name", metavar="[NAME]", required=False)
@yes_option
@json_option()
def forget(file: str, name: str | None, yes: bool, as_json: bool) -> None:
    """Let the tables of FILE forget the pipeline or backfill NAME; without NAME, FILE's own.

    Rows stay. The table no longer records which offsets they came from: a pipeline of this name
    begins at source.starting_offsets when it is started again, with a new checkpoint, and writes
    records again that are in the table. A driver that runs is stopped.
    """
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.tables.run.forgetting import forget_pipeline

    with errors_of_definition(file):
        definition = load_pipeline(file).definition
        chosen = name or definition.pipeline.name
        confirm(f"Let {definition.table.name} forget which offsets of {chosen} it has?", yes=yes)
        done = forget_pipeline(definition, chosen)
    if as_json:
        print_json({"pipeline": chosen, "tables": list(done)})
    elif done:
        click.echo(f"{chosen} forgotten by {' and '.join(done)}")
    else:
        click.echo(f"{chosen} was forgotten before; nothing was changed")
