"""`penstock acl`: access rules of any Kafka cluster, and the reason for a decision.

`add`, `list`, `remove`, `import` and `export` use Kafka's APIs for access rules. `check` fetches
the rules of a resource and decides as the broker does (`cli.acl.checking`).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from penstock.cli import exits
from penstock.cli.acl.checking import check
from penstock.cli.acl.cluster_rules import ERRORS_SHOWN_MAX, RuleError, create_all, found_rules
from penstock.cli.acl.rule_options import (
    RuleWords,
    parsed_principal,
    read_rule_words,
    rule_options,
)
from penstock.cli.acl.text import print_rules, rule_document
from penstock.cli.brokers import open_cluster
from penstock.cli.confirmation import check_can_ask, confirm, yes_option
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import note, print_json
from penstock.client.acl_calls import delete_rules
from penstock.core.errors import ConfigError
from penstock.core.quantities import count_text
from penstock.core.security_limits import ACLS_MAX
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.roles import Role, role_rules
from penstock.security.acls.rule_text import rule_text
from penstock.security.acls.rules_file import format_rules, parse_rules
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

IMPORT_BYTES_MAX: Final = 67_108_864
"""The largest file of an import: all rules that a cluster can hold, of 1,300 bytes each."""


@click.group(
    short_help="Create, list, delete and check access rules (ACLs).",
    epilog=examples(
        "penstock acl add --principal User:alice --operation read --topic orders",
        "penstock acl list",
        "penstock acl check --as User:alice --operation read --topic orders",
    ),
)
def acl() -> None:
    """Create, list, delete and check access rules (ACLs).

    A rule allows or denies a principal an operation on a resource. A request that no rule allows
    is denied, and a rule that denies wins.
    """


@acl.command(
    short_help="Create rules.",
    epilog=examples(
        "penstock acl add --principal User:alice --operation read --topic orders --group billing",
        "penstock acl add --principal User:bob --operation write --topic 'orders-*'",
        "penstock acl add --deny --principal User:eve --operation all --topic '*'",
    ),
)
@rule_options
@click.option("--deny", is_flag=True, help="Deny instead of allow.")
@bootstrap_option
@timeout_option
@json_option()
def add(deny: bool, bootstrap: str, timeout_seconds: float, as_json: bool, **words: object) -> None:
    """Create a rule for each combination of the options. A rule that exists already stays."""
    rules = read_rule_words(words).rules(Permission.DENY if deny else Permission.ALLOW)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        create_all(cluster, rules)
    _print_created(rules, as_json=as_json)


@acl.command(
    name="list",
    short_help="List rules.",
    epilog=examples(
        "penstock acl list",
        "penstock acl list --principal User:alice",
        "penstock acl list --topic orders --applying",
    ),
)
@rule_options
@click.option(
    "--permission",
    type=click.Choice(["allow", "deny"]),
    help="Only rules that allow, or only rules that deny.",
)
@click.option(
    "--applying",
    is_flag=True,
    help="Rules that apply to the named resources: also those of prefixes and of '*'.",
)
@bootstrap_option
@timeout_option
@json_option()
def list_(
    permission: str | None,
    applying: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
    **words: object,
) -> None:
    """List the rules that match the options; without options, all of them."""
    wanted = read_rule_words(words)
    if applying and any(pattern != PatternType.LITERAL for *_, pattern in wanted.resources):
        raise click.UsageError("--applying needs the names of resources, not prefixes.")
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        found = found_rules(cluster, wanted.filters(_permission(permission), applying=applying))
    if as_json:
        print_json([rule_document(rule) for rule in found])
    elif found:
        print_rules(found)
    else:
        click.echo("no rules; create one with `penstock acl add`")


@acl.command(
    short_help="Delete rules.",
    epilog=examples(
        "penstock acl remove --principal User:alice --operation read --topic orders",
        "penstock acl remove --principal User:alice --yes",
    ),
)
@rule_options
@click.option(
    "--permission",
    type=click.Choice(["allow", "deny"]),
    help="Only rules that allow, or only rules that deny.",
)
@click.option("--all", "is_all", is_flag=True, help="All rules of the cluster.")
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def remove(
    permission: str | None,
    is_all: bool,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
    **words: object,
) -> int:
    """Delete the rules that match the options, all of them or none.

    A rule of a broker's rules file stays in force: delete it in the file.
    """
    wanted = read_rule_words(words)
    _check_selection(wanted, permission, is_all=is_all)
    check_can_ask(yes=yes)
    filters = wanted.filters(_permission(permission))
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        if not yes:
            found = found_rules(cluster, filters)
            if found:
                print_rules(found)
                confirm(f"Delete {count_text(len(found), 'rule')}?", yes=False)
        deleted = cluster.repeat(lambda: cluster.anywhere(delete_rules(filters)), repeatable=False)
    kept = [one for one in deleted if one.error is not None]
    gone = [one.rule for one in deleted if one.error is None]
    if as_json:
        print_json(
            {
                "deleted": [rule_document(rule) for rule in gone],
                "kept": [{**rule_document(one.rule), "error": str(one.error)} for one in kept],
            }
        )
    else:
        for rule in gone:
            click.echo(f"deleted: {rule_text(rule)}")
        if not deleted:
            click.echo("no rule matches")
    for one in kept[:ERRORS_SHOWN_MAX]:
        note(f"error: not deleted: {rule_text(one.rule)}: {one.error}")
    return exits.FAILED if kept else exits.DONE


def _check_selection(wanted: RuleWords, permission: str | None, *, is_all: bool) -> None:
    is_selected = not wanted.is_empty or permission is not None
    if is_all and is_selected:
        raise click.UsageError("Either --all or options that select rules, not both.")
    if not is_all and not is_selected:
        raise click.UsageError("Select rules, such as --principal User:alice, or give --all.")


@acl.command(
    name="import",
    short_help="Create the rules of a file or of a role.",
    epilog=examples(
        "penstock acl import rules.json",
        "penstock acl import --role operator --principal User:alice",
    ),
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="Rules to describe everything, to run the cluster, or to do everything.",
)
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="TYPE:NAME",
    help="The principal of the role; may be repeated.",
)
@bootstrap_option
@timeout_option
@json_option()
def import_(
    file: str | None,
    role: str | None,
    principals: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Create the rules of a JSON file, or those of a role. Rules that exist already stay.

    The file has the format of `security.acl_file`, and of `penstock acl export`.
    """
    if (file is None) == (role is None):
        raise click.UsageError("Name a FILE, or a --role with its --principal.")
    if file is not None:
        if principals:
            raise click.UsageError("--principal is for a --role: the rules of a file have theirs.")
        rules = rules_of_file(file)
    else:
        if not principals:
            raise click.UsageError("Missing option --principal: a role needs one.")
        named = [str(parsed_principal(text, "--principal")) for text in principals]
        rules = [rule for one in named for rule in role_rules(Role(role), one)]
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        create_all(cluster, rules)
    _print_created(rules, as_json=as_json)


