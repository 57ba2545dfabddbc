"""`penstock consumers run module:name`: run the consumers of a Python module until SIGTERM.

`module:name` names one consumer or a list of them; `module` alone runs all consumers in it. The
module is imported from the current directory, as by `python -m`. Options of the command go before
the arguments of the decorator.
"""

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.client_settings import FILE_BYTES_MAX
from penstock.cli.options import BOOTSTRAP_VARIABLE, WrongUsageError, examples
from penstock.client.property_file import parse_properties
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from penstock.consumers.application import Consumer


@click.group(
    short_help="Run handlers of records.",
    epilog=examples("penstock consumers run billing", "penstock consumers run billing:bill_order"),
)
def consumers() -> None:
    """Run functions with @penstock.consumer: handlers of records with retry and dead letters."""


@consumers.command(
    short_help="Run the consumers of a module.",
    epilog=examples(
        "penstock consumers run billing",
        "penstock consumers run shop.billing:bill_order --bootstrap-server localhost:9092",
    ),
)
@click.argument("target", metavar="MODULE[:NAME]")
@click.option(
    "--bootstrap-server",
    "bootstrap",
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    metavar="HOST:PORT",
    help="Broker to ask first; without it, the address of the decorator or localhost:9092.",
)
@click.option(
    "--client-config",
    type=click.Path(dir_okay=False, exists=True),
    metavar="FILE",
    help="Properties file with settings of librdkafka: TLS, SASL.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="Directory to import MODULE from.",
)
@click.option("--quiet", is_flag=True, help="Log only problems.")
def run(
    target: str, bootstrap: str | None, client_config: str | None, directory: str, quiet: bool
) -> None:
    """Run the consumers of MODULE, or the one of this NAME, until Ctrl-C or SIGTERM.

    Then running handlers finish, positions are committed, and the members leave their groups.
    """
    from penstock.consumers.application import run as run_all

    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    found = _consumers_of(target, directory)
    settings = {} if client_config is None else _properties(client_config)
    run_all(*found, bootstrap_server=bootstrap, settings=settings)


def _consumers_of(target: str, directory: str) -> "list[Consumer]":
    from penstock.consumers.application import Consumer

    module_name, _, name = target.partition(":")
    sys.path.insert(0, str(Path(directory).resolve()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise WrongUsageError(
            f"module {module_name!r} not found in {directory!r}.",
            hint="Write the module as in an import, or set --directory.",
        ) from error
    values = [getattr(module, name, None)] if name else list(vars(module).values())
    listed = [one for value in values for one in _listed(value)]
    found = list({id(one): one for one in listed if isinstance(one, Consumer)}.values())
    if not found:
        raise WrongUsageError(
            f"{target!r} has no consumer.",
            hint="Decorate a function of the module with @penstock.consumer(topic=..., group=...).",
        )
    return found


def _listed(value: object) -> "list[object] | tuple[object, ...]":
    return value if isinstance(value, list | tuple) else [value]


def _properties(path: str) -> dict[str, str]:
    with Path(path).open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX:,} bytes.")
    try:
        return parse_properties(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a properties file: it is not UTF-8.") from None
