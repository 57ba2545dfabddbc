"""Writes `src/penstock/protocol/messages/`: one class for all versions of each Kafka message.

Reads kio's dataclasses (one for each message and version, generated from Kafka's own schemas) and
unites them: a field of any version is a field of the class, nullable if it is nullable in any
version, with the schema's default or Kafka's implicit one where a version lacks it. Guarantees: the
same kio produces the same bytes, already in the repository's format. `--check` writes nothing and
fails when a file is stale, missing or left over.

A field is required when kio has no default for it and every version has it, except an error code
(NONE), a throttle time (0) and nullable fields (None). Nested names that the request and the
response of one API share get the prefix `Request` or `Response`. This is NOT the codec: the layout
of bytes stays in kio's classes and `penstock.protocol.codec`.
"""

import argparse
import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kio.index import load_entity_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.ignorable_fields import IGNORABLE_FIELDS
from penstock.protocol.schema import NO_DEFAULT, STRUCT_DEFAULT, FieldShape, StructShape, describe

TARGET = Path(__file__).resolve().parents[1] / "src" / "penstock" / "protocol" / "messages"
PLAIN_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | bytearray | memoryview",
    "uuid": "uuid.UUID | None",
    "error_code": "ErrorCode",
}
IMPLICIT_DEFAULTS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": "None",
    "uuid": "None",
    "error_code": "ErrorCode.NONE",
}
LINE_WIDTH = 100


@dataclass
class UnionField:
    """One field over all versions that have it."""

    shapes: dict[int, FieldShape] = field(default_factory=dict)
    text: str = ""

    @property
    def newest(self) -> FieldShape:
        """The field of the newest version."""
        return self.shapes[max(self.shapes)]

    @property
    def nullable(self) -> bool:
        """Whether any version may write null."""
        return any(shape.nullable for shape in self.shapes.values())


@dataclass
class UnionStruct:
    """One structure over all versions that have it."""

    name: str
    versions: set[int] = field(default_factory=set)
    fields: dict[str, UnionField] = field(default_factory=dict)
    defaults_needed: bool = False


@dataclass
class UnionMessage:
    """One message: its structures, nested ones first."""

    name: str
    kind: str
    versions: list[int]
    flexible_since: int | None
    structs: dict[str, UnionStruct] = field(default_factory=dict)


def field_texts(kio_class: type) -> dict[tuple[str, str], str]:
    """Return the text under each field, by class and field; only kio's source has it."""
    module = inspect.getmodule(kio_class)
    assert module is not None
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for item, following in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                found[node.name, item.target.id] = str(following.value.value)
    return found


def add_struct(
    message: UnionMessage, shape: StructShape, version: int, texts: dict[tuple[str, str], str]
) -> None:
    """Unite one version of a structure, and of its nested structures, with earlier versions."""
    for item in shape.fields:
        if item.struct is not None:
            add_struct(message, item.struct, version, texts)
            if item.default is not NO_DEFAULT or item.tag is not None:
                message.structs[item.struct.name].defaults_needed |= not item.is_array
    struct = message.structs.setdefault(shape.name, UnionStruct(shape.name))
    struct.versions.add(version)
    for item in shape.fields:
        united = struct.fields.setdefault(item.name, UnionField())
        united.shapes[version] = item
        kio_name = item.name.removesuffix("_ms")
        text = texts.get((shape.name, item.name)) or texts.get((shape.name, kio_name), "")
        united.text = united.text or " ".join(text.split())


def load_messages(only: set[str] | None = None) -> Iterator[tuple[str, list[UnionMessage]]]:
    """Yield every API of kio by name, or only some, with its messages."""
    for api_name, by_version in schema_name_map.items():
        if only is not None and api_name not in only:
            continue
        messages: dict[EntityType, UnionMessage] = {}
        for version in sorted(by_version, reverse=True):
            for entity_type in by_version[version]:
                kio_class = load_entity_schema(api_name, version, entity_type)
                shape = describe(kio_class)
                message = messages.setdefault(
                    entity_type, UnionMessage(shape.name, entity_type.name, [], None)
                )
                message.versions.insert(0, version)
                if shape.flexible:
                    message.flexible_since = version
                add_struct(message, shape, version, field_texts(kio_class))
        yield api_name, list(messages.values())


def nested_first(message: UnionMessage, name: str) -> list[UnionStruct]:
    """Return the structures in an order in which each follows the structures that it uses."""
    ordered: list[UnionStruct] = []
    for united in message.structs[name].fields.values():
        if united.newest.struct is not None:
            ordered += nested_first(message, united.newest.struct.name)
    ordered.append(message.structs[name])
    return list({struct.name: struct for struct in ordered}.values())


def shared_names(messages: list[UnionMessage]) -> set[str]:
    """Return nested names that more than one message of the file has."""
    seen: set[str] = set()
    shared: set[str] = set()
    for message in messages:
        shared |= seen & set(message.structs)
        seen |= set(message.structs)
    assert not {f"{m.kind.title()}{name}" for m in messages for name in shared} & seen
    return shared


def field_type(united: UnionField, names: dict[str, str]) -> str:
    """Return the annotation of a field."""
    shape = united.newest
    plain = names[shape.struct.name] if shape.struct else PLAIN_TYPES[shape.kind]
    if shape.is_array:
        plain = f"tuple[{plain}, ...]"
    if united.nullable or (shape.kind == "records" and not shape.is_array):
        plain = f"{plain} | None"
    return plain


