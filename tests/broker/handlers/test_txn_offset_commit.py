"""TxnOffsetCommit: offsets that count when the transaction commits."""

import time

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker.handlers.asker import SECONDS_MAX, Asker, fresh_name
from tests.broker.handlers.transactional import Transactional, find_coordinator, retried

GROUP_KEY = 0


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, 2)
    return name


@pytest.fixture
def group(asker: Asker) -> str:
    name = fresh_name("group")
    find_coordinator(asker, name, GROUP_KEY)
    return name


@pytest.fixture
def transactional(asker: Asker) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


def commit(
    transactional: Transactional,
    group: str,
    topic: str,
    offsets: dict[int, int],
    version: int = 5,
    *,
    producer: tuple[int, int] | None = None,
    member: str = "",
    generation: int = -1,
) -> list[ErrorCode]:
    producer_id, epoch = producer or transactional.producer
    request = TxnOffsetCommitRequest(
        transactional_id=transactional.name,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        member_id=member,
        generation_id=generation,
        topics=(
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                    for index, offset in offsets.items()
                ),
            ),
        ),
    )
    answer = retried(
        lambda: transactional.asker.ask(request, version, TxnOffsetCommitResponse),
        lambda answer: answer.topics[0].partitions[0].error_code,
    )
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    return [codes[index] for index in offsets]


def fetch_request(group: str, topic: str, *, stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=group,
                topics=(OffsetFetchRequestTopics(name=topic, partition_indexes=(0,)),),
            ),
        ),
        require_stable=stable,
    )


def fetched(asker: Asker, group: str, topic: str, *, stable: bool = False) -> tuple[ErrorCode, int]:
    request = fetch_request(group, topic, stable=stable)
    answer = retried(
        lambda: asker.ask(request, 9, OffsetFetchResponse),
        lambda answer: answer.groups[0].error_code,
    )
    found = answer.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


def until_stable(asker: Asker, group: str, topic: str) -> int:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        code, offset = fetched(asker, group, topic, stable=True)
        if code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return offset
        assert time.monotonic() < deadline


def test_offsets_count_from_the_commit_on(
    asker: Asker, transactional: Transactional, group: str, topic: str
) -> None:
    assert commit(transactional, group, topic, {0: 10}) == [ErrorCode.NONE]
    assert fetched(asker, group, topic) == (ErrorCode.NONE, -1)
    unstable = fetched(asker, group, topic, stable=True)
    assert unstable[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    transactional.end(commits=True)
    assert until_stable(asker, group, topic) == 10
    assert commit(transactional, group, topic, {0: 20}) == [ErrorCode.NONE]
    transactional.end(commits=False)
    assert until_stable(asker, group, topic) == 10


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_old_clients_add_the_group_first(
    asker: Asker, transactional: Transactional, group: str, topic: str, version: int
) -> None:
    is_known = version >= 4
    refusal = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
    assert commit(transactional, group, topic, {0: 5}, version) == [refusal]
    assert transactional.ask_add_offsets(group) == ErrorCode.NONE
    assert commit(transactional, group, topic, {0: 5, 1: 6}, version) == [ErrorCode.NONE] * 2
    transactional.end(commits=True, version=4)
    assert until_stable(asker, group, topic) == 5


def test_partitions_that_do_not_exist_are_refused_one_by_one(
    transactional: Transactional, group: str, topic: str
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(transactional, group, topic, {0: 1, 9: 1}) == [ErrorCode.NONE, unknown]
    assert commit(transactional, group, fresh_name("missing"), {0: 1}) == [unknown]


def test_zombies_are_refused(transactional: Transactional, group: str, topic: str) -> None:
    zombie = transactional.producer
    transactional.init()
    codes = commit(transactional, group, topic, {0: 1}, producer=zombie)
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    other = (zombie[0] + 1_000_000, 0)
    codes = commit(transactional, group, topic, {0: 1}, producer=other)
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_members_that_the_group_does_not_know_are_refused(
    transactional: Transactional, group: str, topic: str
) -> None:
    codes = commit(transactional, group, topic, {0: 1}, member="nobody", generation=3)
    assert codes == [ErrorCode.ILLEGAL_GENERATION]


def test_a_group_needs_a_name(transactional: Transactional, group: str, topic: str) -> None:
    assert commit(transactional, "", topic, {0: 1}) == [ErrorCode.INVALID_GROUP_ID]
