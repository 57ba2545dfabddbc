"""Reads the keys of `[value]` that describe changes of rows: envelope, deletions, order (pure).

Guarantees: returned settings fit the format of the values, and `require_upsert` rejects them for a
table that is not written by upserts. Names of fields are checked as names here; their existence is
checked with the schema, see `values.cdc`.
"""

import re
from dataclasses import replace
from typing import Final

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    ChangeSettings,
    Decimals,
    Envelope,
    PipelineDefinition,
    SchemaSource,
    TimeUnit,
    UnknownFields,
    ValueFormat,
    WriteMode,
)
from penstock.spark.tables.definition.values import Section

SEQUENCE_FIELDS_MAX: Final = 4
"""A position in a log has two or three parts; each is stored with every row."""
_COUNTED_ANEW: Final = frozenset({"transaction.total_order", "transaction.data_collection_order"})
"""Debezium counts them anew after a restart within a transaction (decision 0053)."""
_PROCESSED: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
"""When Debezium read a change: another time at each repetition."""
_REPEATED: Final = (
    "would repeat versions: after a crash of Kafka Connect, Debezium sends the same events again "
    "with another value of it."
)
_UNSTEADY: Final = {
    **dict.fromkeys(_COUNTED_ANEW | _PROCESSED, _REPEATED),
    "source.txId": "is no order of changes: a transaction with a lower id may commit later.",
}
"""Fields that order no history, and the reason."""
_HISTORY_ORDERS: Final = {
    Envelope.DEBEZIUM: 'sequence_by = ["source.lsn"]',
    Envelope.DEBEZIUM_FLAT: 'sequence_by = "__lsn"',
    Envelope.NONE: 'sequence_by = "version", a column of the value that rises with each change,',
}
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_WHEN: Final = re.compile(
    r"(?P<path>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*"
    r"(?:=\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<word>true|false)))?"
)
_TRUE: Final = "true"
_STRICT: Final = frozenset({UnknownFields.RESCUE, UnknownFields.REJECT})
_DEFAULT_FLAT: Final = "__deleted"
"""The field of `ExtractNewRecordState` with `delete.tombstone.handling.mode=rewrite`."""


def read_changes(section: Section, format_: ValueFormat, source: SchemaSource) -> ChangeSettings:
    """Return the settings in the section `[value]`."""
    envelope = section.choice("envelope", Envelope, Envelope.NONE)
    deleted_when = section.optional_text("deleted_when", "\"__deleted = 'true'\"")
    if deleted_when is None and envelope is Envelope.DEBEZIUM_FLAT:
        deleted_when = _DEFAULT_FLAT
    found = ChangeSettings(
        envelope=envelope,
        deleted_when=deleted_when,
        sequence_by=_sequence_by(section),
        decimals=section.choice("decimals", Decimals, Decimals.NUMBER),
        time_unit=section.choice("time_unit", TimeUnit, TimeUnit.SECONDS),
    )
    _require_used(section, found)
    if not found.is_plain:
        _require_readable(section, found, format_, source)
    return found


def _require_used(section: Section, found: ChangeSettings) -> None:
    """Report settings that have no effect."""
    if found.envelope is not Envelope.NONE:
        return
    for key, is_default in (
        ("decimals", found.decimals is Decimals.NUMBER),
        ("time_unit", found.time_unit is TimeUnit.SECONDS),
    ):
        if not is_default:
            section.fail(key, "only events of Debezium use it.", "Remove it, or set envelope.")


def _require_readable(
    section: Section, found: ChangeSettings, format_: ValueFormat, source: SchemaSource
) -> None:
    """Report settings that do not fit the values."""
    key = _first_key(found)
    if format_ is not ValueFormat.JSON or source is SchemaSource.REGISTRY:
        section.fail(key, "only JSON values without a registry have it.", "Remove it.")
    if section.choice("unknown_fields", UnknownFields, UnknownFields.COUNT) in _STRICT:
        section.fail("unknown_fields", f"it cannot be set together with {key}.", "Remove it.")
    if source is SchemaSource.INFERRED:
        section.fail(
            key, "it needs the columns of the rows.", 'Write schema = "id bigint, name string".'
        )
    if found.deleted_when is None:
        return
    if found.envelope is Envelope.DEBEZIUM:
        section.fail(
            "deleted_when",
            'an event with envelope = "debezium" has its own op.',
            'Remove it, or set envelope = "debezium_flat".',
        )
    if _WHEN.fullmatch(found.deleted_when.strip()) is None:
        section.fail(
            "deleted_when",
            f"{shown(found.deleted_when)} cannot be read.",
            "Write a field, or a field and its value: \"__deleted = 'true'\".",
        )


