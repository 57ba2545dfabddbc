"""Reads a definition from the keys of a TOML file, or from the same keys in Python (pure).

Guarantees: a returned definition is complete and consistent as far as that can be known without a
broker, a catalog, a registry or a disk; the first key that is wrong, missing or unknown is a
`DefinitionError` with its remedy. The source's own reader checks the options of the source, and
`ddl` checks a schema in DDL. So both are rejected here and not in a running query.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import PenstockError
from penstock.spark.errors import OptionError
from penstock.spark.option_values import shown
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.source.subscription import is_topic_name
from penstock.spark.tables.definition.change_definition import (
    read_changes,
    require_upsert,
    with_history,
)
from penstock.spark.tables.definition.errors import DefinitionError, SchemaError
from penstock.spark.tables.definition.many_tables import is_template, problem_of_template
from penstock.spark.tables.definition.model import (
    KAFKA,
    Action,
    Expectation,
    MaintenanceSettings,
    Metadata,
    OperationSettings,
    PipelineDefinition,
    PipelineSettings,
    RunMode,
    SchemaSource,
    SourceSettings,
    StartingOffsets,
    TableSettings,
    TriggerSettings,
    UnknownFields,
    ValueFormat,
    ValueSettings,
)
from penstock.spark.tables.definition.operation_keys import read_operation
from penstock.spark.tables.definition.partial_updates import with_partial_updates
from penstock.spark.tables.definition.registry_section import read_registry
from penstock.spark.tables.definition.source_references import checkable
from penstock.spark.tables.definition.source_secrets import require_no_secret
from penstock.spark.tables.definition.state_section import read_state, require_stateful
from penstock.spark.tables.definition.table_section import read_table
from penstock.spark.tables.definition.values import Section, did_you_mean

NAME_CHARACTERS_MAX: Final = 200
"""A pipeline's name is part of keys and file names."""
EXPECTATIONS_MAX: Final = 100
"""Each expectation is counted in each commit's note."""
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 86_400_000
EXPIRE_MS_MIN: Final = 60_000
EXPIRE_MS_MAX: Final = 10 * 366 * 86_400_000
TARGET_FILE_MB_MAX: Final = 4_096
SNAPSHOTS_MAX_MIN: Final = 10
"""Readers may be using the newest snapshots."""
SNAPSHOTS_MAX_MAX: Final = 100_000
"""A commit to an Iceberg table with more snapshots needs ten seconds."""
WINDOW_RECORDS_MAX: Final = 100_000_000

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SCHEMA_FILES: Final[Mapping[ValueFormat, tuple[str, ...]]] = {
    ValueFormat.JSON: (".json",),
    ValueFormat.AVRO: (".avsc", ".json"),
    ValueFormat.PROTOBUF: (".proto",),
}
_WITH_UNKNOWN_FIELDS: Final = frozenset(
    (ValueFormat.JSON, source)
    for source in (SchemaSource.DDL, SchemaSource.FILE, SchemaSource.INFERRED)
)
_ADDRESS: Final = "kafka.bootstrap.servers: "
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9_.-]+:[0-9]{1,5}(/.*)?")
_OWN_OPTIONS: Final[Mapping[str, str]] = {
    "subscribe": "source.topics",
    "subscribepattern": "source.pattern",
    "assign": "source.topics",
    "startingoffsets": "source.starting_offsets",
    "kafka.bootstrap.servers": "pipeline.bootstrap_servers",
    "includeheaders": "nothing: headers are read when a bad record needs them",
    "kafka.isolation.level": "nothing: a table holds committed records only",
}
"""Options of the source that have their own keys in the definition."""


_RECORD_KEY: Final = f"{KAFKA}_key"
_METADATA_REMEDY: Final = (
    'With metadata = "struct" write _kafka.timestamp, with "flat" _kafka_timestamp; with "none" '
    "partition by a column of the value."
)


def read_definition(document: object, where: str) -> PipelineDefinition:
    """Return the definition in the whole document; `where` names it in errors."""
    top = Section(where, "", document)
    definition = PipelineDefinition(
        pipeline=_pipeline(top.section("pipeline")),
        source=_source(top.section("source")),
        table=read_table(top.section("table")),
        value=_value(top.section("value")),
        expectations=_expectations(top),
        trigger=_trigger(top.section("trigger")),
        maintenance=_maintenance(top.section("maintenance")),
        state=read_state(top),
    )
    top.require_nothing_left()
    _require_consistent(definition, where)
    _require_template(definition, where)
    require_upsert(definition, where)
    require_stateful(definition, where)
    definition = with_partial_updates(with_history(definition, where), where)
    _require_source(definition, where)
    return definition


def _pipeline(section: Section) -> PipelineSettings:
    name = section.text("name", '"orders"')
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        section.fail(
            "name",
            f"{shown(name)} cannot be a name.",
            f"Use up to {NAME_CHARACTERS_MAX} letters, digits, dots, _ and -.",
        )
    found = PipelineSettings(
        name=name,
        bootstrap_servers=section.text("bootstrap_servers", '"127.0.0.1:9092"'),
        checkpoint=section.text("checkpoint", '"/var/lib/penstock/orders"'),
        mode=section.choice("mode", RunMode, RunMode.AUTO),
        small_batches=section.boolean("small_batches", default=True),
        operation=read_operation(section),
    )
    section.require_nothing_left()
    return found


