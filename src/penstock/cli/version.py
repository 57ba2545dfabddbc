"""`penstock version`: which Penstock and which Python this is. It asks no broker."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json


def penstock_version() -> str:
    """The version that pip installed; a source tree that nobody installed has none."""
    try:
        return installed_version("penstock")
    except PackageNotFoundError:
        return "not installed"


@click.command(short_help="Show the version of Penstock.", epilog=examples("penstock version"))
@json_option()
def version(as_json: bool) -> None:
    """Show the version of Penstock and of Python."""
    if as_json:
        print_json({"penstock": penstock_version(), "python": platform.python_version()})
    else:
        click.echo(f"penstock {penstock_version()} (Python {platform.python_version()})")
