"""Replies whose records followers do not confirm in time: the client retries, the shard goes on."""

from penstock.core.errors import CoordinatorNotAvailableError, RequestTimedOutError
from tests.coordinator.toy_shard import Add, Done, MemoryJournal, Read, Rig


def test_a_late_reply_lets_the_client_retry_and_keeps_the_shard() -> None:
    """Guards `_refuse_late`: a client waited as long as its coordinator, up to an hour."""
    journal = MemoryJournal()
    rig = Rig(journal)
    answers = rig.ask(Add("a", 1))
    assert answers == []
    journal.be_late(RequestTimedOutError("not confirmed in time"))
    assert [type(one) for one in answers] == [CoordinatorNotAvailableError]
    journal.commit()
    assert len(answers) == 1, "a request is answered once"
    assert rig.ask(Read("a")) == [Done(1)], "the records count"


def test_a_reply_in_time_is_not_late() -> None:
    journal = MemoryJournal()
    rig = Rig(journal)
    answers = rig.ask(Add("a", 1))
    journal.commit()
    journal.be_late(RequestTimedOutError("not confirmed in time"))
    assert answers == [Done(1)]
