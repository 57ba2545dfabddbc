"""Iceberg tables that Spark creates, with everything that its SQL can ask of a writer."""

from tests.spark.tables.contract_world import CITY, Contract

FILLED = ("INSERT INTO {t} (id, amount) SELECT id, id * 1.0 FROM range(0, 10, 1, 1)",)
DELETED = (*FILLED, "DELETE FROM {t} WHERE id IN (2, 3)")
HELD = [(n, float(n)) for n in range(10)]
KEPT = [one for one in HELD if one[0] not in (2, 3)]
REQUIRED = "id bigint NOT NULL, amount double NOT NULL"
WIDE = "id bigint, amount double, city string, at timestamp"
V1 = "'format-version'='1'"
V3 = "'format-version'='3'"
DELETE_FILES = "'format-version'='2', 'write.delete.mode'='merge-on-read'"
HERE = f"city = '{CITY}' AND at = timestamp '2026-01-31 23:30:00'"
WIDELY_FILLED = (
    (
        "INSERT INTO {t} SELECT id, id * 1.0, concat('a b/=%', id % 2), "
        "timestamp '2026-01-01 00:00:00' FROM range(0, 10, 1, 1)"
    ),
)
CONTRACTS = {
    "version_1": Contract(properties=V1, after=FILLED, held=HELD),
    "version_2": Contract(properties="'format-version'='2'", after=FILLED, held=HELD),
    "required_1": Contract(REQUIRED, V1, after=FILLED, held=HELD, rejected=(2,)),
    "required_2": Contract(REQUIRED, after=FILLED, held=HELD, rejected=(2,)),
    "required_no_more": Contract(
        REQUIRED, after=(*FILLED, "ALTER TABLE {t} ALTER COLUMN amount DROP NOT NULL"), held=HELD
    ),
    "required_and_not_filled": Contract(
        "id bigint, amount double, city string NOT NULL", refused="column 'city' is required"
    ),
    "identifiers": Contract(
        REQUIRED,
        after=("ALTER TABLE {t} SET IDENTIFIER FIELDS id", *FILLED),
        held=HELD,
        rejected=(2,),
    ),
    "sorted": Contract(after=("ALTER TABLE {t} WRITE ORDERED BY amount DESC", *FILLED), held=HELD),
    "sorted_locally": Contract(
        after=("ALTER TABLE {t} WRITE LOCALLY ORDERED BY id", *FILLED), held=HELD
    ),
    "distributed": Contract(
        WIDE,
        clause="PARTITIONED BY (city)",
        after=("ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION", *FILLED),
        held=HELD,
    ),
    "by_column": Contract(clause="PARTITIONED BY (id)", after=FILLED, held=HELD),
    "by_text": Contract(
        WIDE,
        clause="PARTITIONED BY (city)",
        after=WIDELY_FILLED,
        held=HELD,
        schema=WIDE,
        where=HERE,
    ),
    "by_many": Contract(
        WIDE,
        clause="PARTITIONED BY (city, days(at), id)",
        after=WIDELY_FILLED,
        held=HELD,
        schema=WIDE,
        where=HERE,
    ),
    **{
        f"by_{part}": Contract(
            WIDE,
            clause=f"PARTITIONED BY ({part}s(at))",
            after=WIDELY_FILLED,
            held=HELD,
            schema=WIDE,
            where=HERE,
        )
        for part in ("day", "hour", "month", "year")
    },
    "by_bucket": Contract(
        WIDE,
        clause="PARTITIONED BY (bucket(4, id), bucket(3, city), bucket(5, at))",
        after=(*WIDELY_FILLED, "ALTER TABLE {t} WRITE ORDERED BY city, id DESC"),
        held=HELD,
        schema=WIDE,
        where=HERE,
    ),
    "by_truncate": Contract(
        WIDE,
        clause="PARTITIONED BY (truncate(10, id), truncate(2, city))",
        after=WIDELY_FILLED,
        held=HELD,
        schema=WIDE,
        where=HERE,
    ),
    "by_bucket_and_merge_on_read": Contract(
        clause="PARTITIONED BY (bucket(4, id))", after=FILLED, held=HELD, upserts="merge_on_read"
    ),
    "sorted_by_bucket": Contract(
        after=("ALTER TABLE {t} WRITE ORDERED BY bucket(4, id), amount", *FILLED), held=HELD
    ),
    "partition_added": Contract(
        after=(*FILLED, "ALTER TABLE {t} ADD PARTITION FIELD id"), held=HELD
    ),
    "partition_dropped": Contract(
        clause="PARTITIONED BY (id)",
        after=(*FILLED, "ALTER TABLE {t} DROP PARTITION FIELD id"),
        held=HELD,
    ),
    "partition_dropped_1": Contract(
        properties=V1,
        clause="PARTITIONED BY (id)",
        after=(*FILLED, "ALTER TABLE {t} DROP PARTITION FIELD id"),
        refused="void",
    ),
    "partition_replaced": Contract(
        WIDE,
        clause="PARTITIONED BY (days(at))",
        after=(*FILLED, "ALTER TABLE {t} REPLACE PARTITION FIELD days(at) WITH months(at)"),
        held=HELD,
    ),
    "partition_named": Contract(
        after=(*FILLED, "ALTER TABLE {t} ADD PARTITION FIELD id AS `the part`"), held=HELD
    ),
    "renamed": Contract(
        "id bigint, total double",
        after=(
            "INSERT INTO {t} SELECT id, id * 1.0 FROM range(0, 10, 1, 1)",
            "ALTER TABLE {t} RENAME COLUMN total TO amount",
        ),
        held=HELD,
    ),
    "exchanged": Contract(
        after=(
            *FILLED,
            "ALTER TABLE {t} RENAME COLUMN amount TO old",
            "ALTER TABLE {t} ADD COLUMN amount double",
        ),
        held=[(n, None) for n in range(10)],
    ),
    "dropped_and_added": Contract(
        "id bigint, amount string",
        after=(
            "INSERT INTO {t} SELECT id, 'x' FROM range(0, 10, 1, 1)",
            "ALTER TABLE {t} DROP COLUMN amount",
            "ALTER TABLE {t} ADD COLUMN amount double",
        ),
        held=[(n, None) for n in range(10)],
    ),
    "reordered": Contract(after=(*FILLED, "ALTER TABLE {t} ALTER COLUMN amount FIRST"), held=HELD),
    "widened": Contract(
        "id int, amount float",
        after=(
            "INSERT INTO {t} SELECT CAST(id AS int), CAST(id AS float) FROM range(0, 10, 1, 1)",
            "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
            "ALTER TABLE {t} ALTER COLUMN amount TYPE double",
        ),
        held=HELD,
    ),
    "widened_by_us": Contract(
        "id int, amount float",
        after=(
            "INSERT INTO {t} SELECT CAST(id AS int), CAST(id AS float) FROM range(0, 10, 1, 1)",
        ),
        held=HELD,
    ),
    "decimal": Contract("id bigint, amount decimal(9, 2)", refused="neither holds the other"),
    "other_case": Contract("ID bigint, amount double", refused="only in its case"),
    "comments": Contract("id bigint COMMENT 'the key', amount double COMMENT 'in CHF'"),
    "nested": Contract(
        "id bigint, amount double, s struct<x: bigint NOT NULL, l: array<int>>, m map<string, int>"
    ),
    "local_time": Contract("id bigint, amount double, at timestamp_ntz", after=FILLED, held=HELD),
    "odd_names": Contract(
        "id bigint, amount double, `a b` string, `c-d` string, `größe` string, `e.f` string",
        clause="PARTITIONED BY (`a b`)",
        after=FILLED,
        held=HELD,
    ),
    "delete_files": Contract(properties=DELETE_FILES, after=DELETED, held=KEPT),
    "merge_on_read": Contract(
        properties="'format-version'='2'", after=FILLED, held=HELD, upserts="merge_on_read"
    ),
    "merge_on_read_by_day": Contract(
        WIDE,
        clause="PARTITIONED BY (days(at))",
        after=FILLED,
        held=HELD,
        schema=WIDE,
        upserts="merge_on_read",
    ),
    "delete_files_and_merge_on_read": Contract(
        properties=DELETE_FILES, after=DELETED, held=KEPT, upserts="merge_on_read"
    ),
    "file_deletes_and_merge_on_read": Contract(
        properties=f"{DELETE_FILES}, 'write.delete.granularity'='file'",
        after=DELETED,
        held=KEPT,
        upserts="merge_on_read",
    ),
    "orc_and_merge_on_read": Contract(
        properties="'write.format.default'='orc'",
        after=FILLED,
        held=HELD,
        upserts="merge_on_read",
        unread=("duckdb",),
    ),
    "rewritten": Contract(properties="'format-version'='2'", after=DELETED, held=KEPT),
    "orc": Contract(
        properties="'write.format.default'='orc'", after=FILLED, held=HELD, unread=("duckdb",)
    ),
    "avro": Contract(
        properties="'write.format.default'='avro'",
        after=FILLED,
        held=HELD,
        refuses_upserts="file of AVRO",
        is_late=True,
        unread=("duckdb", "pyiceberg"),
    ),
    "object_storage": Contract(
        properties="'write.object-storage.enabled'='true'", after=FILLED, held=HELD
    ),
    "gzip_metadata": Contract(
        properties="'write.metadata.compression-codec'='gzip'", after=FILLED, held=HELD
    ),
    "short_history": Contract(
        properties=(
            "'write.metadata.delete-after-commit.enabled'='true', "
            "'write.metadata.previous-versions-max'='1'"
        ),
        after=FILLED,
        held=HELD,
    ),
    "no_statistics": Contract(
        properties="'write.metadata.metrics.default'='none'", after=FILLED, held=HELD
    ),
    "branches": Contract(
        after=(
            *FILLED,
            "ALTER TABLE {t} CREATE TAG first",
            "ALTER TABLE {t} CREATE BRANCH audit",
            "INSERT INTO {t}.branch_audit (id, amount) VALUES (7777, 1.0)",
        ),
        held=HELD,
    ),
    "audit": Contract(properties="'write.wap.enabled'='true'", refused="write-audit-publish"),
    "version_3": Contract(properties=V3, after=FILLED, refused="format version 3"),
    "version_3_required": Contract(REQUIRED, V3, refused="format version 3"),
    "version_3_deletes": Contract(
        properties=f"{V3}, 'write.delete.mode'='merge-on-read'",
        after=DELETED,
        refused="format version 3",
    ),
    "version_3_variant": Contract(
        "id bigint, amount double, v variant", V3, refused="format version 3"
    ),
    "upgraded": Contract(
        properties=V1,
        after=(*FILLED, "ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='2')"),
        held=HELD,
    ),
    "upgraded_too_far": Contract(
        after=(*FILLED, "ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')"),
        refused="format version 3",
    ),
}
