"""`penstock doctor`: reports problems, each with a remedy.

It checks this machine with the settings of `penstock serve`, and a broker as a client would. It
changes nothing: the small file for the sync test has no name and is deleted at once. Exit code 0:
no problems; 1: at least one problem.
"""

import click
from click.core import ParameterSource

from penstock.cli import exits
from penstock.cli.client_settings import client_settings
from penstock.cli.doctor.examination import examine
from penstock.cli.doctor.judging import FINDING, FINE, NOTE
from penstock.cli.options import (
    TIMEOUT_SECONDS,
    blamed_on,
    command_config_option,
    examples,
    json_option,
    settings_file_option,
)
from penstock.cli.output import print_colored, print_json, print_table
from penstock.cli.settings_file import load
from penstock.client.transport.addresses import Address, parse_addresses

_COLORS = {FINE: "green", NOTE: "yellow", FINDING: "bold red"}


@click.command(
    short_help="Find problems, with remedies.",
    epilog=examples(
        "penstock doctor",
        "penstock doctor --config /etc/penstock.toml",
        "penstock doctor --bootstrap-server broker.example:9092",
        "penstock doctor --command-config admin.properties",
    ),
)
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT",
    help="Look at this broker as a client would; several with commas. Without it, at the one that "
    "the settings name, if it runs.",
)
@command_config_option
@settings_file_option
@click.option("--data-dir", help="Look at this data directory instead of the settings'.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=TIMEOUT_SECONDS,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for each connection and each answer.",
)
@json_option("Print everything that was looked at as a JSON document.")
def doctor(
    bootstrap: str | None,
    file: str | None,
    data_dir: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> int:
    """Check this machine and a broker for problems, and print the remedies.

    It checks the listeners and their certificates, the data directory and its disk, limits,
    memory, clocks, versions, access rules, and the addresses that a broker advertises. Exit code 0
    when nothing was found, 1 otherwise.
    """
    if bootstrap is not None and data_dir is not None:
        raise click.UsageError(
            "--data-dir is looked at on this machine, and --bootstrap-server looks at a broker as "
            "a client: give one of them."
        )
    asked: tuple[Address, ...] = ()
    client = client_settings()
    # --config asks for this machine; a file of a client has an address for other commands too.
    if bootstrap is None and data_dir is None and not _is_given("file"):
        bootstrap = client.bootstrap
    if bootstrap is not None:
        with blamed_on("--bootstrap-server"):
            asked = parse_addresses(bootstrap)
    settings = load(file, {"node.data_dir": data_dir}).settings
    judgements = list(examine(settings, asked, timeout_seconds, client.security))
    found = [one for one in judgements if one.level == FINDING]
    if as_json:
        print_json({"findings": len(found), "checks": [one.document() for one in judgements]})
    else:
        rows = [[one.check, one.level, one.words] for one in judgements]
        print_table(["check", "", "what"], rows, styles=_COLORS)
        for one in found:
            click.echo()
            print_colored([(f"{one.check}: ", _COLORS[FINDING]), (f"{one.words}.", "")])
            click.echo(f"  {one.remedy}")
        if not found:
            click.echo("\nNothing was found that needs you.")
    return exits.FAILED if found else exits.DONE


def _is_given(name: str) -> bool:
    """Whether an option is on the command line, and not from the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE
