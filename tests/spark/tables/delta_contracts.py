"""Delta tables that Spark creates, with every feature that it can set."""

from tests.spark.tables.contract_world import CITY, Contract

FILLED = ("INSERT INTO {t} SELECT id, id * 1.0 FROM range(0, 10, 1, 1)",)
DELETED = (*FILLED, "DELETE FROM {t} WHERE id IN (2, 3)")
HELD = [(n, float(n)) for n in range(10)]
WIDE = "id bigint, amount double, city string, at timestamp"
HERE = f"city = '{CITY}' AND at = timestamp '2026-01-31 23:30:00'"
WIDELY_FILLED = (
    (
        "INSERT INTO {t} SELECT id, id * 1.0, concat('a b/=%', id % 2), "
        "timestamp '2026-01-01 00:00:00' FROM range(0, 10, 1, 1)"
    ),
)
CONTRACTS = {
    "plain": Contract(after=FILLED, held=HELD),
    "version_5": Contract(
        properties="'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'",
        after=FILLED,
        held=HELD,
    ),
    "check": Contract(
        after=("ALTER TABLE {t} ADD CONSTRAINT pos CHECK (amount > 0)",), rejected=(1, 2)
    ),
    "not_null": Contract("id bigint, amount double NOT NULL", rejected=(2,)),
    "append_only": Contract(
        properties="'delta.appendOnly'='true'",
        after=FILLED,
        held=HELD,
        refuses_upserts="appendOnly",
    ),
    "change_feed": Contract(
        properties="'delta.enableChangeDataFeed'='true'", after=FILLED, held=HELD
    ),
    **{
        f"change_feed{name}": Contract(
            properties="'delta.enableChangeDataFeed'='true'",
            schema=f"id bigint, amount double, {name} string",
            refused=name,
        )
        for name in ("_change_type", "_commit_version", "_commit_timestamp")
    },
    "deletion_vectors": Contract(
        properties="'delta.enableDeletionVectors'='true'",
        after=DELETED,
        held=[one for one in HELD if one[0] not in (2, 3)],
    ),
    "local_time": Contract("id bigint, amount double, at timestamp_ntz"),
    "mapping_by_name": Contract(
        properties="'delta.columnMapping.mode'='name'", refused="columnMapping"
    ),
    "mapping_by_id": Contract(
        properties="'delta.columnMapping.mode'='id'", refused="columnMapping"
    ),
    "row_tracking": Contract(properties="'delta.enableRowTracking'='true'", refused="rowTracking"),
    "generated": Contract(
        "id bigint, amount double, twice bigint GENERATED ALWAYS AS (id * 2)",
        refused="generatedColumns",
    ),
    "identity": Contract(
        "id bigint, amount double, n bigint GENERATED ALWAYS AS IDENTITY",
        refused="identityColumns",
    ),
    "checkpoints_v2": Contract(properties="'delta.checkpointPolicy'='v2'", refused="v2Checkpoint"),
    "type_widening": Contract(
        properties="'delta.enableTypeWidening'='true'", refused="typeWidening"
    ),
    "commit_timestamps": Contract(
        properties="'delta.enableInCommitTimestamps'='true'", refused="inCommitTimestamp"
    ),
    "clustered": Contract(clause="CLUSTER BY (id)", refused="clustering"),
    "variant": Contract("id bigint, amount double, v variant", refused="variantType"),
    "default": Contract(
        "id bigint, amount double DEFAULT 7.0",
        "'delta.feature.allowColumnDefaults'='supported'",
        refused="allowColumnDefaults",
    ),
    "iceberg_compat": Contract(
        properties="'delta.enableIcebergCompatV2'='true', 'delta.columnMapping.mode'='name'",
        refused="icebergCompatV2",
    ),
    "partitioned_otherwise": Contract(
        "id bigint, amount double, city string",
        clause="PARTITIONED BY (city)",
        refused="is partitioned by",
    ),
    "partitioned": Contract(
        WIDE,
        clause="PARTITIONED BY (city)",
        after=WIDELY_FILLED,
        held=HELD,
        schema=WIDE,
        settings={"partition_by": ["city"]},
        where=HERE,
    ),
    "varchar": Contract("id bigint, amount double, city varchar(3)"),
    "varchar_within": Contract(
        "id bigint, amount double, s struct<c: varchar(3)>", refused="varchar"
    ),
    "varchar_in_list": Contract("id bigint, amount double, l array<varchar(3)>", refused="varchar"),
    "char_within": Contract("id bigint, amount double, s struct<c: char(3)>", refused="char"),
    "manifests": Contract(
        properties="'delta.compatibility.symlinkFormatManifest.enabled'='true'",
        after=FILLED,
        refused="symlinkFormatManifest",
    ),
    "char": Contract("id bigint, amount double, city char(3)", refused="char"),
    "nested_not_null": Contract("id bigint, amount double, s struct<x: bigint NOT NULL>"),
    "decimal": Contract("id bigint, amount decimal(9, 2)", refused="neither holds the other"),
    "narrow": Contract("id int, amount double", refused="not widened"),
    "other_case": Contract("ID bigint, amount double", refused="only in its case"),
    "odd_names": Contract(
        schema="id bigint, amount double, `a b` string", refused="no Spark could change"
    ),
    "odd_names_within": Contract(
        schema="id bigint, amount double, s array<struct<x: int, `a=b`: string>>",
        refused="no Spark could change",
    ),
    "check_of_two": Contract(
        after=(
            "ALTER TABLE {t} ADD CONSTRAINT pos CHECK (amount > 0 OR amount IS NULL)",
            "ALTER TABLE {t} ADD CONSTRAINT low CHECK (id < 1000)",
        ),
        rejected=(1,),
    ),
    "all_features": Contract(
        properties=(
            "'delta.feature.appendOnly'='supported', 'delta.feature.invariants'='supported', "
            "'delta.feature.checkConstraints'='supported', "
            "'delta.feature.changeDataFeed'='supported', "
            "'delta.feature.deletionVectors'='supported', "
            "'delta.feature.columnMapping'='supported', "
            "'delta.feature.generatedColumns'='supported', "
            "'delta.feature.timestampNtz'='supported', "
            "'delta.feature.v2Checkpoint'='supported', "
            "'delta.feature.variantType'='supported'"
        ),
        after=FILLED,
        held=HELD,
    ),
    "vacuum_check": Contract(
        properties="'delta.feature.vacuumProtocolCheck'='supported'", refused="vacuumProtocolCheck"
    ),
    "domain_metadata": Contract(
        properties="'delta.feature.domainMetadata'='supported'", refused="domainMetadata"
    ),
    "checkpoint_protection": Contract(
        properties="'delta.feature.checkpointProtection'='supported'",
        refused="checkpointProtection",
    ),
    "iceberg_compat_v1": Contract(
        properties="'delta.enableIcebergCompatV1'='true', 'delta.columnMapping.mode'='name'",
        refused="icebergCompatV1",
    ),
    "iceberg_compat_v3": Contract(
        properties="'delta.enableIcebergCompatV3'='true', 'delta.columnMapping.mode'='name'",
        refused="icebergCompatV3",
    ),
    "generated_partition": Contract(
        "id bigint, amount double, at timestamp, day date GENERATED ALWAYS AS (CAST(at AS date))",
        clause="PARTITIONED BY (day)",
        refused="generatedColumns",
    ),
}
