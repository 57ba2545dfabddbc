"""`penstock user`: users with a password (SCRAM), of any Kafka cluster or of a data directory.

The password is salted here and never sent. With `--data-dir` no broker is needed: that is how a
cluster that lets no client in gets its first administrator.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from penstock.cli.confirmation import check_can_ask, confirm, yes_option
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json, print_table
from penstock.cli.user.passwords import password_options, read_password
from penstock.cli.user.user_stores import UserStore, user_store
from penstock.client.user_calls import SaltedPassword, UserCredentials, salt_password
from penstock.core.errors import PenstockError
from penstock.security.sasl.password_file import SALT_BYTES as FILE_SALT_BYTES
from penstock.security.sasl.password_file import format_user, hash_password
from penstock.security.sasl_client import SCRAM_SHA_512
from penstock.security.scram_credential import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NUMBERS,
    SALT_BYTES,
)
from penstock.security.secret import Secret
from penstock.security.user_names import name_problem

Command = TypeVar("Command", bound=Callable[..., Any])

_MECHANISMS: Final = tuple(MECHANISM_NUMBERS)


class UserCommandError(PenstockError):
    """A user exists already, or does not exist."""


@click.group(
    short_help="Add, list and delete users, change passwords.",
    epilog=examples(
        "penstock user add alice",
        "penstock user list",
        "penstock user add admin --data-dir /var/lib/penstock",
    ),
)
def user() -> None:
    """Add, list and delete users, change passwords.

    A user logs in with SASL and a SCRAM mechanism. Access rules decide about its permissions:
    `penstock acl`.
    """


def mechanism_option(help_text: str) -> Callable[[Command], Command]:
    """Add the option `--mechanism`."""
    return click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice(_MECHANISMS, case_sensitive=False),
        help=help_text,
    )


def store_options(command: Command) -> Command:
    """Add the options that name the cluster, or a data directory instead."""
    command = click.option(
        "--data-dir",
        type=click.Path(file_okay=False),
        help="Data directory of a broker that is not running, instead of a cluster.",
    )(command)
    return bootstrap_option(timeout_option(command))


def iterations_option(command: Command) -> Command:
    """Add the option `--iterations`."""
    return click.option(
        "--iterations",
        type=WholeNumber(min=ITERATIONS_MIN, max=ITERATIONS_MAX),
        default=ITERATIONS_DEFAULT,
        show_default=True,
        help="Iterations of the password's hash; more make guesses and logins slower.",
    )(command)


@user.command(
    short_help="Add a user.",
    epilog=examples(
        "penstock user add alice",
        "penstock user add alice --password-file alice.password",
        "penstock user add admin --data-dir /var/lib/penstock",
    ),
)
@click.argument("name")
@mechanism_option(f"SASL mechanism; may be repeated. Default: {SCRAM_SHA_512}.")
@iterations_option
@password_options
@store_options
@json_option()
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    password_file: str | None,
    data_dir: str | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Add a user with a password; a user that exists already keeps its own."""
    _check_name(name)
    wanted = tuple(dict.fromkeys(mechanisms)) or (SCRAM_SHA_512,)
    store = user_store(data_dir, bootstrap, timeout_seconds, creates=True)
    found = _found(store, name)
    if found is not None and found.iterations.keys() & set(wanted):
        raise UserCommandError(
            f"user {name!r} exists already ({', '.join(found.iterations)}).",
            hint=f"Change its password with `penstock user password {name}`.",
        )
    password = read_password(name, from_stdin=password_stdin, file=password_file)
    store.set_password(name, _salted(password, wanted, iterations))
    _print_set(name, wanted, iterations, "added", as_json=as_json)


