"""The JSON file of access rules: parser and writer (pure).

    {
      "rules": [
        {"principal": "User:alice", "operation": "Read", "resource": "Topic:orders-*"},
        {"principal": "User:*", "operation": "All", "resource": "Group:*", "allow": false},
        {"principal": "User:bob", "operation": "Write", "resource": "Topic:orders",
         "host": "10.0.0.7"}
      ]
    }

`operation` has Kafka's names in upper or lower case. `resource` is a type and a name; a name that
ends with `*` is a prefix, and `*` alone is each name. `host` is an address or `*`, the default.
`allow` is true by default. `pattern`, which is needed only for a literal name that ends with `*`,
is `literal` or `prefixed`, and the name is then used as it is. `verbatim`, which `format_rules`
writes where it is needed, is true for a rule whose principal and host are used as they are, even if
no client can have them: a broker accepts such rules by the API, as Kafka does.

Guarantees: a file is accepted whole or refused whole, with the position of the wrong rule and the
remedy. A rule that could never apply is refused, because a DENY with a typing error protects
nothing: unknown keys and names, the same rule twice, and, unless it is `verbatim`, a host that is
not an address and a principal of another kind than User. `format_rules` writes every rule that a
broker can hold, and `parse_rules` returns the same rules from its text.

It does NOT read files: the caller passes the bytes.
"""

import json
from collections.abc import Iterable
from typing import Final, NoReturn

