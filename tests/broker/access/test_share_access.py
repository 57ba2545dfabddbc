"""Permissions of the APIs of share state: only brokers may use them; denied requests do nothing."""

from uuid import UUID

import pytest

from penstock.coordinator.shares.ports import ShareKey, ShareState
from penstock.coordinator.shares.share_keys import key_text
from penstock.core.types import SHARE_STATE_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.groups import find
from tests.broker.handlers.share_group_talk import (
    alter,
    delete_offsets,
    eventually,
    offsets,
    starts,
)
from tests.broker.handlers.share_states import SharePartitionAsker, find_shares, share_partition

BROKER = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def queue(asker: Asker, rules: RuleSet) -> SharePartitionAsker:
    rules.all_but()
    ready = share_partition(asker, asker.create(fresh_name(), 1))
    assert ready.initialize(1, 5) == ErrorCode.NONE
    return ready


@pytest.mark.parametrize("is_denied", [True, False])
def test_offsets_of_topics_need_read(asker: Asker, rules: RuleSet, is_denied: bool) -> None:
    rules.all_but()
    topic, group = fresh_name(), fresh_name()
    asker.create(topic, 1)
    find(asker, group)
    assert alter(asker, group, topic, p0=0).error_code == ErrorCode.NONE
    eventually(lambda: starts(offsets(asker, group)).get(topic) == {0: 0})
    rules.all_but(*[(Operation.READ, ResourceType.TOPIC, topic)] * is_denied)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.NONE
    altered = alter(asker, group, topic, p0=0)
    assert altered.error_code == ErrorCode.NONE
    assert altered.responses[0].partitions[0].error_code == code
    deleted = delete_offsets(asker, group, topic)
    assert deleted.error_code == ErrorCode.NONE
    assert [one.error_code for one in deleted.responses] == [code]
    rules.all_but()
    assert (topic in starts(offsets(asker, group))) == is_denied


def test_a_denied_lookup_creates_no_topic(asker: Asker, rules: RuleSet) -> None:
    before = asker.describe(SHARE_STATE_TOPIC).error_code
    rules.only()
    assert find_shares(asker, key_text(ShareKey("g", UUID(int=1), 0))) == [DENIED]
    rules.all_but()
    assert asker.describe(SHARE_STATE_TOPIC).error_code == before


def test_brokers_use_share_state(asker: Asker, rules: RuleSet, queue: SharePartitionAsker) -> None:
    rules.only(BROKER)
    assert find_shares(asker, key_text(queue.key)) == [ErrorCode.NONE]
    assert queue.write((5, 5, 2, 1)) == ErrorCode.NONE
    assert isinstance(queue.read(), ShareState)
    assert rules.denials == []


def test_other_clients_do_not(asker: Asker, rules: RuleSet, queue: SharePartitionAsker) -> None:
    rules.all_but(BROKER)
    assert find_shares(asker, key_text(queue.key)) == [DENIED]
    assert queue.initialize(2, 9) == DENIED
    assert queue.write((5, 5, 2, 1)) == DENIED
    assert queue.read() == DENIED
    assert queue.summary() == DENIED
    assert queue.delete() == DENIED
    assert set(rules.denials) == {BROKER}
    rules.only(BROKER)
    assert queue.read() == ShareState(1, 5, ())
