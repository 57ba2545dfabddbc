"""`penstock version`: print the versions of Penstock and Python. It connects to no broker."""

import platform

import click

from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json
from penstock.core.version import penstock_version


@click.command(short_help="Show the version of Penstock.", epilog=examples("penstock version"))
@json_option()
def version(as_json: bool) -> None:
    """Show the version of Penstock and of Python."""
    if as_json:
        print_json({"penstock": penstock_version(), "python": platform.python_version()})
    else:
        click.echo(f"penstock {penstock_version()} (Python {platform.python_version()})")