def field_default(united: UnionField, struct: UnionStruct, names: dict[str, str]) -> str | None:
    """Return the default as source, or None for a required field."""
    shape = united.newest
    if shape.default is STRUCT_DEFAULT or (shape.struct and shape.tag is not None):
        assert shape.struct is not None
        return "()" if shape.is_array else f"{names[shape.struct.name]}()"
    if shape.default == "" or (shape.kind == "error_code" and shape.default == 0):
        return IMPLICIT_DEFAULTS[shape.kind]
    if shape.default is not NO_DEFAULT:
        return repr(shape.default)
    if united.nullable:
        return "None"
    absent_somewhere = set(united.shapes) != struct.versions
    goes_without_saying = shape.kind == "error_code" or shape.name == "throttle_time_ms"
    if not (absent_somewhere or goes_without_saying or struct.defaults_needed):
        return None
    if shape.is_array:
        return "()"
    assert shape.struct is None, "a required structure that a version lacks"
    return IMPLICIT_DEFAULTS.get(shape.kind, "0")


def version_text(versions: set[int], of: set[int]) -> str:
    """Return the versions of a field as text."""
    if versions == of:
        return "All versions."
    low, high = min(versions), max(versions)
    assert versions == set(range(low, high + 1)) & of, "a field that comes back"
    return f"Version {low}" if low == high else f"Versions {low}-{high}"


SECRET_FIELDS = frozenset({"auth_bytes", "salted_password", "hmac"})
"""Fields that no `repr` shows: passwords, tokens and keys derived from them."""


def docstring(text: str, indent: str) -> str:
    """Return a docstring with quotes and backslashes escaped."""
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    if escaped.endswith('"'):
        escaped += " "
    return f'{indent}"""{escaped}"""'


def field_lines(
    name: str, united: UnionField, struct: UnionStruct, message: UnionMessage, names: dict[str, str]
) -> list[str]:
    """Return the source of one field."""
    default = field_default(united, struct, names)
    line = f"    {name}: {field_type(united, names)}"
    if name in SECRET_FIELDS:
        assert default is None, "a secret has no default"
        line += " = field(repr=False)"
    if default is not None:
        line += f" = {default}"
    assert len(line) <= LINE_WIDTH, f"the formatter would break {line}"
    where = version_text(set(united.shapes), struct.versions)
    if where != "All versions.":
        ignorable = name in IGNORABLE_FIELDS.get(f"{message.name}.{struct.name}", ())
        where += ", ignorable elsewhere." if ignorable else "."
    text = united.text if united.text.endswith((".", "!", "?")) else f"{united.text}."
    text = f"{text} {where}" if united.text else where
    return [line, docstring(text, "    ")]


def struct_lines(struct: UnionStruct, message: UnionMessage, names: dict[str, str]) -> list[str]:
    """Return the source of one class."""
    is_message = struct.name == message.name
    low, high = min(struct.versions), max(struct.versions)
    about = f"All of a {message.name}" if is_message else f"One part of a {message.name}"
    lines = ["", "", "@message()", f"class {names[struct.name]}:"]
    lines += [docstring(f"{about}, versions {low}-{high}.", "    "), ""]
    if is_message:
        if message.kind in ("request", "response"):
            lines.append("    API_KEY: ClassVar[ApiKey] = ApiKey." + KEYS[message.name])
        lines.append(f"    VERSIONS: ClassVar[tuple[int, int]] = ({low}, {high})")
        lines.append(f"    FLEXIBLE_SINCE: ClassVar[int | None] = {message.flexible_since}")
        lines.append("")
    for name, united in struct.fields.items():
        lines += field_lines(name, united, struct, message, names)
    if lines[-1] == "":
        lines.pop()
    return lines


def module_source(api_name: str, messages: list[UnionMessage]) -> str:
    """Return the whole module of one API."""
    shared = shared_names(messages)
    body: list[str] = []
    for message in messages:
        prefix = message.kind.title()
        names = {name: prefix + name if name in shared else name for name in message.structs}
        for struct in nested_first(message, message.name):
            body += struct_lines(struct, message, names)
    source = "\n".join(body)
    what = " and ".join(message.name for message in messages)
    head = [f'"""Generated by tools/generate_messages.py from kio; do not edit: {what}.', ""]
    head += ["The union of all versions; how each version is written is NOT known here.", '"""', ""]
    if "uuid." in source:
        head += ["import uuid"]
    if " = field(" in source:
        head += ["from dataclasses import field"]
    head += ["from typing import ClassVar", ""]
    if "ApiKey" in source:
        head += ["from penstock.protocol.api_keys import ApiKey"]
    if "ErrorCode" in source:
        head += ["from penstock.protocol.error_codes import ErrorCode"]
    head += ["from penstock.protocol.message import message"]
    assert api_name.isidentifier(), "a name that cannot be a module"
    return "\n".join(head) + "\n" + source + "\n"


KEYS = {
    "".join(part.title() for part in name.split("_")) + suffix: ApiKey(key).name
    for key, name in api_key_map.items()
    for suffix in ("Request", "Response")
}
"""The `ApiKey` member of each request and response class."""


def main() -> int:
    """Write the modules, or with `--check` report the stale ones."""
    parser = argparse.ArgumentParser(description="Generate the message classes from kio.")
    parser.add_argument("--check", action="store_true", help="fail when a module is stale")
    check = parser.parse_args().check
    wanted = {
        TARGET / f"{name}.py": module_source(name, messages) for name, messages in load_messages()
    }
    present = {path for path in TARGET.glob("*.py") if path.name != "__init__.py"}
    stale = [p for p, text in wanted.items() if p not in present or p.read_text() != text]
    left_over = sorted(present - set(wanted))
    if check:
        for path in [*stale, *left_over]:
            print(f"stale: {path.name}: run tools/generate_messages.py", file=sys.stderr)
        return 1 if stale or left_over else 0
    for path in stale:
        path.write_text(wanted[path])
    for path in left_over:
        path.unlink()
    print(f"{len(wanted)} modules, {len(stale)} written, {len(left_over)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
