"""Judges identity and access: open listeners, missing authorizers, users and access rules (pure).

Guarantees: a listener that other machines reach without TLS or without an authorizer is a finding
that names it, even if `security.allow_insecure` lets the broker start. It does NOT judge
certificates: `certificate_judging` does.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from penstock.cli.doctor.facts import AccessFacts, SourceFacts
from penstock.cli.doctor.judging import FINDING, FINE, NOTE, Judgement
from penstock.core.loopback import is_loopback
from penstock.core.quantities import count_text
from penstock.core.settings.contradictions import super_users
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.security.acls.findings import FindingKind, RuleFinding, rule_findings
from penstock.security.acls.host_text import can_equal_an_address
from penstock.security.acls.rule_text import (
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    is_pattern_text_ambiguous,
    pattern_text,
    printable,
    rule_text,
)
from penstock.security.acls.values import AclBinding, PatternType, Permission, ResourceType
from penstock.security.principal import ANONYMOUS

FINDINGS_SHOWN_MAX: Final = 10
"""Rules of one kind in a report; the others are counted."""

_SCRAM: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
_READABLE_CREDENTIALS: Final = {"PLAIN": "passwords", "OAUTHBEARER": "tokens"}
_PROBLEMS: Final = {
    FindingKind.CLUSTER_FOR_EVERYONE: "every user has a permission on the whole cluster",
    FindingKind.VOID_ALLOW: "DENY rules take back everything that this rule allows",
    FindingKind.NO_CLIENT: "no client can match this rule",
    FindingKind.NO_RESOURCE: "no existing name matches this rule",
}


# --- Settings ---


def judge_exposure(settings: Settings) -> Iterator[Judgement]:
    """Judge what other machines reach without TLS or without an authorizer."""
    reachable = [one for one in settings.all_listeners if not is_loopback(one.host)]
    for listener in reachable:
        if not listener.has_tls:
            yield _judge_readable(listener)
    security = settings.security
    if reachable and security.authorizer == "none":
        names = ", ".join(one.name for one in reachable)
        yield Judgement(
            "authorizer",
            FINDING,
            f"other machines reach {count_text(len(reachable), 'listener')} ({names}), and each "
            'client may do everything: security.authorizer is "none"',
            'Set security.authorizer = "acl" and security.super_users.',
        )
    if security.authorizer == "acl" and security.allow_everyone_if_no_acl_found:
        yield Judgement(
            "authorizer",
            NOTE,
            "a resource without an access rule is open to each client: "
            "security.allow_everyone_if_no_acl_found is true",
        )
    yield from _judge_admin(settings)


def _judge_readable(listener: NamedListener) -> Judgement:
    credentials = [
        words for name, words in _READABLE_CREDENTIALS.items() if name in listener.mechanisms
    ]
    carried = " and ".join([*credentials, "records"])
    mechanisms = f" and {', '.join(listener.mechanisms)}" if listener.mechanisms else ""
    protocol = "SASL_SSL" if listener.has_sasl else "SSL"
    return Judgement(
        "listener",
        FINDING,
        f"listener {listener.name} with {listener.protocol}{mechanisms} on {listener.host} has no "
        f"TLS: {carried} cross the network readable",
        f'Set protocol = "{protocol}" and tls of listener {listener.name} in [[listeners]].',
    )


def _judge_admin(settings: Settings) -> Iterator[Judgement]:
    admin = settings.admin
    if not admin.enabled or is_loopback(admin.host):
        return
    if admin.auth == "none":
        yield Judgement(
            "admin",
            FINDING,
            f"other machines reach the admin port on {admin.host}, and each caller may administer "
            'this broker: admin.auth is "none"',
            'Set admin.auth to "basic", "bearer" or "mtls".',
        )
    elif admin.certificate is None:
        yield Judgement(
            "admin",
            FINDING,
            f"the admin port on {admin.host} has no TLS: passwords and tokens cross the network "
            "readable",
            "Set admin.certificate and admin.key.",
        )


def judge_client_protocol(settings: Settings, protocol: str) -> Iterator[Judgement]:
    """Judge whether the client's settings fit one of the listeners."""
    offered = {one.protocol for one in settings.all_listeners}
    if protocol not in offered:
        yield Judgement(
            "listener",
            NOTE,
            f"the client's security.protocol is {protocol}, and the listeners have "
            f"{', '.join(sorted(offered))}: no login was tried",
        )


def judge_source(facts: SourceFacts) -> Judgement:
    """Judge a file or a service that the settings name."""
    if facts.is_unchecked:
        return Judgement(facts.check, NOTE, f"{facts.name} was not checked: {facts.problem}")
    if not facts.problem:
        return Judgement(facts.check, FINE, f"{facts.name}: {facts.content}")
    words = facts.problem if facts.name in facts.problem else f"{facts.name}: {facts.problem}"
    return Judgement(facts.check, FINDING, words, facts.remedy or _source_remedy(facts))


def _source_remedy(facts: SourceFacts) -> str:
    if facts.check == "jwks":
        return "Set oidc.jwks to the address or the file of the provider's keys (jwks_uri)."
    return f"Correct {facts.name}."


# --- Users ---


