"""`check_pipeline`: a dry run, step by step, that tells all problems at once and changes nothing.

Each step says what it found; one that cannot be made because another one failed says so. A step
that fails never hides the others: whoever has a wrong table and a wrong topic learns of both.

What it cannot know: whether a commit will be accepted by a catalog that lets everybody read. Where
only the first commit can tell, the step says that.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.errors import first_of
from penstock.spark.tables.columns import METADATA, table_schema
from penstock.spark.tables.definition import PipelineDefinition, SchemaSource, TableFormat
from penstock.spark.tables.definition_errors import DefinitionError
from penstock.spark.tables.expectation_sql import is_in_task
from penstock.spark.tables.json_inference import infer_schema
from penstock.spark.tables.locations import local_path, of_delta
from penstock.spark.tables.looking.sample import Sample, parse_sample
from penstock.spark.tables.looking.topics import PartitionSeen, TopicsLook
from penstock.spark.tables.opening import TableMissingError, open_table
from penstock.spark.tables.planner import Plan, choose_mode
from penstock.spark.tables.required_columns import require_key_columns, require_rule_columns
from penstock.spark.tables.schema_changes import Incompatible, change_of
from penstock.spark.tables.value_parsers import new_parser, plan_parser
from penstock.spark.tables.values.parser import ValueParser

_NAMES_SHOWN_MAX: Final = 8


class Outcome(Enum):
    """How a step ended."""

    GOOD = "ok"
    WARNING = "warning"
    """It would run, and a person should know this first."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be made."""


