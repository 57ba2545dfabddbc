"""`penstock acl check`: would a broker allow this, and by which rule.

It fetches the rules that apply to the resource and decides with the broker's own authorizer. The
super users and the default are read from the broker's settings where the broker shows them. It
changes nothing, and it does NOT ask the broker to decide.
"""

from typing import Final

import click

from penstock.cli import exits
from penstock.cli.acl.cluster_rules import found_rules
from penstock.cli.acl.rule_options import (
    parsed_operation,
    parsed_principal,
    read_resources,
    resource_options,
)
from penstock.cli.acl.text import rule_document
from penstock.cli.brokers import CommandCluster, open_cluster
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import note, print_json
from penstock.core.errors import ClientError
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import Operation, PatternType

SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


@click.command(
    short_help="Check whether a principal may do something, and by which rule.",
    epilog=examples(
        "penstock acl check --as User:alice --operation read --topic orders --host 10.0.0.7",
        "penstock acl check --as User:bob --operation alter --cluster",
    ),
)
@click.option(
    "--as", "principal", required=True, metavar="TYPE:NAME", help="The principal: User:alice."
)
@click.option("--operation", required=True, metavar="NAME", help="The operation: read.")
@click.option(
    "--host",
    default="",
    metavar="ADDRESS",
    help="Address of the client; without it, only rules for any address count.",
)
@resource_options
@bootstrap_option
@timeout_option
@json_option()
def check(
    principal: str,
    operation: str,
    host: str,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
    **words: object,
) -> int:
    """Check whether the rules allow an operation, and print the rule that decides.

    The exit code is 0 if it is allowed and 1 if it is denied.
    """
    asked = parsed_principal(principal, "--as")
    wanted = parsed_operation(operation)
    if wanted == Operation.ALL:
        raise click.UsageError("Name one operation: no request asks for All.")
    resources = read_resources(words, "literal")
    if len(resources) != 1:
        raise click.UsageError("Name one resource: --topic, --group, --cluster or --resource.")
    ((resource_type, name, _),) = resources
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        rules = found_rules(cluster, [AclFilter(resource_type, name, PatternType.MATCH)])
        super_users, allows_everyone = _given_settings(cluster)
    authorizer = AclAuthorizer(
        frozenset(super_users or ()), allow_everyone_if_no_acl_found=allows_everyone
    )
    authorizer.replace(RuleOrigin.API, rules)
    decision = authorizer.decide(asked, host, wanted, resource_type, name)
    if super_users is None and not decision.is_allowed:
        note(
            f"note: the super users are not known, because the broker does not show {SUPER_USERS}. "
            "A super user may do everything."
        )
    if as_json:
        print_json(
            {
                "principal": str(asked),
                "host": host or None,
                "operation": wanted.name,
                "resource_type": resource_type.name,
                "name": name,
                "allowed": decision.is_allowed,
                "reason": decision.reason,
                "rule": None if decision.rule is None else rule_document(decision.rule),
                "super_users_known": super_users is not None,
            }
        )
    else:
        click.echo(f"{'allow' if decision.is_allowed else 'deny'}: {decision.reason}")
    return exits.DONE if decision.is_allowed else exits.FAILED


def _given_settings(cluster: CommandCluster) -> tuple[tuple[str, ...] | None, bool]:
    """Return the super users, None if they are not shown, and the decision without any rule."""
    try:
        broker_id = min(cluster.brokers())
        configs = cluster.broker_configs(broker_id)
    except ClientError:
        return None, False
    if configs.error_code != ErrorCode.NONE:
        return None, False
    shown = {one.name: one.value or "" for one in configs.configs if not one.is_sensitive}
    text = shown.get(SUPER_USERS)
    names = None if text is None else tuple(one.strip() for one in text.split(";") if one.strip())
    return names, shown.get(ALLOW_EVERYONE, "").lower() == "true"