def _source(section: Section) -> SourceSettings:
    topics = section.texts("topics", '["orders"]')
    pattern = section.optional_text("pattern", "'orders\\..*'")
    if bool(topics) == (pattern is not None):
        section.fail(
            "topics",
            "it cannot be set together with pattern." if topics else "nothing says what to read.",
            "Write either topics = [\"orders\"] or pattern = 'orders\\..*'.",
        )
    for name in topics:
        if not is_topic_name(name):
            section.fail(
                "topics",
                f"{shown(name)} cannot be the name of a topic.",
                "Use letters, digits, dots, _ and -; for a regular expression write pattern.",
            )
    options = section.properties("options", "{ maxOffsetsPerTrigger = 1000000 }")
    require_no_secret(section, options)
    for name, _ in options:
        if name.lower() in _OWN_OPTIONS:
            section.fail(
                f"options.{name}",
                "the definition says it elsewhere.",
                f"Remove it, and use {_OWN_OPTIONS[name.lower()]}.",
            )
    found = SourceSettings(
        topics=topics,
        pattern=pattern,
        starting_offsets=section.choice(
            "starting_offsets", StartingOffsets, StartingOffsets.EARLIEST
        ),
        options=options,
    )
    section.require_nothing_left()
    return found


def _value(section: Section) -> ValueSettings:
    format_ = section.choice("format", ValueFormat, ValueFormat.RAW)
    schema = section.optional_text("schema", '"id bigint, amount double"')
    defaults, source = ValueSettings(), _schema_source(section, format_, schema)
    found = ValueSettings(
        format=format_,
        schema_source=source,
        schema=schema,
        registry=read_registry(section, source, schema),
        subject=section.optional_text("subject", '"orders-value"'),
        message=section.optional_text("message", '"shop.Order"'),
        unknown_fields=section.choice("unknown_fields", UnknownFields, UnknownFields.COUNT),
        reject_share_max=section.share("reject_share_max", defaults.reject_share_max),
        reject_window_records=section.integer(
            "reject_window_records",
            defaults.reject_window_records,
            lowest=1,
            highest=WINDOW_RECORDS_MAX,
        ),
        changes=read_changes(section, format_, source),
    )
    if found.subject is not None and found.schema_source is not SchemaSource.REGISTRY:
        section.fail(
            "subject", "only a registry has subjects.", "Remove it, or set schema to its URL."
        )
    if found.message is not None and format_ is not ValueFormat.PROTOBUF:
        section.fail("message", f"{format_.value} has no messages.", "Remove it.")
    is_strict = found.unknown_fields in {UnknownFields.RESCUE, UnknownFields.REJECT}
    if is_strict and (format_, found.schema_source) not in _WITH_UNKNOWN_FIELDS:
        section.fail(
            "unknown_fields",
            "only JSON values without a registry have fields that no column has.",
            "Remove it.",
        )
    section.require_nothing_left()
    return found


def _schema_source(section: Section, format_: ValueFormat, schema: str | None) -> SchemaSource:
    if format_ is ValueFormat.RAW:
        if schema is not None:
            section.fail(
                "schema", "raw values have no schema.", 'Remove it, or set format = "json".'
            )
        return SchemaSource.NONE
    if schema is None:
        if format_ is ValueFormat.JSON:
            return SchemaSource.INFERRED
        section.fail(
            "schema",
            f"{format_.value} cannot be read without it.",
            "Set a file or the URL of a registry.",
        )
    text = schema.strip()
    if text.startswith(("http://", "https://")):
        return SchemaSource.REGISTRY
    if text.endswith(_SCHEMA_FILES[format_]):
        return SchemaSource.FILE
    if format_ is ValueFormat.JSON:
        _require_ddl(section, text)
        return SchemaSource.DDL
    endings = " or ".join(_SCHEMA_FILES[format_])
    return section.fail(
        "schema",
        f"{shown(text)} is neither a file nor a registry.",
        f"Set the path of a file that ends in {endings}, or a URL with http:// or https://.",
    )


def _require_ddl(section: Section, text: str) -> None:
    # Import Arrow only here: a definition that names a file does not need it.
    from penstock.spark.tables.definition.ddl import parse_ddl

    if _HOST_AND_PORT.fullmatch(text):
        section.fail(
            "schema",
            f"{shown(text)} is no list of columns.",
            f'The address of a registry begins with http:// or https://: "http://{text}".',
        )
    try:
        parse_ddl(text)
    except SchemaError as error:
        is_one_word = not any(one.isspace() for one in text)
        file = " A JSON Schema is named by a file that ends in .json." if is_one_word else ""
        section.fail("schema", error.problem, f"{error.remedy}{file}")