@user.command(
    short_help="Change the password of a user.",
    epilog=examples(
        "penstock user password alice", "penstock user password alice --password-stdin < file"
    ),
)
@click.argument("name")
@mechanism_option("SASL mechanism; may be repeated. Default: all that the user has.")
@iterations_option
@password_options
@store_options
@json_option()
def password(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    password_file: str | None,
    data_dir: str | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Set another password for a user. Open connections stay; the next login needs it."""
    store = user_store(data_dir, bootstrap, timeout_seconds)
    found = _existing(store, name)
    wanted = _of_user(found, mechanisms)
    secret = read_password(name, from_stdin=password_stdin, file=password_file)
    store.set_password(name, _salted(secret, wanted, iterations))
    _print_set(name, wanted, iterations, "password changed", as_json=as_json)


@user.command(
    name="list",
    short_help="List users.",
    epilog=examples("penstock user list", "penstock user list alice --json"),
)
@click.argument("names", nargs=-1)
@store_options
@json_option()
def list_(
    names: tuple[str, ...],
    data_dir: str | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """List the users with a password, or the named ones, with their mechanisms."""
    store = user_store(data_dir, bootstrap, timeout_seconds)
    wanted = tuple(dict.fromkeys(names)) or None
    found = store.users(wanted)
    missing = sorted(set(wanted or ()) - {one.user for one in found})
    if missing:
        raise _no_user(missing[0])
    if as_json:
        print_json([{"user": one.user, "mechanisms": one.iterations} for one in found])
    elif found:
        print_table(
            ["user", "mechanism", "iterations"],
            [
                [one.user, mechanism, iterations]
                for one in found
                for mechanism, iterations in one.iterations.items()
            ],
        )
    else:
        click.echo("no users; add one with `penstock user add`")


@user.command(
    short_help="Delete a user.",
    epilog=examples("penstock user remove alice", "penstock user remove alice --yes"),
)
@click.argument("name")
@mechanism_option("Only the password of this mechanism; may be repeated.")
@yes_option
@store_options
@json_option()
def remove(
    name: str,
    mechanisms: tuple[str, ...],
    yes: bool,
    data_dir: str | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Delete a user's passwords. Its access rules stay: `penstock acl remove` deletes them."""
    check_can_ask(yes=yes)
    store = user_store(data_dir, bootstrap, timeout_seconds)
    wanted = _of_user(_existing(store, name), mechanisms)
    confirm(f"Delete the user {name} ({', '.join(wanted)})?", yes=yes)
    store.delete(name, wanted)
    if as_json:
        print_json({"user": name, "deleted": list(wanted)})
    else:
        click.echo(f"user {name} deleted: {', '.join(wanted)}")


@user.command(
    name="hash",
    short_help="Print the line of a user for a users file.",
    epilog=examples(
        "penstock user hash alice >> users.txt",
        "penstock user hash alice --password-file alice.password >> users.txt",
    ),
)
@click.argument("name")
@password_options
def hash_(name: str, password_stdin: bool, password_file: str | None) -> None:
    """Print the line of a user for a users file, with its hashed password.

    A broker with `security.plain_verifier = "file"` verifies the passwords of the mechanism PLAIN
    with the file `security.users_file`. No broker and no data directory is changed.
    """
    _check_name(name)
    secret = read_password(name, from_stdin=password_stdin, file=password_file)
    click.echo(format_user(name, hash_password(secret, secrets.token_bytes(FILE_SALT_BYTES))))


def _check_name(name: str) -> None:
    problem = name_problem(name)
    if problem:
        raise click.BadParameter(f"{name!r}: {problem}.", param_hint="NAME")


def _found(store: UserStore, name: str) -> UserCredentials | None:
    return next(iter(store.users([name])), None)


def _existing(store: UserStore, name: str) -> UserCredentials:
    found = _found(store, name)
    if found is None:
        raise _no_user(name)
    return found


def _no_user(name: str) -> UserCommandError:
    return UserCommandError(
        f"user {name!r} not found.", hint="List users with `penstock user list`."
    )


def _of_user(found: UserCredentials, mechanisms: Sequence[str]) -> tuple[str, ...]:
    """Return the mechanisms to change: those named, or all that the user has."""
    for mechanism in mechanisms:
        if mechanism not in found.iterations:
            raise UserCommandError(
                f"user {found.user!r} has no password for {mechanism}.",
                hint=f"It has one for {', '.join(found.iterations)}.",
            )
    return tuple(dict.fromkeys(mechanisms)) or tuple(found.iterations)


def _salted(password: Secret, mechanisms: Sequence[str], iterations: int) -> list[SaltedPassword]:
    return [
        salt_password(password, mechanism, iterations, secrets.token_bytes(SALT_BYTES))
        for mechanism in mechanisms
    ]


def _print_set(
    name: str, mechanisms: Sequence[str], iterations: int, done: str, *, as_json: bool
) -> None:
    if as_json:
        print_json({"user": name, "mechanisms": dict.fromkeys(mechanisms, iterations)})
    else:
        click.echo(f"user {name} {done}: {', '.join(mechanisms)}, {iterations} iterations")
