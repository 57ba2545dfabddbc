"""`check_pipeline`: a dry run, step by step, that reports all problems and changes nothing.

Each step reports its result. A step that cannot run because another one failed reports this. A
failed step never hides the others: a wrong table and a wrong topic are both reported.

It cannot detect whether a publicly readable catalog accepts a commit. If only the first commit can
show this, the step reports so.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import pyarrow as pa

from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.quantities import count_text
from penstock.spark.errors import first_of
from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.commit.pipeline_names import pipeline_of
from penstock.spark.tables.definition.errors import DefinitionError, SchemaError, as_written
from penstock.spark.tables.definition.locations import of_delta
from penstock.spark.tables.definition.model import (
    Action,
    Expectation,
    PipelineDefinition,
    SchemaSource,
    TableFormat,
    WriteMode,
)
from penstock.spark.tables.definition.state_section import require_function
from penstock.spark.tables.formats.arranging import needed_arrangement
from penstock.spark.tables.formats.opening import TableMissingError, open_table, require_makeable
from penstock.spark.tables.inspection.requirements import (
    require_columns,
    require_fitting,
    require_free_offsets,
    require_writable,
    table_columns,
)
from penstock.spark.tables.inspection.sample import Sample, parse_sample
from penstock.spark.tables.inspection.topics import TopicsLook, TopicsSeen
from penstock.spark.tables.rules.planner import Plan, choose_mode
from penstock.spark.tables.rules.required_columns import (
    require_event_time,
    require_readable_rules,
    require_written_schema,
    with_others,
)
from penstock.spark.tables.rules.sql import is_in_task
from penstock.spark.tables.run.plans import value_columns
from penstock.spark.tables.values.columns import with_metadata_columns
from penstock.spark.tables.values.json.inference import infer_schema
from penstock.spark.tables.values.parser import ValueParser
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser

BROKER_REMEDY: Final = "Start it, or correct pipeline.bootstrap_servers."
_NAMES_SHOWN_MAX: Final = 8


class Outcome(Enum):
    """The result of a step."""

    GOOD = "ok"
    WARNING = "warning"
    """The step passed, with a warning."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """The step could not run."""


@dataclass(frozen=True, slots=True)
class Check:
    """One step."""

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All steps, and the rows of a few records."""

    checks: tuple[Check, ...]
    plan: Plan | None = None
    sample: Sample | None = None

    @property
    def is_good(self) -> bool:
        """Whether the pipeline would start."""
        return all(one.outcome is not Outcome.FAILED for one in self.checks)


def check_pipeline(definition: PipelineDefinition, *, has_transform: bool) -> CheckReport:
    """Check everything except writing."""
    return _Checking(definition, has_transform=has_transform).run()


