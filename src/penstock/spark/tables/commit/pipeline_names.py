"""The names of backfills and replays in the notes of a table (pure).

Guarantees: `pipeline_of` returns the pipeline that a backfill or a replay belongs to.
"""

from typing import Final

from penstock.spark.tables.commit.replay_steps import SUFFIX as REPLAY_SUFFIX

BACKFILL_MARK: Final = ".backfill-"
"""Part of the names of backfills; the name of a pipeline has it only by intent."""


def is_backfill(name: str) -> bool:
    """Return whether it is a backfill: it ends at its pipeline's start, not at the topics' ends."""
    return BACKFILL_MARK in name


def is_replay(name: str) -> bool:
    """Return whether it is a replay: its offsets are not those of a topic."""
    return name.endswith(REPLAY_SUFFIX)


def pipeline_of(name: str) -> str:
    """Return the pipeline of a backfill or a replay; any other name unchanged."""
    return name.partition(BACKFILL_MARK)[0].removesuffix(REPLAY_SUFFIX)
