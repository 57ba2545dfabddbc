"""Options that name access rules: who, from where, what, and on which resources.

Each option may be repeated, and together they mean every combination. A name that ends with `*` is
a prefix, and `*` alone is each name, as in the rules file. It connects to no broker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeVar

import click

from penstock.cli.completing import complete_groups, complete_topics
from penstock.cli.options import WrongUsageError
from penstock.core.errors import ConfigError
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.host_text import read_host
from penstock.security.acls.rule_text import (
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    read_operation,
    read_pattern,
    read_resource_type,
)
from penstock.security.acls.values import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Principal, read_principal

Command = TypeVar("Command", bound=Callable[..., Any])
Resource = tuple[ResourceType, str, PatternType]

COMBINATIONS_MAX: Final = 10_000
"""Rules that one command creates, as many as one request may change."""

_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
_NAMED: Final = (
    ("topic", ResourceType.TOPIC, "topic", complete_topics),
    ("group", ResourceType.GROUP, "consumer group", complete_groups),
    ("transactional-id", ResourceType.TRANSACTIONAL_ID, "transactional id", None),
)


@dataclass(frozen=True, slots=True)
class RuleWords:
    """The words of a command line, parsed; an empty tuple where an option is not given."""

    principals: tuple[str, ...]
    hosts: tuple[str, ...]
    operations: tuple[Operation, ...]
    resources: tuple[Resource, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no option is given."""
        return not (self.principals or self.hosts or self.operations or self.resources)

    def rules(self, permission: Permission) -> list[AclBinding]:
        """Return the rules to create; raise a usage error if something is missing."""
        for option, given in (
            ("--principal", self.principals),
            ("--operation", self.operations),
            ("--topic, --group, --transactional-id, --cluster or --resource", self.resources),
        ):
            if not given:
                raise click.UsageError(f"Missing option {option}.")
        hosts = self.hosts or (WILDCARD,)
        count = len(self.principals) * len(hosts) * len(self.operations) * len(self.resources)
        if count > COMBINATIONS_MAX:
            raise click.UsageError(
                f"The options mean {count:,} rules, at most {COMBINATIONS_MAX:,} are created."
            )
        every = product(self.resources, self.principals, hosts, self.operations)
        return [
            AclBinding(*resource, principal, host, operation, permission)
            for resource, principal, host, operation in every
        ]

    def filters(self, permission: Permission, *, applying: bool = False) -> list[AclFilter]:
        """Return the filters of these words; `applying`: rules that apply to the resources."""
        resources: Sequence[tuple[ResourceType, str | None, PatternType]] = self.resources or (
            (ResourceType.ANY, None, PatternType.ANY),
        )
        every = product(
            resources,
            self.principals or (None,),
            self.hosts or (None,),
            self.operations or (Operation.ANY,),
        )
        return [
            AclFilter(
                resource_type,
                name,
                PatternType.MATCH if applying and name is not None else pattern_type,
                principal,
                host,
                operation,
                permission,
            )
            for (resource_type, name, pattern_type), principal, host, operation in every
        ]


def rule_options(command: Command) -> Command:
    """Add the options that name rules; `read_rule_words` parses their values."""
    command = click.option(
        "--host",
        "hosts",
        multiple=True,
        metavar="ADDRESS",
        help="Address of the client; without it, any address.",
    )(command)
    command = click.option(
        "--pattern",
        type=click.Choice(list(_PATTERNS)),
        help="Read all names as literal names, or as prefixes; a final * has no meaning then.",
    )(command)
    command = resource_options(command)
    command = click.option(
        "--operation",
        "operations",
        multiple=True,
        metavar="NAME",
        help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, ..., or All.",
    )(command)
    return click.option(
        "--principal",
        "principals",
        multiple=True,
        metavar="TYPE:NAME",
        help="User of the rule, such as User:alice; 'User:*' is every user.",
    )(command)


def resource_options(command: Command) -> Command:
    """Add the options that name resources; `read_resources` parses their values."""
    command = click.option(
        "--resource",
        "others",
        multiple=True,
        metavar="TYPE:NAME",
        help="A resource of any type, such as Topic:orders or DelegationToken:*.",
    )(command)
    command = click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself.")(
        command
    )
    for name, _, what, complete in reversed(_NAMED):
        command = click.option(
            f"--{name}",
            f"{name.replace('-', '_')}s",
            multiple=True,
            metavar="NAME",
            shell_complete=complete,
            help=f"A {what}; NAME* is a prefix, '*' is every {what}.",
        )(command)
    return command


def read_rule_words(words: dict[str, Any]) -> RuleWords:
    """Parse the values of `rule_options`; raise a usage error for a wrong one."""
    return RuleWords(
        tuple(str(parsed_principal(text, "--principal")) for text in words["principals"]),
        tuple(_host(text) for text in words["hosts"]),
        tuple(parsed_operation(text) for text in words["operations"]),
        tuple(read_resources(words, words["pattern"])),
    )


def read_resources(words: dict[str, Any], pattern: str | None) -> list[Resource]:
    """Parse the values of `resource_options`."""
    found = [
        (resource_type, *_pattern(text, pattern))
        for name, resource_type, _, _ in _NAMED
        for text in words[f"{name.replace('-', '_')}s"]
    ]
    if words["on_cluster"]:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    for text in words["others"]:
        type_name, colon, name = text.partition(":")
        resource_type = read_resource_type(type_name)
        if resource_type is None or not colon:
            raise WrongUsageError(
                f"--resource: {text!r} is not TYPE:NAME.",
                hint=f"Types are {', '.join(RESOURCE_TYPE_NAMES.values())}.",
            )
        found.append((resource_type, *_pattern(name, pattern)))
    for _, name, _ in found:
        if not name:
            raise click.UsageError("The name of a resource is empty.")
    return found


def _pattern(text: str, pattern: str | None) -> tuple[str, PatternType]:
    return read_pattern(text) if pattern is None else (text, _PATTERNS[pattern])


def parsed_principal(text: str, option: str) -> Principal:
    """Return the principal of an option."""
    try:
        return read_principal(text)
    except ConfigError as error:
        raise WrongUsageError(f"{option}: {error}", hint=error.hint) from error


def parsed_operation(text: str) -> Operation:
    """Return the operation of an option."""
    operation = read_operation(text)
    if operation is None:
        raise WrongUsageError(
            f"--operation: {text!r} is unknown.",
            hint=f"Operations are {', '.join(OPERATION_NAMES.values())}.",
        )
    return operation


def _host(text: str) -> str:
    host = read_host(text)
    if host is None:
        raise WrongUsageError(
            f"--host: {text!r} is not an address. Rules compare addresses, not host names or "
            "networks.",
            hint="Write an address such as 10.0.0.7, or leave --host out for each one.",
        )
    return host