class _Checking:
    def __init__(self, definition: PipelineDefinition, *, has_transform: bool) -> None:
        self._definition = definition
        self._has_transform = has_transform
        self._checks: list[Check] = []
        self._seen: TopicsSeen | None = None
        self._records: pa.Table | None = None
        self._parser: ValueParser | None = None
        self._columns: pa.Schema | None = None
        """The columns of the table; None if they are unknown, because a function returns them."""
        self._asked: pa.Schema | None = None
        """The columns for rules: also the record's metadata, even if it is not stored."""
        self._constraints: tuple[Expectation, ...] = ()
        """The rules of an existing table."""
        self._held_columns: pa.Schema | None = None
        self._rules: str | None = None
        """The problem with the rules."""
        self._plan: Plan | None = None
        self._sample: Sample | None = None

    def run(self) -> CheckReport:
        self._look_at_topics()
        self._step("schema", self._read_schema)
        self._read_constraints()
        rules = self._rules = self._rules_problem()
        if rules is None:
            self._after_schema("mode", self._choose_mode)
        else:
            self._skip("mode", "a rule cannot be evaluated")
        self._after_schema("values", self._parse)
        if rules is None:
            self._after_schema("expectations", self._ask_rules)
        else:
            self._checks.append(Check("expectations", Outcome.FAILED, rules))
        self._step("table", self._look_at_table)
        self._step("warehouse", self._look_at_warehouse)
        self._step("checkpoint", self._look_at_checkpoint)
        return CheckReport(tuple(self._checks), self._plan, self._sample)

    # --- Topics ---

    def _look_at_topics(self) -> None:
        try:
            look = TopicsLook(self._definition)
        except PenstockError as error:  # such as a variable with a password that is not set
            self._checks.append(Check("broker", Outcome.FAILED, str(as_written(error, ""))))
            self._skip("topics", "no broker")
            self._skip("permissions", "no broker")
            return
        try:
            if not self._step("broker", lambda: self._contact(look)):
                self._skip("topics", "no broker")
                self._skip("permissions", "no broker")
            elif not self._step("topics", lambda: self._find_topics(look)):
                self._skip("permissions", "no topics")
            else:
                self._step("permissions", lambda: self._read_records(look))
        finally:
            look.close()

    def _contact(self, look: TopicsLook) -> tuple[Outcome, str]:
        try:
            cluster, count = look.brokers()
        except BrokerUnreachableError as error:
            return Outcome.FAILED, f"{error} {error.hint or BROKER_REMEDY}"
        return Outcome.GOOD, f"{count_text(count, 'broker')} of cluster {cluster}"

    def _find_topics(self, look: TopicsLook) -> tuple[Outcome, str]:
        seen = self._seen = look.seen()
        if not seen.topics:
            pattern = self._definition.source.pattern
            return Outcome.WARNING, f"no topic matches {pattern} now; one may come later"
        offsets = sum(one.end_offset - one.begin_offset for one in seen.partitions)
        partitions = count_text(len(seen.partitions), "partition")
        names = first_of(seen.topics, _NAMES_SHOWN_MAX)
        return Outcome.GOOD, f"{names}: {partitions}, {count_text(offsets, 'offset')}"

    def _read_records(self, look: TopicsLook) -> tuple[Outcome, str]:
        assert self._seen is not None
        look.require_readable(self._seen.partitions)
        self._records = look.sample(self._seen.partitions)
        count = self._records.num_rows
        return Outcome.GOOD, f"topics may be described and read; a sample of {count} was read"

    # --- Values ---

    def _read_schema(self) -> tuple[Outcome, str]:
        value = self._definition.value
        topics = [] if self._seen is None else self._seen.topics
        pinned = None
        if value.schema_source is SchemaSource.INFERRED:
            require_written_schema(self._definition, has_transform=self._has_transform)
            pinned = self._inferred()
        plan = plan_parser(value, self._definition.source.topics or tuple(topics), pinned)
        self._parser = new_parser(plan)
        state = self._definition.state
        if state is not None:
            require_function(self._definition, has_transform=self._has_transform)
            form = self._definition.table.metadata
            require_event_time(state, with_metadata_columns(self._parser.schema, form))
        names = self._parser.schema.names
        if not self._has_transform:
            self._columns = table_columns(self._definition, self._parser.schema)
            form = self._definition.table.metadata
            # Without columns it is unknown whether one is missing.
            self._asked = with_metadata_columns(self._parser.schema, form) if names else None
        origin = {
            SchemaSource.NONE: "raw values",
            SchemaSource.INFERRED: "inferred from the sample",
            SchemaSource.DDL: "from the definition",
            SchemaSource.FILE: f"from {value.schema}",
            SchemaSource.REGISTRY: f"from the registry {value.schema}",
        }[value.schema_source]
        return Outcome.GOOD, f"{origin}: {first_of(names, _NAMES_SHOWN_MAX) or 'no columns yet'}"

    def _held(self) -> pa.Schema:
        """Return the columns of the table; raise `TableMissingError` if it does not exist."""
        table = open_table(self._definition.table, self._definition.table.name)
        try:
            return table.schema()
        finally:
            table.close()

    def _read_constraints(self) -> None:
        """Read the table's constraints; the step `table` reports the table's problems."""
        with suppress(PenstockError):
            table = open_table(self._definition.table, self._definition.table.name)
            try:
                self._constraints, self._held_columns = table.constraints(), table.schema()
            finally:
                table.close()

    def _with_constraints(self) -> PipelineDefinition:
        """Return the definition with the constraints that the sample can evaluate."""
        asked = self._asked
        known = [one for one in self._constraints if asked is None or is_in_task(one.sql, asked)]
        return replace(self._definition, expectations=(*known, *self._definition.expectations))

    def _inferred(self) -> pa.Schema:
        with suppress(TableMissingError):
            return value_columns(self._definition, self._held())
        values = [] if self._records is None else self._records.column("value").to_pylist()
        return infer_schema(values, "the sample")

    def _rules_problem(self) -> str | None:
        try:
            require_readable_rules(self._definition, self._rule_columns())
        except PenstockError as error:
            return str(error)
        return None

    def _rule_columns(self) -> pa.Schema | None:
        """Return the columns that rules may use, including columns that only the table has."""
        if self._asked is None:
            return None
        with suppress(PenstockError):  # The step `table` reports problems of the table.
            return with_others(self._asked, self._held())
        return self._asked

    def _choose_mode(self) -> tuple[Outcome, str]:
        columns = pa.schema([]) if self._asked is None else self._asked
        self._plan = choose_mode(
            self._definition,
            has_transform=self._has_transform,
            columns=columns,
            constraints=self._constraints,
            held=self._held_columns,
        )
        return Outcome.GOOD, f"{self._plan.mode.value}: {'; '.join(self._plan.reasons)}"

    def _parse(self) -> tuple[Outcome, str]:
        if self._records is None or self._parser is None:
            return Outcome.SKIPPED, "no records could be read"
        self._sample = sample = parse_sample(
            self._records,
            self._parser,
            self._with_constraints(),
            asks_rules=self._asks_rules(),
            has_transform=self._has_transform,
        )
        if not sample.record_count:
            return Outcome.WARNING, "the topics have no records yet"
        bad, count = len(sample.rejects), sample.record_count
        table = self._definition.table.dlq_name
        if bad > count * self._definition.value.reject_share_max:
            return Outcome.WARNING, (
                f"{bad} of {count_text(count, 'record')} would go to {table}: such a "
                "share stops the pipeline. Correct value.schema, or raise value.reject_share_max"
            )
        deletions = sample.deletion_count
        also = f", {count_text(deletions, 'deletion')} among them" if deletions else ""
        if bad:
            return Outcome.GOOD, f"{bad} of {count_text(count, 'record')} would go to {table}{also}"
        what = "the record" if count == 1 else f"all {count:,} records"
        return Outcome.GOOD, f"{what} of the sample can be {self._done_to_it}{also}"

    @property
    def _done_to_it(self) -> str:
        return "given to the function" if self._has_transform else "written"

    def _asks_rules(self) -> bool:
        """Return whether the sample can evaluate the rules: not Spark's, or a function's rows."""
        if self._has_transform or self._asked is None or self._rules is not None:
            return False
        return all(is_in_task(one.sql, self._asked) for one in self._definition.expectations)

    def _ask_rules(self) -> tuple[Outcome, str]:
        rules = self._definition.expectations
        if not rules:
            return Outcome.GOOD, "none"
        if not self._asks_rules():
            return Outcome.SKIPPED, "only Spark can evaluate them; nothing was started for a check"
        if self._sample is None or not self._sample.broken:
            return Outcome.SKIPPED, "they can be read; there is no record to ask them about"
        broken = self._sample.broken
        counts = ", ".join(
            f"{one.name} ({one.action.value}) broken by {broken[one.name]:,}" for one in rules
        )
        if any(broken[one.name] for one in rules if one.action is Action.FAIL):
            return Outcome.WARNING, (
                f"{counts}: a batch with such a record is not committed, and the pipeline stops"
            )
        return Outcome.GOOD, counts

    # --- Table ---

    def _look_at_table(self) -> tuple[Outcome, str]:
        settings = self._definition.table
        try:
            table = open_table(settings, settings.name)
        except TableMissingError:
            require_makeable(settings)
            if self._columns is not None:
                require_columns(self._definition, self._columns)
            return Outcome.GOOD, f"{settings.name} is not there; the first run makes it"
        try:
            state = table.load()
            if self._seen is not None:
                require_free_offsets(self._definition, state, self._seen)
            name = self._definition.pipeline.name
            arrangement = needed_arrangement(settings, name, table, state)
            if self._columns is None:
                return Outcome.GOOD, f"{settings.name} is there"
            try:
                change = require_fitting(table, settings.name, self._columns)
            except SchemaError as error:
                if self._definition.value.schema_source is not SchemaSource.REGISTRY:
                    raise
                return Outcome.WARNING, f"values of the newest schema are bad records: {error}"
        finally:
            table.close()
        require_columns(self._definition, self._columns, change.schema)
        count = len(change.steps)
        steps = f"; {count_text(count, 'column')} would be added or changed" if count else ""
        upsert = settings.mode is WriteMode.UPSERT
        replaced = "; a record replaces every row of its key that is there" if upsert else ""
        arranged = "" if arrangement is None else "; new files would get other partitions or order"
        shared = self._shared_with(state)
        return (
            Outcome.GOOD,
            f"{settings.name} is there, and the columns fit{steps}{arranged}{replaced}{shared}",
        )

    def _shared_with(self, state: TableState) -> str:
        own = self._definition.pipeline.name
        others = sorted({pipeline_of(name) for name in state.live} - {own})
        return f"; shared with {first_of(others, _NAMES_SHOWN_MAX)}" if others else ""

    def _look_at_warehouse(self) -> tuple[Outcome, str]:
        settings = self._definition.table
        warehouse = dict(settings.catalog).get("warehouse")
        if warehouse is None:
            return Outcome.SKIPPED, "the catalog chooses it; the first commit checks it"
        is_delta = settings.format is TableFormat.DELTA
        if not is_delta and dict(settings.catalog).get("type") == "rest":
            # A name that the catalog knows, not a folder.
            return (
                Outcome.SKIPPED,
                f"{warehouse} is a name in the catalog; the first commit checks it",
            )
        place = of_delta(warehouse) if is_delta else warehouse
        is_there = require_writable("table.catalog.warehouse", place)
        if is_there is None:
            return Outcome.SKIPPED, f"{warehouse} is remote; the first commit checks it"
        return Outcome.GOOD, f"{warehouse} {'is writable' if is_there else 'can be created'}"

    def _look_at_checkpoint(self) -> tuple[Outcome, str]:
        place = self._definition.pipeline.checkpoint
        is_there = require_writable("pipeline.checkpoint", place)
        if is_there is None:
            return Outcome.SKIPPED, f"{place} is remote; the first run checks it"
        return Outcome.GOOD, f"{place} {'is writable' if is_there else 'can be created'}"

    # --- Steps ---

    def _step(self, name: str, make: Callable[[], tuple[Outcome, str]]) -> bool:
        try:
            outcome, text = make()
        except PenstockError as error:
            found = as_written(error, "")
            outcome, text = Outcome.FAILED, f"{found} {found.hint}".rstrip()
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
    """Return the report on an unreadable definition."""
    return CheckReport((Check("definition", Outcome.FAILED, str(error)),))
