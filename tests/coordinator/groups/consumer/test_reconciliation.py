"""One step of a member towards its target, for each state it can be in."""

from collections.abc import Collection
from uuid import UUID

import pytest

from penstock.coordinator.groups.consumer.consumer_member import Member, MemberState
from penstock.coordinator.groups.consumer.reconciliation import Target, reconcile
from penstock.coordinator.groups.refused import RefusedError
from penstock.protocol.error_codes import ErrorCode

T, U = UUID(int=1), UUID(int=2)


def target(
    epoch: int,
    *numbers: int,
    owned_by_others: Collection[int] = (),
    subscribed: Collection[UUID] = (T, U),
) -> Target:
    partitions = {T: frozenset(numbers)} if numbers else {}
    return Target(epoch, partitions, subscribed, lambda _, number: number in owned_by_others)


def member(epoch: int, *numbers: int, state: MemberState = MemberState.STABLE) -> Member:
    return Member(
        member_id="m",
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned={T: dict.fromkeys(numbers, epoch)} if numbers else {},
    )


def test_a_member_in_the_epoch_of_the_target_stays() -> None:
    before = member(3, 0, 1)
    assert reconcile(before, target(3, 0, 1), None, is_subscription_changed=False) is before


def test_a_member_that_only_gets_more_is_stable_at_once() -> None:
    after = reconcile(member(3, 0), target(4, 0, 1), None, is_subscription_changed=False)
    assert (after.state, after.epoch, after.previous_epoch) == (MemberState.STABLE, 4, 3)
    assert after.assigned == {T: {0: 3, 1: 4}}


def test_a_member_that_must_give_up_stays_in_its_epoch() -> None:
    after = reconcile(member(3, 0, 1), target(4, 0), None, is_subscription_changed=False)
    assert (after.state, after.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert after.assigned == {T: {0: 3}}
    assert after.pending_revocation == {T: {1: 3}}


def test_a_member_that_has_given_up_goes_on() -> None:
    asked = reconcile(member(3, 0, 1), target(4, 0), None, is_subscription_changed=False)
    still = reconcile(asked, target(4, 0), {T: (0, 1)}, is_subscription_changed=False)
    assert still is asked
    silent = reconcile(asked, target(4, 0), None, is_subscription_changed=False)
    assert silent is asked, "who says nothing may still be reading"
    after = reconcile(asked, target(4, 0), {T: (0,)}, is_subscription_changed=False)
    assert (after.state, after.epoch) == (MemberState.STABLE, 4)
    assert after.pending_revocation == {}


def test_a_member_waits_for_what_others_have() -> None:
    others = target(4, 0, 1, 2, owned_by_others={2})
    after = reconcile(member(3, 0), others, None, is_subscription_changed=False)
    assert (after.state, after.epoch) == (MemberState.UNRELEASED_PARTITIONS, 4)
    assert after.assigned == {T: {0: 3, 1: 4}}
    free = reconcile(after, target(4, 0, 1, 2), None, is_subscription_changed=False)
    assert (free.state, sorted(free.assigned[T])) == (MemberState.STABLE, [0, 1, 2])


def test_a_member_may_have_back_what_it_is_giving_up() -> None:
    asked = reconcile(member(3, 0, 1), target(4, 0), None, is_subscription_changed=False)
    again = target(5, 0, 1, owned_by_others={0, 1})
    after = reconcile(asked, again, {T: (0,)}, is_subscription_changed=False)
    assert (after.state, sorted(after.assigned[T])) == (MemberState.STABLE, [0, 1])


def test_a_topic_that_is_not_subscribed_to_goes_before_a_new_target() -> None:
    unsubscribed = target(3, 0, subscribed=(U,))
    after = reconcile(member(3, 0), unsubscribed, None, is_subscription_changed=True)
    assert (after.state, after.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert (after.assigned, after.pending_revocation) == ({}, {T: {0: 3}})
    gone = reconcile(member(3, 0), unsubscribed, {}, is_subscription_changed=True)
    assert (gone.state, gone.assigned) == (MemberState.STABLE, {})


def test_a_member_in_an_unknown_state_must_begin_again() -> None:
    unknown = member(3, 0, state=MemberState.UNKNOWN)
    with pytest.raises(RefusedError) as refused:
        reconcile(unknown, target(4, 0), None, is_subscription_changed=False)
    assert refused.value.error_code is ErrorCode.FENCED_MEMBER_EPOCH
    after = reconcile(unknown, target(4, 0), {}, is_subscription_changed=False)
    assert (after.state, after.epoch) == (MemberState.STABLE, 4)
