"""`ClientLogin`: the login of one connection; it carries out the actions of a `SaslExchange`.

Guarantees:

- until the login is complete, frames are small (`frame_bytes_max`), one is handled at a time, and
  no handler runs but that of ApiVersions; while a login waits, it holds no frame;
- a login that is not complete at its deadline ends, and so does one whose check fails or takes too
  long; one whose check finds no place is closed without an answer, and may be tried again;
- the identity of the session is replaced by a complete login only; a renewal keeps it;
- at the end of a session its waiting fetches are answered with the records available, and its next
  request closes the connection unless it begins a renewal.

It decides nothing about credentials: the exchange and `LoginChecks` do. It knows no socket: the
connection passes it functions to write, to close and to resume reading.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, TypeVar

from penstock.broker.answers import (
    CLOSE_CONNECTION,
    Answer,
    HoldingAnswer,
    NoAnswer,
)
from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.login_ports import ChecksBusyError, LoginChecks, LoginOwner
from penstock.broker.connections.login_refusals import illegal_state
from penstock.broker.dispatch import Dispatcher
from penstock.broker.peer import Peer
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import Request, encode_response_frame
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse
from penstock.security.principal import user as user_principal
from penstock.security.sasl import exchange_actions as actions
from penstock.security.sasl.exchange import ELEMENTS_MAX, SaslExchange

logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 18
LENGTH_BYTES: Final = 4
Result = TypeVar("Result")
SASL_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class ClientLogin:
    """The login of one connection, and its renewals."""

    __slots__ = (
        "_answer",
        "_checks",
        "_deadline",
        "_delay_ms",
        "_dispatcher",
        "_exchange",
        "_loop",
        "_owner",
        "_request",
        "_session_end",
        "_turns",
        "_waits",
        "is_busy",
        "is_over",
        "peer",
    )

    def __init__(
        self,
        owner: LoginOwner,
        checks: LoginChecks,
        turns: CheckTurns,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        peer: Peer,
    ) -> None:
        """Begin with a new connection of `peer`, whose identity is not proven."""
        self._owner: LoginOwner | None = owner
        self._checks = checks
        self._turns = turns
        self._dispatcher = dispatcher
        self._loop = loop
        self._exchange = SaslExchange(checks.settings, loop.time())
        self._request: Request | None = None
        """The request that is being answered; None for a raw token."""
        self._answer: HoldingAnswer | None = None
        """The answer of a renewal's request, in the order of the session's answers."""
        self._delay_ms = 0
        self._waits: asyncio.TimerHandle | None = None
        self._session_end: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_busy = False
        """Whether a check or a delay is in progress: nothing is read meanwhile."""
        self.is_over = False
        """Whether the connection is closing, perhaps with an unsent answer: nothing is read."""
        self.peer = peer
        self._watch_deadline()

    @property
    def is_complete(self) -> bool:
        """Whether requests of all APIs may be handled."""
        return self._exchange.is_complete

    @property
    def has_session(self) -> bool:
        """Whether the client has logged in; it may renew its session just now."""
        return self._exchange.has_session

    @property
    def expires_at_seconds(self) -> float | None:
        """When the session ends without a renewal, on the loop's clock; None: never."""
        return self._exchange.session_expires_at_seconds

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest next frame; None when the login is complete."""
        return self._exchange.frame_bytes_max

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self._exchange.expects_raw_token

    def close(self) -> None:
        """The connection is gone."""
        self._owner = None
        for timer in (self._waits, self._session_end, self._deadline):
            if timer is not None:
                timer.cancel()
        self._waits = self._session_end = self._deadline = None

    # --- Before the login is complete ---

    def take_request(self, request: Request) -> None:
        """Handle the next request of a client that has not logged in."""
        assert not self.is_busy
        self._request = request
        self._run(self._exchange.receive_request(request, self._loop.time()))

    def take_token(self, token: memoryview) -> None:
        """Handle the next raw token."""
        assert not self.is_busy
        self._request = None
        self._run(self._exchange.receive_token(bytes(token), self._loop.time()))

    # --- After it ---

    def concerns(self, api_key: int) -> bool:
        """Whether a request of a client that has logged in is for `renew` first."""
        exchange = self._exchange
        return (
            api_key in SASL_APIS
            or not exchange.is_complete
            or exchange.session_expires_at_seconds is not None
        )

    def renew(self, request: Request) -> "Answer | Deferred[Answer] | None":
        """Answer a request of a renewal; None: the session is valid and the request an usual one.

        Later requests of the connection wait until the answer is set.
        """
        exchange, now = self._exchange, self._loop.time()
        is_raw = request.api_key == ApiKey.SASL_HANDSHAKE and request.api_version == 0
        if is_raw and exchange.is_complete:
            # Raw tokens have no correlation ids: they cannot be told from other requests.
            if exchange.is_expired(now):
                return self._expired()
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        found = exchange.receive_request(request, now)
        match found:
            case [actions.Serve()]:
                return None
            case [actions.Close(actions.CloseReason.EXPIRED)]:
                return self._expired()
        self._request = request
        answer = self._answer = HoldingAnswer(_NothingToWaitFor())
        self._run(found)
        return answer

    def _expired(self) -> Answer:
        self._checks.session_expired(self.peer)
        return CLOSE_CONNECTION

    # --- Actions ---

    def _run(self, todo: list[actions.Action]) -> None:
        """Carry out the actions in order; a delay or a question continues later."""
        for index, action in enumerate(todo):
            if self._owner is None:
                return
            match action:
                case actions.Delay(delay_ms):
                    self._continue_after(delay_ms, todo[index + 1 :])
                    return
                case actions.LoginFailed():
                    self._failed(action, todo[index + 1 :])
                    return
                case actions.Established() if self._is_delayed(action):
                    self._continue_after(self._delay_ms, todo[index:])
                    return
                case actions.VerifyPassword() | actions.VerifyToken() | actions.LookUpScram():
                    self._ask(action)
                    return
                case _:
                    self._carry_out(action)
        if not self.is_over:
            self._watch_deadline()
        if self._owner is not None:
            self._owner.login_changed(None)

    def _run_late(self, step: Callable[[], list[actions.Action]]) -> None:
        """Go on outside of the handling of a frame, where no caller closes after a defect."""
        try:
            self._run(step())
        except Exception:
            logger.exception("the login of %s failed by a defect", self.peer.address)
            self._dispatcher.failed()
            if self._owner is not None:
                self._owner.login_abort()

    def _carry_out(self, action: actions.Action) -> None:
        owner = self._owner
        assert owner is not None
        match action:
            case actions.Answer(message, _):
                self._send(message)
            case actions.AnswerRaw(token):
                owner.login_write([len(token).to_bytes(LENGTH_BYTES) + token])
            case actions.ServeVersions():
                self._serve_versions()
            case actions.RefuseIllegalState():
                self._refuse_illegal_state()
            case actions.Established():
                self._established(action)
            case actions.Close(reason):
                self._close(reason)
            case _:
                raise AssertionError(action)

    def _send(self, message: Message) -> None:
        assert self._owner is not None
        assert self._request is not None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set(message)
            answer.release()
        else:
            self._owner.login_write(encode_response_frame(self._request, message))

    def _serve_versions(self) -> None:
        assert self._request is not None
        # A malformed one raises `PeerError` here; the dispatcher would decode it on a thread.
        self._request.decode(ELEMENTS_MAX)
        answer = self._dispatcher.dispatch(self._request, self.peer)
        assert isinstance(answer, ApiVersionsResponse)
        self._send(answer)
        for action in self._exchange.versions_served(answer.error_code):
            self._carry_out(action)

    def _refuse_illegal_state(self) -> None:
        assert self._request is not None
        refusal = illegal_state(self._request.api_key, self._request.api_version)
        if refusal is not None:
            self._send(refusal)

    def _is_delayed(self, session: actions.Established) -> bool:
        """Whether the answer to a good login has to wait, because too many failed before it."""
        if self._delay_ms:
            self._delay_ms = 0  # it has waited
            return False
        principal = user_principal(session.principal_name)
        self._delay_ms = self._checks.success_delay_ms(self.peer._replace(principal=principal))
        return self._delay_ms > 0

    def _established(self, session: actions.Established) -> None:
        assert self._owner is not None
        principal = user_principal(session.principal_name)
        self.peer = self.peer._replace(principal=principal, mechanism=session.mechanism)
        self._checks.logged_in(self.peer, is_again=session.is_renewal)
        self._owner.login_changed(self.peer)
        if self._session_end is not None:
            self._session_end.cancel()
            self._session_end = None
        expires_at = session.session_expires_at_seconds
        if expires_at is not None:
            self._session_end = self._loop.call_at(expires_at, self._session_ended)

    def _session_ended(self) -> None:
        if self._owner is not None:
            self._owner.session_ended()

    def _failed(self, failure: actions.LoginFailed, rest: list[actions.Action]) -> None:
        least_ms = self._checks.login_failed(
            self.peer, failure.mechanism, failure.user, failure.reason
        )
        if rest and isinstance(rest[0], actions.Delay):
            rest = [actions.Delay(max(least_ms, rest[0].delay_ms)), *rest[1:]]
        self._run(rest)

    def _close(self, reason: actions.CloseReason) -> None:
        owner = self._owner
        assert owner is not None
        logger.info("closing the connection from %s: %s", self.peer.address, reason.value)
        self.is_over = True
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set(NoAnswer(close_connection=True))
        elif reason is actions.CloseReason.NOT_SASL:
            owner.login_abort()
        else:
            owner.login_close()

    # --- Waiting ---

    def _wait(self) -> None:
        """Read nothing until the next step, and hold no frame that the budget does not count."""
        self.is_busy = True
        if self._request is not None and self._answer is None:
            self._request.forget_body()

    def _continue_after(self, delay_ms: int, rest: list[actions.Action]) -> None:
        self._wait()
        self._stop_watching()
        self._waits = self._loop.call_later(delay_ms / 1000, self._continue, rest)

    def _continue(self, rest: list[actions.Action]) -> None:
        self._waits = None
        self.is_busy = False
        self._run_late(lambda: rest)

    def _ask(self, question: actions.Question) -> None:
        exchange, now = self._exchange, self._loop.time
        match question:
            case actions.LookUpScram(mechanism, user):
                nonce = secrets.token_urlsafe(NONCE_BYTES)
                credential = self._checks.scram_credential(mechanism, user)
                self._run(exchange.scram_found(credential, nonce, now()))
            case actions.VerifyPassword(user, password):
                self._wait()
                check = partial(self._checks.verify_password, user, password)
                self._turns.join(self.peer.address, partial(self._begin_in_turn, check))
            case actions.VerifyToken(token):
                self._wait()
                self._dispatcher.start(
                    self._checked(
                        partial(self._checks.verify_token, token),
                        lambda verified: exchange.token_verified(verified, now()),
                    )
                )

    def _begin_in_turn(self, check: Callable[[], Coroutine[object, object, str | None]]) -> bool:
        if self._owner is None:
            return False
        self._dispatcher.start(self._checked_in_turn(check))
        return True

    async def _checked_in_turn(
        self, check: Callable[[], Coroutine[object, object, str | None]]
    ) -> None:
        exchange, now = self._exchange, self._loop.time
        try:
            await self._checked(check, lambda name: exchange.password_verified(name, now()))
        finally:
            self._turns.leave(self.peer.address)

    async def _checked(
        self,
        check: Callable[[], Coroutine[object, object, Result]],
        then: Callable[[Result], list[actions.Action]],
    ) -> None:
        try:
            result = await check()
            continued = partial(then, result)
        except ChecksBusyError as error:
            logger.info("closing the connection from %s: %s", self.peer.address, error)
            if self._owner is not None:
                self._owner.login_abort()
            return
        except PenstockError as error:
            continued = partial(self._exchange.not_verified, str(error))
        except Exception:
            logger.exception("a credential could not be checked; its login fails")
            continued = partial(self._exchange.not_verified, "a check failed by a defect")
        self.is_busy = False
        if self._owner is not None:
            self._run_late(continued)

    # --- Time ---

    def _watch_deadline(self) -> None:
        self._stop_watching()
        at = self._exchange.deadline_seconds
        if at is not None and self._owner is not None:
            self._deadline = self._loop.call_at(at, self._timed_out)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _timed_out(self) -> None:
        if self._owner is None:
            return
        self._checks.login_failed(self.peer, "", "", "the login took too long")
        self._owner.login_abort()


class _NothingToWaitFor:
    """`Waiter` of a renewal, which its own deadline ends."""

    __slots__ = ()

    def abandon(self) -> None:
        """The client has disconnected."""

    def hurry(self) -> None:
        """Do nothing: a login has no partial answer."""