def judge_super_users(settings: Settings, facts: AccessFacts) -> Iterator[Judgement]:
    """Judge whether super users can log in with a SCRAM credential."""
    users = facts.users
    security = settings.security
    mechanisms = {one for listener in settings.all_listeners for one in listener.mechanisms}
    is_scram_used = bool(mechanisms & _SCRAM) or (
        "PLAIN" in mechanisms and security.plain_verifier == "scram"
    )
    if users is None or security.authorizer != "acl" or not is_scram_used:
        return
    has_certificates = any(
        one.tls is not None and one.tls.client_auth != "none" for one in settings.all_listeners
    )
    for text in super_users(settings):
        name = text.partition(":")[2]
        is_of_certificate = has_certificates and "=" in name  # a distinguished name
        if text != str(ANONYMOUS) and not is_of_certificate and name not in users:
            yield Judgement(
                "users",
                NOTE,
                f"super user {printable(text)} has no SCRAM credential: without a certificate or "
                "a token it cannot log in. Add one with "
                f"`{_command('user', 'add', name, bootstrap=facts.bootstrap)}`",
            )


# --- Access rules ---


def judge_access(
    facts: AccessFacts,
    *,
    is_remote: bool,
    rules_file: str = "",
    rules_in_file: Collection[AclBinding] = (),
) -> Iterator[Judgement]:
    """Judge the rules of a cluster; some of them can be those of the broker's rules file."""
    if facts.rules is not None:
        yield from judge_rules(
            rule_findings(facts.rules, facts.existing),
            len(facts.rules),
            bootstrap=facts.bootstrap,
            rules_file=rules_file,
            rules_in_file=rules_in_file,
        )
        if (
            any(rule.resource_type == ResourceType.TOPIC for rule in facts.rules)
            and ResourceType.TOPIC not in facts.existing
        ):
            yield Judgement(
                "acl", NOTE, "rules for topics were not compared: the caller may not see all topics"
            )
    elif facts.has_authorizer:
        yield Judgement(
            "acl",
            NOTE,
            f"access rules were not checked: {facts.problem.removesuffix('.')}. Give the settings "
            "of an administrator with --command-config",
        )
    elif is_remote:
        yield Judgement("acl", NOTE, "the cluster has no authorizer: each client may do everything")


def judge_rules(
    found: Iterable[RuleFinding],
    count: int,
    *,
    bootstrap: str = "",
    rules_file: str = "",
    rules_in_file: Collection[AclBinding] = (),
) -> Iterator[Judgement]:
    """Judge the findings about `count` rules."""
    shown: Counter[FindingKind] = Counter()
    is_clean = True
    for one in found:
        is_clean &= one.kind == FindingKind.NO_RESOURCE
        shown[one.kind] += 1
        if shown[one.kind] <= FINDINGS_SHOWN_MAX:
            file = rules_file if one.rule in rules_in_file else ""
            yield _judge_rule(one, file, bootstrap)
    for kind, number in shown.items():
        if number > FINDINGS_SHOWN_MAX:
            more = count_text(number - FINDINGS_SHOWN_MAX, "more rule")
            yield Judgement("acl", NOTE, f"{more}: {_PROBLEMS[kind]}")
    if is_clean:
        words = f"{count_text(count, 'access rule')} without a contradiction"
        yield Judgement("acl", FINE, words if count else "there are no access rules")


def _judge_rule(found: RuleFinding, file: str, bootstrap: str) -> Judgement:
    words = f"{rule_text(found.rule)}: {_PROBLEMS[found.kind]}"
    if found.kind == FindingKind.NO_CLIENT:
        is_host_possible = can_equal_an_address(found.rule.host)
        words += (
            ", because its principal is not a User"
            if is_host_possible
            else ", because rules compare addresses, not host names or networks"
        )
    if found.kind == FindingKind.NO_RESOURCE:
        # Not a fault: rules are often created before the topics and groups that they are for.
        return Judgement("acl", NOTE, words)
    remedy = f"Delete the rule from {file}." if file else f"`{_removal(found.rule, bootstrap)}`"
    return Judgement("acl", FINDING, words, remedy)


def _removal(rule: AclBinding, bootstrap: str) -> str:
    """Return the command that deletes the rule, after a confirmation."""
    name = rule.name
    is_ambiguous = is_pattern_text_ambiguous(name, rule.pattern_type)
    if not is_ambiguous:
        name = pattern_text(name, rule.pattern_type)
    words = ["--principal", rule.principal]
    words += ["--operation", OPERATION_NAMES[rule.operation]]
    words += ["--resource", f"{RESOURCE_TYPE_NAMES[rule.resource_type]}:{name}"]
    if is_ambiguous:
        is_prefix = rule.pattern_type == PatternType.PREFIXED
        words += ["--pattern", "prefixed" if is_prefix else "literal"]
    if can_equal_an_address(rule.host):  # the command accepts no other one
        words += ["--host", rule.host]
    words += ["--permission", "allow" if rule.permission == Permission.ALLOW else "deny"]
    return _command("acl", "remove", *words, bootstrap=bootstrap)


def _command(*words: str, bootstrap: str) -> str:
    """Return a command for the shell; names of others cannot add words to it."""
    place = ("--bootstrap-server", bootstrap) if bootstrap else ()
    return " ".join(shlex.quote(printable(word)) for word in ("penstock", *words, *place))