@acl.command(
    short_help="Print all rules as a rules file.",
    epilog=examples("penstock acl export > rules.json"),
)
@bootstrap_option
@timeout_option
def export(bootstrap: str, timeout_seconds: float) -> None:
    """Print all rules in the format of a rules file, for `penstock acl import`."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        rules = found_rules(cluster, [AclFilter()])
    unknown = [rule for rule in rules if _is_unknown(rule)]
    if unknown:
        raise RuleError(
            f"{count_text(len(unknown), 'rule')} have a resource type or an operation that this "
            "version does not know.",
            hint="Use a version of Penstock that is as new as the broker.",
        )
    click.echo(format_rules(rules), nl=False)


def _is_unknown(rule: AclBinding) -> bool:
    return rule.resource_type == ResourceType.UNKNOWN or rule.operation == Operation.UNKNOWN


def rules_of_file(file: str) -> list[AclBinding]:
    """Return the rules of an exported file, or of one that a user wrote."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(IMPORT_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(IMPORT_BYTES_MAX + 1)
        return list(parse_rules(data, bytes_max=IMPORT_BYTES_MAX, rules_max=ACLS_MAX))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}", hint=error.hint) from error


def _permission(text: str | None) -> Permission:
    return Permission.ANY if text is None else Permission[text.upper()]


def _print_created(rules: Sequence[AclBinding], *, as_json: bool) -> None:
    if as_json:
        print_json([rule_document(rule) for rule in rules])
        return
    for rule in rules:
        click.echo(f"created: {rule_text(rule)}")


acl.add_command(check)