from penstock.core.errors import ConfigError
from penstock.security.acls.filters import creation_problem
from penstock.security.acls.host_text import read_host
from penstock.security.acls.rule_text import (
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    is_pattern_text_ambiguous,
    read_operation,
    read_pattern,
    read_resource_type,
    resource_text,
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
from penstock.security.principal import USER

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""10,000 rules of 400 bytes. A parsed text takes about ten times its size in memory."""
RULES_MAX: Final = 10_000
"""As many as Kafka creates by one request; parsing them takes about 0.1 s."""

_REQUIRED: Final = ("principal", "operation", "resource")
_OPTIONAL: Final = ("host", "allow", "pattern", "verbatim")
_KEYS: Final = (*_REQUIRED, *_OPTIONAL)
_FORM: Final = (
    'Write {"rules": [{"principal": "User:alice", "operation": "Read",'
    ' "resource": "Topic:orders"}]}'
)
_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}


def parse_rules(
    data: bytes, *, bytes_max: int = FILE_BYTES_MAX, rules_max: int = RULES_MAX
) -> tuple[AclBinding, ...]:
    """Return the rules of a file in their order; raise `ConfigError` for the first problem."""
    if len(data) > bytes_max:
        raise ConfigError(
            f"the rules file has {len(data):,} bytes, at most {bytes_max:,} are read.",
            hint="Use prefixes (Topic:orders-*) to have fewer rules, or create rules by the API.",
        )
    entries = _entries(_document(data), rules_max)
    seen: dict[AclBinding, int] = {}
    for number, entry in enumerate(entries):
        place = f"rules[{number}]"
        rule = _rule(entry, place)
        if rule in seen:
            raise ConfigError(
                f"{place} is the same rule as rules[{seen[rule]}].", hint="Delete one of them."
            )
        seen[rule] = number
    return tuple(seen)


def format_rules(rules: Iterable[AclBinding]) -> str:
    """Return the text of a rules file with these rules, sorted, each on one line."""
    lines = [
        json.dumps(_entry(rule), ensure_ascii=False) for rule in sorted(set(rules), key=_order)
    ]
    body = "".join(f"\n    {line}," for line in lines).removesuffix(",")
    return f'{{\n  "rules": [{body}\n  ]\n}}\n'


# --- Parsing ---


def _document(data: bytes) -> object:
    try:
        document: object = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the rules file is not UTF-8: byte {error.start} is wrong.",
            hint="Save the file as UTF-8.",
        ) from None
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"the rules file is not JSON: line {error.lineno}, column {error.colno}: {error.msg}.",
            hint=_FORM,
        ) from None
    except RecursionError:
        raise ConfigError("the rules file is nested too deeply.", hint=_FORM) from None
    except ValueError:
        raise ConfigError("the rules file has a number with too many digits.", hint=_FORM) from None
    return document


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(
                f"the rules file has the key {_cut(key)!r} twice in one object.", hint=_FORM
            )
        found[key] = value
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ConfigError(f"the rules file has {text}, which is not JSON.", hint=_FORM)


def _entries(document: object, rules_max: int) -> list[object]:
    if not isinstance(document, dict) or list(document) != ["rules"]:
        shown = f"the keys {sorted(document)}" if isinstance(document, dict) else "no object"
        raise ConfigError(
            f"the rules file must be an object with the key 'rules' alone; it has {_cut(shown)}.",
            hint=_FORM,
        )
    entries = document["rules"]
    if not isinstance(entries, list):
        raise ConfigError("'rules' must be a list.", hint=_FORM)
    if len(entries) > rules_max:
        raise ConfigError(
            f"the rules file has {len(entries):,} rules, at most {rules_max:,} are read.",
            hint="Use prefixes (Topic:orders-*) to have fewer rules, or create rules by the API.",
        )
    return entries


def _rule(entry: object, place: str) -> AclBinding:
    if not isinstance(entry, dict):
        raise ConfigError(f"{place} must be an object.", hint=_FORM)
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(
                f"{place} has the unknown key {_cut(key)!r}.", hint=f"Keys are {', '.join(_KEYS)}."
            )
    for key in _REQUIRED:
        if key not in entry:
            raise ConfigError(f"{place} has no key '{key}'.", hint=f"Add it. {_FORM}")
    allow = _flag(entry, "allow", place, default=True)
    is_verbatim = _flag(entry, "verbatim", place, default=False)
    host = _text(entry, "host", place) if "host" in entry else WILDCARD
    principal = _text(entry, "principal", place)
    resource_type, name, pattern_type = _resource(entry, place)
    rule = AclBinding(
        resource_type,
        name,
        pattern_type,
        _principal(principal, place, is_verbatim=is_verbatim),
        host if is_verbatim else _host(host, place),
        _operation(_text(entry, "operation", place), place),
        Permission.ALLOW if allow else Permission.DENY,
    )
    problem = creation_problem(rule)
    if problem is not None:
        hint = (
            f"Write Cluster:{CLUSTER_NAME}."
            if resource_type == ResourceType.CLUSTER
            else "Write a name after the colon, or * for each one."
        )
        raise ConfigError(f"{place}.resource: {problem}.", hint=hint)
    return rule


def _text(entry: dict[str, object], key: str, place: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise ConfigError(f"{place}.{key} must be a text.", hint=f"Put it into quotes. {_FORM}")
    if not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
        raise ConfigError(
            f"{place}.{key} has half of a surrogate pair, which is no character.",
            hint="Write the character itself.",
        )
    return value


def _flag(entry: dict[str, object], key: str, place: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{place}.{key} must be true or false.", hint="Write it without quotes.")
    return value


def _principal(text: str, place: str, *, is_verbatim: bool) -> str:
    is_accepted = ":" in text if is_verbatim else _is_user(text)
    if not is_accepted:
        raise ConfigError(
            f"{place}.principal {_cut(text)!r} is not a user.",
            hint=f"Write {USER}:alice, or {USER}:* for each one.",
        )
    return text


def _is_user(text: str) -> bool:
    kind, _, name = text.partition(":")
    return kind == USER and bool(name)


def _host(text: str, place: str) -> str:
    host = read_host(text)
    if host is None:
        raise ConfigError(
            f"{place}.host {_cut(text)!r} is not an address. Rules compare addresses, not host"
            " names or networks.",
            hint="Write an address such as 10.0.0.7, or * for each one.",
        )
    return host


def _operation(text: str, place: str) -> Operation:
    operation = read_operation(text)
    if operation is None:
        raise ConfigError(
            f"{place}.operation {_cut(text)!r} is unknown.",
            hint=f"Operations are {', '.join(OPERATION_NAMES.values())}.",
        )
    return operation


def _resource(entry: dict[str, object], place: str) -> tuple[ResourceType, str, PatternType]:
    text = _text(entry, "resource", place)
    type_name, _, name = text.partition(":")
    resource_type = read_resource_type(type_name)
    if resource_type is None:
        raise ConfigError(
            f"{place}.resource {_cut(text)!r} has an unknown type.",
            hint=f"Write a type, a colon and a name. Types are"
            f" {', '.join(RESOURCE_TYPE_NAMES.values())}.",
        )
    if "pattern" not in entry:
        return resource_type, *read_pattern(name)
    pattern_type = _PATTERNS.get(_text(entry, "pattern", place))
    if pattern_type is None:
        raise ConfigError(
            f"{place}.pattern must be 'literal' or 'prefixed'.",
            hint="Leave it out: a name that ends with * is a prefix.",
        )
    return resource_type, name, pattern_type


def _cut(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "..."


# --- Writing ---


def _entry(rule: AclBinding) -> dict[str, str | bool]:
    entry: dict[str, str | bool] = {
        "principal": rule.principal,
        "operation": OPERATION_NAMES[rule.operation],
        "resource": resource_text(rule.resource_type, rule.name, rule.pattern_type),
    }
    if is_pattern_text_ambiguous(rule.name, rule.pattern_type):
        entry["pattern"] = "literal"
    entry["host"] = rule.host
    entry["allow"] = rule.permission == Permission.ALLOW
    if not _is_user(rule.principal) or read_host(rule.host) != rule.host:
        entry["verbatim"] = True
    return entry


def _order(rule: AclBinding) -> tuple[object, ...]:
    """Sort by the resource as it is read, then by the grantee; the form is the same each time."""
    return (
        rule.resource_type,
        rule.name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
