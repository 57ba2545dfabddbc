"""An error that ends a whole request becomes the answer that its handler's module builds."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.answers import CLOSE_CONNECTION, Answer
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.core.deferred import Deferred
from penstock.core.errors import CoordinatorError, NotCoordinatorError, PenstockError
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.headers import RequestHead
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.handlers.fakes import FakeServices

VERSION = 0
HEAD = RequestHead(ApiKey.LIST_GROUPS, VERSION, correlation_id=1, client_id=None, body_start=0)
FAILURES = "handler_failures_total"


def refuse(request: ListGroupsRequest, code: ErrorCode, message: str) -> ListGroupsResponse:
    assert isinstance(request, ListGroupsRequest)
    assert message == "elsewhere"
    return ListGroupsResponse(error_code=code, groups=())


def plain(error: PenstockError) -> Callable[..., Answer]:
    def handle(request: ListGroupsRequest, context: RequestContext) -> Answer:
        raise error

    return handle


def coroutine(error: PenstockError) -> Callable[..., Any]:
    async def handle(request: ListGroupsRequest, context: RequestContext) -> Answer:
        raise error

    return handle


def answer_to(handler: Handler, metrics: Registry) -> Answer:
    dispatcher = Dispatcher(FakeServices().services, {ApiKey.LIST_GROUPS: handler}, metrics)
    request = Request(HEAD, memoryview(b""), is_version_unsupported=False)
    answer = dispatcher.dispatch(request)
    found: list[Answer] = []
    if isinstance(answer, Deferred):
        answer.then(found.append)
        (answer,) = found
    return answer


@pytest.mark.parametrize("kind", [plain, coroutine])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotCoordinatorError("elsewhere"), ErrorCode.NOT_COORDINATOR),
        (CoordinatorError("elsewhere"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_code_is_in_the_answer(
    kind: Callable[[PenstockError], Any], error: PenstockError, code: ErrorCode
) -> None:
    handler = Handler(kind(error), VERSION, VERSION)
    handler.refuse = refuse
    metrics = Registry()
    assert answer_to(handler, metrics) == ListGroupsResponse(error_code=code, groups=())
    assert metrics.snapshot()[FAILURES] == 0


@pytest.mark.parametrize("kind", [plain, coroutine])
def test_without_such_an_answer_the_connection_is_closed(
    kind: Callable[[PenstockError], Any], caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Registry()
    handler = Handler(kind(NotCoordinatorError("elsewhere")), VERSION, VERSION)
    assert answer_to(handler, metrics) is CLOSE_CONNECTION
    assert metrics.snapshot()[FAILURES] == 1
    assert "API key 16 failed" in caplog.text
    assert "elsewhere" in caplog.text
