"""In-sync replicas as their leader knows them: commits, joins, leaves, and changes under way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.image import BrokerImage, BrokerState, Endpoint, PartitionImage, Replica
from penstock.replication.isr import NOTHING, FollowerProgress, InSyncReplicas, IsrChange

LAG_SECONDS = 10.0
EPOCHS = {1: 11, 2: 12, 3: 13}


def image(
    isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 2, partition_epoch: int = 100
) -> PartitionImage:
    return PartitionImage(
        (1, 2, 3),
        1,
        5,
        isr,
        partition_epoch,
        broker_epoch=11,
        isr_epochs=tuple(EPOCHS[one] for one in isr),
        min_isr=min_isr,
    )


def brokers(**states: BrokerState) -> dict[int, BrokerImage]:
    found = {}
    for broker_id, epoch in EPOCHS.items():
        state = states.get(f"b{broker_id}", BrokerState.RUNNING)
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
        found[broker_id] = BrokerImage(broker_id, (endpoint,), None, "d", epoch, state)
    return found


def change(
    replicas: InSyncReplicas,
    *,
    end_offset: int = 100,
    high_watermark: int = 50,
    min_isr: int = 2,
    now: float = 0.0,
    known: dict[int, BrokerImage] | None = None,
) -> IsrChange | None:
    return replicas.next_change(
        brokers() if known is None else known,
        end_offset=end_offset,
        high_watermark=high_watermark,
        min_isr=min_isr,
        now=now,
        lag_seconds=LAG_SECONDS,
    )


def leading(state: PartitionImage | None = None, *, epoch_start: int = 50) -> InSyncReplicas:
    return InSyncReplicas(1, state or image(), epoch_start, 0.0)


def test_nothing_is_committed_before_each_member_has_reported() -> None:
    replicas = leading()
    assert replicas.committed_below(100) == NOTHING
    replicas.report(2, 12, 80, 100, 1.0)
    assert replicas.committed_below(100) == NOTHING
    replicas.report(3, 13, 70, 100, 1.0)
    assert replicas.committed_below(100) == 70
    assert replicas.committed_below(60) == 60
    replicas.validate()


def test_the_reports_of_an_earlier_process_do_not_bind_the_next_one() -> None:
    replicas = leading(image((1, 2)))
    replicas.report(2, 12, 80, 100, 1.0)
    replicas.report(2, 22, 40, 100, 2.0)
    assert replicas.committed_below(100) == 40


def test_too_few_replicas_commit_nothing() -> None:
    replicas = leading(image((1,)))
    assert not replicas.has_enough
    assert replicas.committed_below(100) == NOTHING
    alone = leading(image((1,), min_isr=1))
    assert alone.has_enough
    assert alone.committed_below(100) == 100


def test_more_in_sync_replicas_than_replicas_are_not_needed() -> None:
    replicas = leading(image(min_isr=5))
    assert replicas.min_isr == 3
    assert replicas.has_enough


def test_while_a_change_is_written_both_states_count() -> None:
    replicas = leading(image((1, 2)))
    replicas.report(2, 12, 90, 100, 1.0)
    replicas.report(3, 13, 60, 100, 1.0)
    assert replicas.committed_below(100) == 90
    joining = change(replicas)
    assert joining is not None
    assert joining.added == (3,)
    assert joining.after.in_sync == (Replica(1, 11), Replica(2, 12), Replica(3, 13))
    replicas.begin(joining)
    assert replicas.isr_max == {2, 3}
    assert replicas.committed_below(100) == 60
    assert change(replicas) is None, "one change at a time"
    replicas.validate()


def test_while_a_member_may_have_left_it_counts_and_the_smaller_size_does() -> None:
    replicas = leading(image((1, 2)))
    replicas.report(2, 12, 60, 100, 1.0)
    leaving = change(replicas, now=20.0)
    assert leaving is not None
    assert leaving.after.isr == (1,)
    assert leaving.after.elr == (Replica(2, 12),)
    replicas.begin(leaving)
    assert replicas.committed_below(100) == NOTHING
    replicas.refused(leaving, 21.0)
    assert replicas.committed_below(100) == 60


def test_a_follower_that_has_left_joins_by_a_later_report() -> None:
    """Guards `forget`: a broker whose disk failed has left, and its old report added it again."""
    replicas = leading()
    for follower, epoch in ((2, 12), (3, 13)):
        replicas.report(follower, epoch, 100, 100, 1.0)
    disowned = image()._replace(isr_epochs=(11, 12, 0), partition_epoch=101)
    replicas.adopt(disowned, 2.0)
    assert change(replicas) is None
    replicas.adopt(image((1, 2), partition_epoch=102), 3.0)
    assert change(replicas) is None
    replicas.report(3, 13, 100, 100, 4.0)
    joining = change(replicas)
    assert joining is not None
    assert joining.added == (3,)


def test_a_newer_state_ends_the_change() -> None:
    replicas = leading(image((1, 2)))
    replicas.report(3, 13, 60, 100, 1.0)
    joining = change(replicas)
    assert joining is not None
    replicas.begin(joining)
    replicas.adopt(image((1, 2, 3), partition_epoch=101), 2.0)
    assert replicas.change is None
    replicas.refused(joining, 3.0)
    assert replicas.isr_max == {2, 3}
    with pytest.raises(AssertionError):
        replicas.adopt(image(partition_epoch=100), 4.0)


@pytest.mark.parametrize(
    ("offset", "high_watermark", "epoch_start"), [(49, 50, 0), (49, 0, 50)], ids=["hw", "epoch"]
)
def test_a_follower_joins_with_all_that_was_acknowledged(
    offset: int, high_watermark: int, epoch_start: int
) -> None:
    replicas = leading(image((1, 2)), epoch_start=epoch_start)
    replicas.report(2, 12, 100, 100, 1.0)
    replicas.report(3, 13, offset, 100, 1.0)
    assert change(replicas, high_watermark=high_watermark) is None
    replicas.report(3, 13, offset + 1, 100, 1.0)
    joining = change(replicas, high_watermark=high_watermark)
    assert joining is not None
    assert joining.added == (3,)


def test_only_a_running_broker_with_its_own_registration_joins() -> None:
    replicas = leading(image((1, 2)))
    replicas.report(2, 12, 100, 100, 1.0)
    replicas.report(3, 13, 100, 100, 1.0)
    assert change(replicas, known=brokers(b3=BrokerState.DRAINING)) is None
    assert change(replicas, known=brokers(b3=BrokerState.STARTING)) is None
    assert change(replicas, known={one: brokers()[one] for one in (1, 2)}) is None
    replicas.report(3, 23, 100, 100, 2.0)
    assert change(replicas) is None


def test_a_member_that_has_registered_again_joins_anew() -> None:
    state = image()._replace(isr_epochs=(11, 12, 3))
    replicas = leading(state)
    replicas.report(2, 12, 100, 100, 1.0)
    replicas.report(3, 13, 100, 100, 1.0)
    joining = change(replicas)
    assert joining is not None
    assert joining.after.in_sync[-1] == Replica(3, 13)


def test_a_member_behind_leaves_after_the_lag() -> None:
    replicas = leading()
    replicas.report(2, 12, 100, 100, 5.0)
    replicas.report(3, 13, 99, 100, 5.0)
    assert change(replicas, now=9.9) is None
    assert replicas.leaves_at(100, LAG_SECONDS) == 10.0
    leaving = change(replicas, now=10.0)
    assert leaving is not None
    assert leaving.after.isr == (1, 2)
    assert change(replicas, end_offset=99, now=10.0) is None, "it has everything"


def test_under_a_steady_load_a_member_with_the_last_answer_stays() -> None:
    replicas = leading(image((1, 2)))
    end_offset = 100
    for second in range(30):
        replicas.report(2, 12, end_offset, end_offset + 10, float(second))
        end_offset += 10
    leaving = change(replicas, end_offset=end_offset, now=30.0)
    assert leaving is None
    stuck = change(replicas, end_offset=end_offset, now=39.0)
    assert stuck is not None


def test_the_setting_is_stored_alone_and_ends_the_eligible_replicas() -> None:
    state = image((1,))._replace(elr=(Replica(2, 12),))
    replicas = leading(state)
    replicas.report(2, 12, 100, 100, 1.0)
    changed = change(replicas, min_isr=1)
    assert changed is not None
    assert changed.added == ()
    assert (changed.after.min_isr, changed.after.elr, changed.after.isr) == (1, (), (1,))
    replicas.begin(changed)
    assert not replicas.has_enough, "the stored number is in force until the new one is"


@given(st.data())
def test_the_watermark_is_never_above_a_possible_member(data: st.DataObject) -> None:
    isr = tuple(data.draw(st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)])))
    replicas = leading(image(isr, min_isr=data.draw(st.integers(1, 3))))
    offsets = {2: NOTHING, 3: NOTHING}
    now = 0.0
    for _ in range(data.draw(st.integers(1, 20))):
        now += data.draw(st.floats(0, 6))
        match data.draw(st.sampled_from(["report", "change", "land", "refuse"])):
            case "report":
                follower = data.draw(st.sampled_from([2, 3]))
                offsets[follower] = data.draw(st.integers(0, 120))
                replicas.report(follower, EPOCHS[follower], offsets[follower], 120, now)
            case "change":
                found = change(replicas, end_offset=120, min_isr=replicas.state.min_isr, now=now)
                if found is not None:
                    replicas.begin(found)
            case "land" if replicas.change is not None:
                landed = replicas.change.after._replace(
                    partition_epoch=replicas.state.partition_epoch + 1
                )
                replicas.adopt(landed, now)
            case "refuse" if replicas.change is not None:
                replicas.refused(replicas.change, now)
        replicas.validate()
        committed = replicas.committed_below(110)
        possible = [replicas.state.isr]
        if replicas.change is not None:
            possible.append(replicas.change.after.isr)
        if min(map(len, possible)) < replicas.min_isr:
            assert committed == NOTHING
        else:
            members = {one for some in possible for one in some} - {1}
            assert committed == min([110, *(offsets[one] for one in members)])


def test_a_late_report_of_an_earlier_registration_does_not_count() -> None:
    progress = FollowerProgress(0.0)
    progress.report(13, 40, 100, 1.0)
    progress.report(12, 90, 100, 2.0)
    assert (progress.broker_epoch, progress.offset) == (13, 40)