def _expectations(top: Section) -> tuple[Expectation, ...]:
    sections = top.sections("expectations")
    if len(sections) > EXPECTATIONS_MAX:
        top.fail(
            "expectations",
            f"there are {len(sections)}.",
            f"At most {EXPECTATIONS_MAX} are counted; join some with AND.",
        )
    found: list[Expectation] = []
    for section in sections:
        name = section.text("name", '"positive_amount"')
        if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
            section.fail(
                "name", f"{shown(name)} cannot be a name.", "Use letters, digits, dots, _ and -."
            )
        if any(name == one.name for one in found):
            section.fail("name", f"{shown(name)} is there twice.", "Give each its own name.")
        sql = section.text("sql", '"amount > 0"')
        found.append(Expectation(name, sql, section.choice("action", Action, Action.WARN)))
        section.require_nothing_left()
    return tuple(found)


def _trigger(section: Section) -> TriggerSettings:
    interval_ms = section.duration_ms(
        "interval",
        TriggerSettings().interval_ms,
        lowest=INTERVAL_MS_MIN,
        highest=INTERVAL_MS_MAX,
        example="30 seconds",
    )
    section.require_nothing_left()
    return TriggerSettings(interval_ms)


def _maintenance(section: Section) -> MaintenanceSettings:
    defaults = MaintenanceSettings()
    found = MaintenanceSettings(
        is_enabled=section.boolean("enabled", default=True) if section.has("enabled") else None,
        target_file_bytes=section.integer(
            "target_file_mb",
            defaults.target_file_bytes // 1_048_576,
            lowest=1,
            highest=TARGET_FILE_MB_MAX,
        )
        * 1_048_576,
        expire_snapshots_ms=section.duration_ms(
            "expire_snapshots",
            defaults.expire_snapshots_ms,
            lowest=EXPIRE_MS_MIN,
            highest=EXPIRE_MS_MAX,
            example="1 day",
        ),
        # An explicit age applies, whatever the number of snapshots.
        snapshots_max=section.integer(
            "snapshots_max",
            0 if section.has("expire_snapshots") else defaults.snapshots_max,
            lowest=SNAPSHOTS_MAX_MIN,
            highest=SNAPSHOTS_MAX_MAX,
        ),
    )
    section.require_nothing_left()
    return found


def _require_consistent(definition: PipelineDefinition, where: str) -> None:
    table, value = definition.table, definition.value
    names = () if table.metadata is Metadata.NONE else table.metadata.names
    keyed = [("partition_by", one.column) for one in table.partition_by]
    keyed += [("sort_by", one.column) for one in table.sort_by]
    for key, column in keyed:
        if column.startswith(KAFKA) and column not in names:
            raise DefinitionError(
                where,
                f"table.{key}",
                f'there is no column {column}: metadata is "{table.metadata.value}".',
                f"{did_you_mean(column, names)}{_METADATA_REMEDY}",
            )
    wrong = [name for name in table.key if name.startswith(KAFKA) and not _is_key(name, table)]
    if value.format is ValueFormat.RAW:
        wrong += [name for name in table.key if name != "value" and not name.startswith(KAFKA)]
    if wrong:
        raise DefinitionError(
            where,
            "table.key",
            f"raw values have no column {shown(wrong[0])}."
            if value.format is ValueFormat.RAW
            else f"there is no column {shown(wrong[0])} that can be a key.",
            f'For the key of the record write key = ["{_RECORD_KEY}"] and metadata = "flat".',
        )


def _require_template(definition: PipelineDefinition, where: str) -> None:
    """Check placeholders in the names of many tables."""
    table = definition.table
    if not is_template(table.name + table.path):
        return
    found = problem_of_template(table.name, definition.source.pattern)
    if found is not None:
        raise DefinitionError(where, "table.name", *found)
    if definition.pipeline.operation != OperationSettings():
        raise DefinitionError(
            where,
            "table.name",
            "metrics_port, publish_group and lineage are for a pipeline with one table.",
            "Remove them, or write the name without placeholders.",
        )
    if table.path and not is_template(table.path):
        raise DefinitionError(
            where,
            "table.path",
            "all tables would be at this place.",
            f'Write path = "{table.path}/{{topic}}", or a warehouse in catalog.',
        )


def _is_key(name: str, table: TableSettings) -> bool:
    """Return whether a metadata column can be a key: fields of a struct cannot."""
    return table.metadata is Metadata.FLAT and name in table.metadata.names


def _require_source(definition: PipelineDefinition, where: str) -> None:
    """Check the source's options with the source's own reader."""
    try:
        read_source_options(checkable(definition.source_options()), Mode.STREAM)
    except OptionError as error:
        key = _OWN_OPTIONS.get(error.option.lower(), f"source.options.{error.option}")
        raise DefinitionError(where, key, error.problem, error.remedy) from None
    except PenstockError as error:
        # Settings of the client: the text has the name, the problem and the remedy.
        problem = str(error).removeprefix(_ADDRESS)
        key = "source.options" if problem == str(error) else "pipeline.bootstrap_servers"
        raise DefinitionError(where, key, problem, "Correct it there.") from None
