"""The names of our properties and summaries in an Iceberg table, and settings of new tables."""

from typing import Final

from penstock.spark.tables.files.table_facts import CREATED_KEY

NOTE_KEY: Final = "penstock.note"
"""The key of the note in the summary of our snapshots."""
PIPELINE_KEY: Final = "penstock.pipeline"
"""The key of the note's pipeline, so that the note need not be parsed to find it."""
KEPT_PREFIX: Final = "penstock.note."
"""The prefix of the table's property with a copy of a pipeline's newest note; the name follows."""
KEPT_AT_PREFIX: Final = "penstock.note-at."
"""The prefix of the property with the sequence number of the copy's snapshot."""
NO_SNAPSHOT: Final = -1
MAIN: Final = "main"
NEW_TABLE: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    CREATED_KEY: "true",
}
"""Keeps the metadata small for a table with a commit a minute."""
