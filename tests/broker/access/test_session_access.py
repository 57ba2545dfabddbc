"""Fetch sessions belong to a principal, and a fetch that waits loses a right that is revoked."""

from dataclasses import replace

import pytest

from penstock.broker.access import Access
from penstock.broker.answers import Answer, WaitingAnswer
from penstock.broker.context import RequestContext
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.handlers import fetch
from penstock.broker.peer import Peer
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.principal import ANONYMOUS, user
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers.asker import NAMED, fetch_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION, batch

ALICE, BOB = user("alice"), user("bob")
TOPIC = PARTITION.topic
READ: Rule = (Operation.READ, ResourceType.TOPIC, TOPIC)
NO_TOPICS: dict[str, dict[int, int]] = {}
NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.fixture
def sessions() -> FetchSessionCache:
    numbers = iter(range(1, 100))
    return FetchSessionCache(lambda: next(numbers))


def test_another_principal_cannot_continue_a_session(sessions: FetchSessionCache) -> None:
    begun = sessions.begin(fetch_request({"t": {0: 0}}, session_epoch=0), 0.0, owner=ALICE)
    assert begun.session_id == 1
    more = fetch_request({"u": {0: 0}}, session_id=1, session_epoch=1)
    for stranger in (BOB, ANONYMOUS):
        plan = sessions.begin(more, 0.0, owner=stranger)
        assert (plan.error, plan.partitions) == (NOT_FOUND, [])
    sessions.validate()
    again = fetch_request(NO_TOPICS, session_id=1, session_epoch=1)
    plan = sessions.begin(again, 0.0, owner=ALICE)
    assert plan.error == ErrorCode.NONE
    assert [asked.topic for asked in plan.partitions] == ["t"]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_another_principal_cannot_end_a_session(sessions: FetchSessionCache, epoch: int) -> None:
    sessions.begin(fetch_request({"t": {0: 0}}, session_epoch=0), 0.0, owner=ALICE)
    ending = fetch_request({"t": {0: 0}}, session_id=1, session_epoch=epoch)
    assert sessions.begin(ending, 0.0, owner=BOB).session_id != 1
    again = fetch_request(NO_TOPICS, session_id=1, session_epoch=1)
    assert sessions.begin(again, 0.0, owner=ALICE).error == ErrorCode.NONE
    sessions.begin(ending, 0.0, owner=ALICE)
    gone = fetch_request(NO_TOPICS, session_id=1, session_epoch=2)
    assert sessions.begin(gone, 0.0, owner=ALICE).error == NOT_FOUND
    sessions.validate()


class Scene:
    """A broker of one partition, whose rules and disk the test moves."""

    def __init__(self) -> None:
        self.fake = FakeServices()
        self.rules = RuleSet()
        access = Access(self.rules, self.rules)
        self.services = replace(self.fake.services, access=access)

    def fetch(self, *, principal: str = "alice", **bounds: int) -> list[Answer]:
        """The answers so far, to a fetch of the partition or to the next one of a session."""
        peer = Peer("127.0.0.1", user(principal))
        context = RequestContext(
            self.services,
            NAMED,
            "test",
            is_version_unsupported=False,
            peer=peer,
            api_key=ApiKey.FETCH,
        )
        topics = NO_TOPICS if bounds.get("session_id") else {TOPIC: {0: 0}}
        answers: list[Answer] = []
        outcome = fetch.handle(fetch_request(topics, **bounds), context)
        if isinstance(outcome, WaitingAnswer):
            outcome.then(answers.append)
        else:
            assert isinstance(outcome, FetchResponse)
            answers.append(outcome)
        return answers

    def append(self) -> None:
        self.fake.node.append(batch())
        self.fake.node.sync()


def code_in(answers: list[Answer]) -> ErrorCode:
    (answer,) = answers
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0].error_code


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_right_that_is_revoked_during_a_wait(is_revoked: bool) -> None:
    scene = Scene()
    scene.rules.only(READ)
    answers = scene.fetch(wait_ms=5_000)
    assert answers == []
    if is_revoked:
        scene.rules.only()
    scene.append()
    expected = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_revoked else ErrorCode.NONE
    assert code_in(answers) == expected
    assert scene.rules.denials == ([READ] if is_revoked else [])


def test_the_handler_passes_the_principal() -> None:
    scene = Scene()
    scene.append()
    (begun,) = scene.fetch(session_epoch=0)
    assert isinstance(begun, FetchResponse)
    assert begun.session_id > 0
    (stolen,) = scene.fetch(principal="bob", session_id=begun.session_id, session_epoch=1)
    assert isinstance(stolen, FetchResponse)
    assert (stolen.error_code, stolen.responses) == (NOT_FOUND, ())
    (own,) = scene.fetch(session_id=begun.session_id, session_epoch=1)
    assert isinstance(own, FetchResponse)
    assert own.error_code == ErrorCode.NONE


def test_without_an_authorizer_nothing_is_asked() -> None:
    scene = Scene()
    scene.services = scene.fake.services
    scene.rules.only()
    scene.append()
    assert code_in(scene.fetch()) == ErrorCode.NONE
