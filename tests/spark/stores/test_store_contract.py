"""The contract of `Table` holds on S3 too: the same suite as for local folders."""

from pathlib import Path

import pytest

from tests.spark.stores.lake import KINDS, Lake, LakeKind
from tests.spark.tables.table_kinds import Kind
from tests.spark.tables.test_table_port import (  # noqa: F401 - the suite, with other tables
    test_a_column_is_added_with_the_files_that_have_it,
    test_a_commit_follows_a_commit_without_reading,
    test_a_commit_that_did_not_see_a_compaction_is_refused_and_decided_again,
    test_a_commit_without_files_moves_the_position,
    test_a_new_table_holds_nothing,
    test_a_refused_commit_adds_no_rows_and_the_column_can_be_added_again,
    test_a_thousand_partitions_can_be_read_again,
    test_a_zombie_with_an_old_handle_is_refused_and_one_that_looks_is_stopped,
    test_compaction_keeps_rows_and_notes,
    test_expiry_keeps_what_the_next_driver_has_to_know,
    test_files_and_note_come_together,
    test_of_two_committers_with_the_same_knowledge_one_is_refused,
    test_of_two_compactions_at_once_one_is_refused,
    test_two_drivers_that_take_at_once_are_not_both_owners,
    test_two_pipelines_share_a_table,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, lake: Lake, tmp_path: Path) -> Kind:
    """A table in the lake instead of a folder."""
    return LakeKind(lake, request.param, tmp_path)