@dataclass(frozen=True, slots=True)
class Check:
    """One step."""

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All steps, and what a few records became."""

    checks: tuple[Check, ...]
    plan: Plan | None = None
    sample: Sample | None = None

    @property
    def is_good(self) -> bool:
        """Whether the pipeline would start."""
        return all(one.outcome is not Outcome.FAILED for one in self.checks)


def check_pipeline(definition: PipelineDefinition, *, has_transform: bool) -> CheckReport:
    """Try everything but writing."""
    return _Checking(definition, has_transform=has_transform).run()


class _Checking:
    def __init__(self, definition: PipelineDefinition, *, has_transform: bool) -> None:
        self._definition = definition
        self._has_transform = has_transform
        self._checks: list[Check] = []
        self._partitions: tuple[PartitionSeen, ...] | None = None
        self._records: pa.Table | None = None
        self._parser: ValueParser | None = None
        self._columns: pa.Schema | None = None
        """Of the table."""
        self._asked: pa.Schema | None = None
        """That rules may be about: where a record came from too, whatever is stored of it."""
        self._plan: Plan | None = None
        self._sample: Sample | None = None

    def run(self) -> CheckReport:
        self._look_at_topics()
        self._step("schema", self._read_schema)
        self._after_schema("mode", self._choose_mode)
        self._after_schema("values", self._parse)
        self._after_schema("expectations", self._ask_rules)
        self._step("table", self._look_at_table)
        self._step("warehouse", self._look_at_warehouse)
        return CheckReport(tuple(self._checks), self._plan, self._sample)

    # --- Topics ---

    def _look_at_topics(self) -> None:
        look = TopicsLook(self._definition)
        try:
            if not self._step("broker", lambda: self._contact(look)):
                self._skip("topics", "no broker")
                return
            if self._step("topics", lambda: self._find_topics(look)):
                self._step("permissions", lambda: self._read_records(look))
        finally:
            look.close()

    def _contact(self, look: TopicsLook) -> tuple[Outcome, str]:
        cluster, count = look.brokers()
        return Outcome.GOOD, f"{count} {'broker' if count == 1 else 'brokers'} of cluster {cluster}"

    def _find_topics(self, look: TopicsLook) -> tuple[Outcome, str]:
        found = self._partitions = look.partitions()
        topics = sorted({one.at.topic for one in found})
        if not topics:
            pattern = self._definition.source.pattern
            return Outcome.WARNING, f"no topic matches {pattern} now; one may come later"
        offsets = sum(one.end_offset - one.begin_offset for one in found)
        return (
            Outcome.GOOD,
            f"{first_of(topics, _NAMES_SHOWN_MAX)}: {len(found)} partitions, {offsets:,} offsets",
        )

    def _read_records(self, look: TopicsLook) -> tuple[Outcome, str]:
        assert self._partitions is not None
        look.require_readable(self._partitions)
        self._records = look.sample(self._partitions)
        count = self._records.num_rows
        return Outcome.GOOD, f"topics may be described and read; a sample of {count} was read"

    # --- Values ---

    def _read_schema(self) -> tuple[Outcome, str]:
        value = self._definition.value
        topics = sorted({one.at.topic for one in self._partitions or ()})
        pinned = self._inferred() if value.schema_source is SchemaSource.INFERRED else None
        plan = plan_parser(value, self._definition.source.topics or tuple(topics), pinned)
        self._parser = new_parser(plan)
        self._columns = table_schema(
            self._parser.schema, has_metadata=self._definition.table.has_metadata_columns
        )
        self._asked = pa.schema([*self._parser.schema, *METADATA])
        names = self._parser.schema.names
        origin = {
            SchemaSource.NONE: "raw values",
            SchemaSource.INFERRED: "inferred from the sample",
            SchemaSource.DDL: "from the definition",
            SchemaSource.FILE: f"from {value.schema}",
            SchemaSource.REGISTRY: f"from the registry {value.schema}",
        }[value.schema_source]
        return Outcome.GOOD, f"{origin}: {first_of(names, _NAMES_SHOWN_MAX) or 'no columns yet'}"

    def _held(self) -> pa.Schema:
        """The columns of the table; `TableMissingError` when it is not there."""
        table = open_table(self._definition.table, self._definition.table.name)
        try:
            return table.schema()
        finally:
            table.close()

    def _inferred(self) -> pa.Schema:
        with suppress(TableMissingError):
            held = self._held()
            metadata = METADATA.names if self._definition.table.has_metadata_columns else ()
            return pa.schema([one for one in held if one.name not in metadata])
        values = [] if self._records is None else self._records.column("value").to_pylist()
        return infer_schema(values, "the sample")

    def _choose_mode(self) -> tuple[Outcome, str]:
        assert self._asked is not None
        if self._knows_rows():
            require_key_columns(self._definition, self._asked)
        self._plan = choose_mode(
            self._definition, has_transform=self._has_transform, columns=self._asked
        )
        return Outcome.GOOD, f"{self._plan.mode.value}: {'; '.join(self._plan.reasons)}"

    def _parse(self) -> tuple[Outcome, str]:
        if self._records is None or self._parser is None:
            return Outcome.SKIPPED, "no records could be read"
        self._sample = parse_sample(
            self._records, self._parser, self._definition, asks_rules=self._asks_rules()
        )
        if not self._sample.record_count:
            return Outcome.WARNING, "the topics have no records yet"
        bad, count = len(self._sample.rejects), self._sample.record_count
        if bad > count * self._definition.value.reject_share_max:
            return Outcome.WARNING, (
                f"{bad} of {count} records would go to {self._definition.table.dlq_name}: such a "
                "share stops the pipeline. Correct value.schema, or raise value.reject_share_max"
            )
        if bad:
            table = self._definition.table.dlq_name
            return Outcome.GOOD, f"{bad} of {count} records would go to {table}"
        return Outcome.GOOD, f"all {count} records of the sample can be written"

    def _asks_rules(self) -> bool:
        """Rules that a task cannot answer, or that are asked about what a function returns."""
        if self._has_transform or self._asked is None:
            return False
        return all(is_in_task(one.sql, self._asked) for one in self._definition.expectations)

    def _ask_rules(self) -> tuple[Outcome, str]:
        if not self._definition.expectations:
            return Outcome.GOOD, "none"
        if self._knows_rows():
            self._require_rule_columns()
        if not self._asks_rules():
            return Outcome.SKIPPED, "only Spark can evaluate them; nothing was started for a check"
        broken = {} if self._sample is None else self._sample.broken
        counts = ", ".join(
            f"{one.name} ({one.action.value}) broken by {broken.get(one.name, 0)}"
            for one in self._definition.expectations
        )
        return Outcome.GOOD, counts

    def _knows_rows(self) -> bool:
        """Not what a function returns, nor what comes with the first values of a registry."""
        return not self._has_transform and self._parser is not None and len(self._parser.schema) > 0

    def _require_rule_columns(self) -> None:
        assert self._asked is not None
        columns = list(self._asked)
        with suppress(TableMissingError):
            columns += [one for one in self._held() if one.name not in self._asked.names]
        require_rule_columns(self._definition, pa.schema(columns))

    # --- Table ---

    def _look_at_table(self) -> tuple[Outcome, str]:
        settings = self._definition.table
        try:
            table = open_table(settings, settings.name)
        except TableMissingError:
            return Outcome.GOOD, f"{settings.name} is not there; the first run makes it"
        try:
            state, held = table.load(), table.schema()
        finally:
            table.close()
        if self._columns is None or self._has_transform:
            return Outcome.GOOD, f"{settings.name} is there"
        change = change_of(held, self._columns)
        if isinstance(change, Incompatible):
            return Outcome.FAILED, f"{settings.name}: {' '.join(change.reasons)}"
        others = sorted(set(state.notes) - {self._definition.pipeline.name})
        shared = f"; shared with {first_of(others, _NAMES_SHOWN_MAX)}" if others else ""
        steps = f"; {len(change.steps)} columns would be added or changed" if change.steps else ""
        return Outcome.GOOD, f"{settings.name} is there, and the columns fit{steps}{shared}"

    def _look_at_warehouse(self) -> tuple[Outcome, str]:
        settings = self._definition.table
        warehouse = dict(settings.catalog).get("warehouse")
        if warehouse is None:
            return Outcome.SKIPPED, "the catalog chooses it; the first commit tells"
        is_delta = settings.format is TableFormat.DELTA
        path = local_path(of_delta(warehouse) if is_delta else warehouse)
        if path is None:
            return Outcome.SKIPPED, f"{warehouse} is remote; the first commit tells"
        place = Path(path)
        folder = place
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            return Outcome.FAILED, (
                f"nothing can be written in {folder}: {error.strerror}. Let the user who runs the "
                "pipeline write there, or correct table.catalog"
            )
        is_there = folder == place
        return Outcome.GOOD, f"{warehouse} {'is writable' if is_there else 'can be made'}"

    # --- Steps ---

    def _step(self, name: str, make: Callable[[], tuple[Outcome, str]]) -> bool:
        try:
            outcome, text = make()
        except PenstockError as error:
            outcome, text = Outcome.FAILED, str(error)
        except Exception as error:  # noqa: BLE001 - whatever a catalog's driver raises is a result
            outcome, text = Outcome.FAILED, f"{type(error).__name__}: {error}"
        self._checks.append(Check(name, outcome, text))
        return outcome is not Outcome.FAILED

    def _after_schema(self, name: str, make: Callable[[], tuple[Outcome, str]]) -> None:
        if self._parser is None:
            self._skip(name, "no schema")
        else:
            self._step(name, make)

    def _skip(self, name: str, why: str) -> None:
        self._checks.append(Check(name, Outcome.SKIPPED, why))


def failed_definition(error: DefinitionError) -> CheckReport:
    """The report on a definition that cannot be read."""
    return CheckReport((Check("definition", Outcome.FAILED, str(error)),))