def _first_key(found: ChangeSettings) -> str:
    """Return the key of the definition that an error names."""
    if found.envelope is not Envelope.NONE:
        return "envelope"
    return "deleted_when" if found.deleted_when is not None else "sequence_by"


def deletion_field(deleted_when: str) -> tuple[str, str]:
    """Return the path of the field, and the text of its value that deletes a row."""
    found = _WHEN.fullmatch(deleted_when.strip())
    assert found is not None, "the definition was checked"
    text, word = found["text"], found["word"]
    return found["path"], text.replace("''", "'") if text is not None else word or _TRUE


def require_upsert(definition: PipelineDefinition, where: str) -> None:
    """Raise `DefinitionError` if changes are to be appended."""
    changes = definition.value.changes
    if changes.is_plain or definition.table.mode is WriteMode.UPSERT:
        return
    raise DefinitionError(
        where,
        f"value.{_first_key(changes)}",
        "the table is appended to, and changes need a table with a key.",
        'Write mode = "upsert" and key = ["id"] in [table].',
    )


def with_history(definition: PipelineDefinition, where: str) -> PipelineDefinition:
    """Return the definition, with its changes as versions if the table has a history.

    Raise `DefinitionError` if they have no order.
    """
    changes = definition.value.changes
    if not definition.table.history:
        return definition
    remedy = f"Write {_HISTORY_ORDERS[changes.envelope]} in [value]."
    if not changes.sequence_by:
        raise DefinitionError(
            where,
            "table.history",
            "the versions of a row need an order, and value.sequence_by is missing.",
            remedy,
        )
    if (unsteady := _unsteady_field(changes)) is not None:
        raise DefinitionError(
            where,
            "value.sequence_by",
            f"{shown(unsteady)} {_UNSTEADY[_field_of_event(unsteady)]}",
            remedy,
        )
    value = replace(definition.value, changes=replace(changes, has_history=True))
    return replace(definition, value=value)


def _unsteady_field(changes: ChangeSettings) -> str | None:
    """Return a field that orders no events that are sent again; None without one."""
    if changes.envelope is Envelope.NONE:
        return None
    is_flat = changes.envelope is Envelope.DEBEZIUM_FLAT
    for one in changes.sequence_by:
        is_own_column = is_flat and one in _PROCESSED  # `add.fields` writes a prefix
        if not is_own_column and _field_of_event(one) in _UNSTEADY:
            return one
    return None


def _field_of_event(name: str) -> str:
    """Return the field of an event that a field of a flat row has, as `add.fields` names it."""
    if name.startswith("transaction_"):
        name = f"__{name}"  # with an empty `add.fields.prefix`
    if not name.startswith("__"):
        return name
    for prefix in ("source", "transaction"):
        if name.startswith(f"__{prefix}_"):
            return f"{prefix}.{name.removeprefix(f'__{prefix}_')}"
    own = name.removeprefix("__")
    return own if own in _PROCESSED else f"source.{own}"


def _sequence_by(section: Section) -> tuple[str, ...]:
    example = '["source.lsn"]'
    if section.is_text("sequence_by"):
        found: tuple[str, ...] = (section.text("sequence_by", example),)
    else:
        found = section.texts("sequence_by", example)
    if len(found) > SEQUENCE_FIELDS_MAX:
        section.fail(
            "sequence_by",
            f"it has {len(found)} fields.",
            f"At most {SEQUENCE_FIELDS_MAX} are compared.",
        )
    for one in found:
        if not _PATH.fullmatch(one):
            section.fail(
                "sequence_by",
                f"{shown(one)} cannot be a field.",
                f"Write names, with dots for fields of fields: sequence_by = {example}.",
            )
    return found
