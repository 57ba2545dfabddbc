"""Access rules in the output of `penstock acl`: documents for programs, tables for people.

Fields of the documents are part of the interface: fields are added, never removed.
"""

from collections.abc import Sequence

from penstock.cli.output import print_table
from penstock.security.acls.rule_text import printable
from penstock.security.acls.values import AclBinding


def rule_document(rule: AclBinding) -> dict[str, str]:
    """Return one rule with Kafka's names."""
    return {
        "principal": rule.principal,
        "host": rule.host,
        "permission": rule.permission.name,
        "operation": rule.operation.name,
        "resource_type": rule.resource_type.name,
        "pattern_type": rule.pattern_type.name,
        "name": rule.name,
    }


def print_rules(rules: Sequence[AclBinding]) -> None:
    """Print a table of rules."""
    print_table(
        ["resource", "name", "pattern", "principal", "host", "permission", "operation"],
        [
            [
                rule.resource_type.name,
                printable(rule.name),
                rule.pattern_type.name,
                printable(rule.principal),
                printable(rule.host),
                rule.permission.name,
                rule.operation.name,
            ]
            for rule in rules
        ],
    )
