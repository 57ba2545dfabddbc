"""`penstock quota`: quotas of users, clients and addresses in any Kafka cluster."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json, print_table
from penstock.cli.text.settings_text import parse_settings
from penstock.client.quota_calls import EntityQuotas, change_quotas, describe_quotas
from penstock.client.transport.call import Call

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

_TYPES: Final = ("user", "client-id", "ip")
DEFAULT: Final = "(default)"
"""The name of a type's default in tables."""


@click.group(
    short_help="Set, list and delete quotas of users, clients and addresses.",
    epilog=examples(
        "penstock quota set --client-id reports consumer_byte_rate=1048576",
        "penstock quota list",
    ),
)
def quota() -> None:
    """Set, list and delete quotas of users, clients and addresses.

    A user, a client id, or both may have producer_byte_rate and consumer_byte_rate (bytes a
    second), request_percentage (of the broker's thread) and controller_mutation_rate (partitions
    created and deleted a second). An address may have connection_creation_rate (a second).
    """


def entity_options(command: Command) -> Command:
    """Add `--user` and the other options for the entity of a quota."""
    for name, what in reversed(
        (("user", "user"), ("client-id", "client id"), ("ip", "client address"))
    ):
        short = name.removesuffix("-id")
        command = click.option(
            f"--{short}-defaults",
            f"{short}_defaults",
            is_flag=True,
            help=f"Every {what} that has no quota of its own.",
        )(command)
        command = click.option(
            f"--{name}", name.replace("-", "_"), metavar="NAME", help=f"One {what}."
        )(command)
    return command


@quota.command(
    name="set",
    short_help="Set quotas.",
    epilog=examples(
        "penstock quota set --client-id reports consumer_byte_rate=1048576",
        "penstock quota set --client-defaults producer_byte_rate=10485760",
        "penstock quota set --ip 10.0.0.7 connection_creation_rate=5",
    ),
)
@click.argument("values", nargs=-1, required=True, metavar="QUOTA=NUMBER...")
@entity_options
@bootstrap_option
@timeout_option
@json_option()
def set_(
    values: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
    **named: str | bool | None,
) -> None:
    """Set the quotas of an entity: all of them, or none on an error. They apply at once."""
    entity = _wanted_entity(named)
    quotas = {
        name: _number(name, text) for name, text in parse_settings(values, "QUOTA=NUMBER").items()
    }
    _ask(change_quotas(entity, quotas), bootstrap, timeout_seconds)
    if as_json:
        print_json({"entity": entity, "quotas": quotas})
    else:
        for name, value in quotas.items():
            click.echo(f"{_entity_text(entity)}: {name} is {_number_text(value)}")


@quota.command(
    name="list",
    short_help="List quotas.",
    epilog=examples("penstock quota list", "penstock quota list --client-id reports"),
)
@entity_options
@bootstrap_option
@timeout_option
@json_option()
def list_(
    bootstrap: str, timeout_seconds: float, as_json: bool, **named: str | bool | None
) -> None:
    """List the quotas of all entities, or of the named ones."""
    found = _ask(describe_quotas(_entity(named)), bootstrap, timeout_seconds)
    found.sort(key=lambda one: [_name(one, kind) or "" for kind in _TYPES])
    if as_json:
        print_json([{"entity": one.entity, "quotas": one.quotas} for one in found])
    elif found:
        print_table(["user", "client id", "address", "quota", "value"], _rows(found))
    else:
        click.echo("no quotas; set one with `penstock quota set`")


@quota.command(
    short_help="Delete quotas.",
    epilog=examples(
        "penstock quota delete --client-id reports",
        "penstock quota delete --client-id reports consumer_byte_rate",
    ),
)
@click.argument("quotas", nargs=-1, metavar="[QUOTA]...")
@entity_options
@bootstrap_option
@timeout_option
@json_option()
def delete(
    quotas: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
    **named: str | bool | None,
) -> None:
    """Delete the QUOTAS of an entity, or all its quotas if none is named."""
    entity = _wanted_entity(named)
    names: Sequence[str] = quotas
    if not names:
        found = _ask(describe_quotas(entity, strict=True), bootstrap, timeout_seconds)
        names = [name for one in found for name in one.quotas]
    if names:
        _ask(change_quotas(entity, dict.fromkeys(names)), bootstrap, timeout_seconds)
    if as_json:
        print_json({"entity": entity, "deleted": list(names)})
    elif names:
        click.echo(f"{_entity_text(entity)}: {', '.join(names)} deleted")
    else:
        click.echo(f"{_entity_text(entity)} has no quotas")


def _ask(call: Call[Result], bootstrap: str, timeout_seconds: float) -> Result:
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        # Setting or deleting twice has the same result as once.
        return cluster.repeat(lambda: cluster.anywhere(call), repeatable=True)


def _entity(named: Mapping[str, str | bool | None]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind in _TYPES:
        name = named[kind.replace("-", "_")]
        is_default = named[f"{kind.removesuffix('-id')}_defaults"]
        if isinstance(name, str):
            if is_default:
                raise click.UsageError(f"Either one {kind} or its defaults, not both.")
            entity[kind] = name
        elif is_default:
            entity[kind] = None
    return entity


def _wanted_entity(named: Mapping[str, str | bool | None]) -> dict[str, str | None]:
    entity = _entity(named)
    if not entity:
        raise click.UsageError(
            "Name the entity: --user, --client-id, --ip, or one of --user-defaults, "
            "--client-defaults, --ip-defaults."
        )
    return entity


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise click.BadParameter(f"{name}={text}: {text!r} is not a number.", param_hint="QUOTA")
    return value


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _entity_text(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity.items())


def _name(one: EntityQuotas, kind: str) -> str | None:
    """Return the name for the table; None if the entity has no name of this kind."""
    return one.entity[kind] or DEFAULT if kind in one.entity else None


def _rows(found: Sequence[EntityQuotas]) -> list[list[object]]:
    return [
        [
            *(_name(one, kind) for kind in _TYPES),
            name,
            _number_text(value),
        ]
        for one in found
        for name, value in sorted(one.quotas.items())
    ]
