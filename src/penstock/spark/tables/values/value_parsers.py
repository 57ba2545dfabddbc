"""Creates the parser of a definition's values, in two steps.

The driver creates a `ParserPlan`: it reads the schema's file, or requests the newest schema of the
subject from the registry. A task creates the parser from the plan, which is a plain value: it needs
no file, and requests only the ids of its values from the registry.

Guarantees: the driver reports an unreadable schema, before a batch begins, with its key in the
definition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition.ddl import parse_ddl, to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import (
    ChangeSettings,
    SchemaSource,
    UnknownFields,
    ValueFormat,
    ValueSettings,
)
from penstock.spark.tables.values.cdc.database_changes import ChangeValues
from penstock.spark.tables.values.json.schema import parse_json_schema
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.limits import ShownValues
from penstock.spark.tables.values.parser import ValueParser
from penstock.spark.tables.values.raw import RawValues
from penstock.spark.tables.values.registered_values import RegisteredValues, TableColumns
from penstock.spark.tables.values.registry import RegisteredSchema, Registry, UnknownSchemaError
from penstock.spark.tables.values.unknown_fields import RESCUED, UnknownFieldValues

FILE_BYTES_MAX: Final = 4_194_304
SUBJECT_SUFFIX: Final = "-value"
"""The subject of a topic's values in Confluent's producers."""


@dataclass(frozen=True, slots=True)
class ParserPlan:
    """A task's input for parsing values."""

    format: ValueFormat
    ddl: str | None = None
    """The columns, if they are known as DDL."""
    files: tuple[tuple[str, str], ...] = ()
    """The schema's files: their texts by name."""
    message: str | None = None
    registry: str | None = None
    registry_options: tuple[tuple[str, str], ...] = ()
    """The identity that the registry sees, as references."""
    base: RegisteredSchema | None = None
    """The newest schema of the subject."""
    unknown_fields: UnknownFields = UnknownFields.IGNORE
    """The handling of JSON fields without a column."""
    changes: ChangeSettings = field(default_factory=ChangeSettings)
    """The reading of values as changes of rows."""


def plan_parser(
    value: ValueSettings, topics: tuple[str, ...], pinned: pa.Schema | None = None
) -> ParserPlan:
    """Return the plan with the schema; `pinned` is the inferred one, which the caller keeps."""
    plan = _schema_plan(value, topics, pinned)
    if value.changes.is_plain:
        return plan
    return replace(plan, changes=value.changes, unknown_fields=UnknownFields.IGNORE)


def _schema_plan(
    value: ValueSettings, topics: tuple[str, ...], pinned: pa.Schema | None
) -> ParserPlan:
    source, text, unknown = value.schema_source, value.schema, value.unknown_fields
    if source is SchemaSource.NONE:
        return ParserPlan(value.format)
    if source is SchemaSource.INFERRED:
        assert pinned is not None, "an inferred schema is pinned before values are read"
        own = [one for one in pinned if one.name != RESCUED or unknown is not UnknownFields.RESCUE]
        return ParserPlan(value.format, ddl=to_ddl(pa.schema(own)), unknown_fields=unknown)
    assert text is not None, "the definition was checked"
    if source is SchemaSource.DDL:
        return ParserPlan(value.format, ddl=text, unknown_fields=unknown)
    if source is SchemaSource.REGISTRY:
        newest = _newest(value, text, topics)
        options = value.registry
        return ParserPlan(value.format, registry=text, registry_options=options, base=newest)
    content = _read(Path(text))
    if value.format is ValueFormat.JSON:
        ddl = to_ddl(parse_json_schema(content, text))
        return ParserPlan(value.format, ddl=ddl, unknown_fields=unknown)
    return ParserPlan(value.format, files=((Path(text).name, content),), message=value.message)


def new_parser(
    plan: ParserPlan, table: TableColumns | None = None, key: Sequence[str] = ()
) -> ValueParser:
    """Return the parser of this plan; its rows have only times that readers can show.

    `table` has the columns that values of a registry's schemas must fit. A parser that counts
    fields without a column is an `UnknownFieldValues`, and one of changes a `ChangeValues` with
    the columns of the table's key.
    """
    if not plan.changes.is_plain:
        assert plan.ddl is not None, "the definition was checked"
        return ChangeValues(parse_ddl(plan.ddl), plan.changes, key)
    shown = ShownValues(_parser_of(plan, table), is_framed=plan.registry is not None)
    if plan.unknown_fields is UnknownFields.IGNORE:
        return shown
    return UnknownFieldValues(shown, plan.unknown_fields)


def _parser_of(plan: ParserPlan, table: TableColumns | None) -> ValueParser:
    """Return the parser; import the modules of its format on first use."""
    if plan.registry is not None:
        return _registered(plan, Registry(plan.registry, dict(plan.registry_options)), table)
    if plan.format is ValueFormat.RAW:
        return RawValues()
    if plan.ddl is not None:
        return JsonValues(parse_ddl(plan.ddl))
    name, text = plan.files[0]
    if plan.format is ValueFormat.AVRO:
        from penstock.spark.tables.values.avro.values import avro_file_values

        return avro_file_values(text, name)
    from penstock.spark.tables.values.protobuf.values import protobuf_file_values

    return protobuf_file_values(dict(plan.files), name, plan.message, name)


def _registered(
    plan: ParserPlan, registry: Registry, table: TableColumns | None
) -> RegisteredValues:
    if plan.format is ValueFormat.AVRO:
        from penstock.spark.tables.values.avro.values import avro_registry_values

        return avro_registry_values(registry, plan.base, table)
    if plan.format is ValueFormat.PROTOBUF:
        from penstock.spark.tables.values.protobuf.values import protobuf_registry_values

        return protobuf_registry_values(registry, plan.base, table)
    from penstock.spark.tables.values.json.registry import json_registry_values

    return json_registry_values(registry, plan.base, table)


def _newest(value: ValueSettings, address: str, topics: tuple[str, ...]) -> RegisteredSchema | None:
    subject = value.subject
    if subject is None:
        if not topics:
            return None
        subject = topics[0] + SUBJECT_SUFFIX
    try:
        return Registry(address, dict(value.registry)).latest(subject)
    except UnknownSchemaError as error:
        raise SchemaError(
            f"subject '{subject}'",
            str(error),
            "Register a schema, or set value.subject to the subject that the producer uses.",
        ) from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SchemaError(
            str(path),
            f"it cannot be read: {reason}.",
            "Correct value.schema; a relative path begins where the command is started.",
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise SchemaError(
            str(path), f"it has more than {FILE_BYTES_MAX} bytes.", "Give the file of a schema."
        )
    return text
