"""Injected reply faults: a policy between framing and the handlers of a listener, in nodes that inject faults on
purpose.

A node without a policy does not run this code. Invariants: a request to which a rule applies is handled at most once.
The order of requests on a connection stays (a delayed one holds back those behind it). A rule affects only the
connection of its request. Source: docs/decisions/09-faults-on-purpose.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog
import trio

from kraft.seam import Chunk, Clock, CloseReason, InvariantError, WireError
from kraft.wire.messages.error_answers import error_answer
from kraft.wire.messages.named_partitions import NamedPartition
from kraft.wire.reply_policy import ReplyAction, ReplyPolicy, ReplyRule, api_name
from kraft.wire.server import Request

log = structlog.get_logger("kraft.faults")

Handle = Callable[[Request], None]
Named = Callable[[Request], Collection[NamedPartition]]
"""Function that returns the partitions that a request names. Raises WireError if the request does not parse."""


def no_partitions(request: Request) -> Collection[NamedPartition]:
    """Return no partitions, for a listener whose requests do not concern partitions."""
    return ()


class ReplyFaults:
    """Applies one node's reply policy. `run` is the task that waits out delays."""

    def __init__(self, policy: ReplyPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out delays until cancelled. While this task does not run, rules that delay have no effect."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:  # before the last delay has ended: a closed nursery would reject the next one
                self._nursery = None

    def wrap(self, handle: Handle, named: Named = no_partitions) -> Handle:
        """Return a handler that applies the policy to each request before `handle`."""

        def with_faults(request: Request) -> None:
            if not self._policy.rules:
                handle(request)
                return
            rule = self._policy.decide(request.api_key, request.client_id, lambda: named(request))
            if rule is None:
                handle(request)
                return
            log.info("fault injected", api=api_name(request.api_key), action=rule.action.value, after=rule.after)
            if rule.after:
                self._corrupt_response(rule, request, handle, named)
            else:
                self._corrupt_request(rule, request, handle, named)

        return with_faults

    def _corrupt_request(self, rule: ReplyRule, request: Request, handle: Handle, named: Named) -> None:
        match rule.action:
            case ReplyAction.ERROR:
                _answer(request, _error_of(rule, request, named))
            case ReplyAction.CLOSE:
                _close(request)
            case ReplyAction.DELAY if self._nursery is not None:
                request.body = memoryview(bytearray(request.body))
                request.connection.mute()
                self._nursery.start_soon(self._handle_late, rule.delay_ms, request, handle)
            case ReplyAction.DELAY:
                handle(request)
            case ReplyAction.DROP:
                pass  # its response slot stays empty

    async def _handle_late(self, delay_ms: int, request: Request, handle: Handle) -> None:
        await self._clock.sleep_ms(delay_ms)
        if request.connection.closed_because is not None:
            return
        try:
            handle(request)
        except WireError as error:
            request.fail(str(error))
            return
        request.connection.unmute()

    def _corrupt_response(self, rule: ReplyRule, request: Request, handle: Handle, named: Named) -> None:
        error = _error_of(rule, request, named) if rule.action is ReplyAction.ERROR else None

        def answered(chunks: tuple[Chunk, ...] | None) -> None:
            match rule.action:
                case ReplyAction.ERROR:
                    _answer(request, error)
                case ReplyAction.CLOSE:
                    _close(request)
                case ReplyAction.DELAY if self._nursery is not None:
                    self._nursery.start_soon(self._answer_late, rule.delay_ms, request, chunks)
                case ReplyAction.DELAY:
                    _answer_as(request, chunks)
                case ReplyAction.DROP:
                    pass  # its response slot stays empty

        handle(InterceptedRequest(request, answered))

    async def _answer_late(self, delay_ms: int, request: Request, chunks: tuple[Chunk, ...] | None) -> None:
        await self._clock.sleep_ms(delay_ms)
        _answer_as(request, chunks)


class InterceptedRequest(Request):
    """Stands in for a request that a rule affects: the response goes to `answered` instead of the connection.
    `answered` gets None if the request wants no response."""

    __slots__ = ("_answered", "_original")

    def __init__(self, original: Request, answered: Callable[[tuple[Chunk, ...] | None], None]) -> None:
        super().__init__(
            original.connection,
            original.api_key,
            original.api_version,
            original.correlation_id,
            original.client_id,
            original.body,
            has_tagged_header=False,
        )
        self._original = original
        self._answered: Callable[[tuple[Chunk, ...] | None], None] | None = answered

    @property
    def is_answered(self) -> bool:
        return self._answered is None

    def respond(self, *chunks: Chunk) -> None:
        self._give(chunks)

    def respond_nothing(self) -> None:
        self._give(None)

    def fail(self, why: str, reason: CloseReason = CloseReason.BAD_BYTES) -> None:
        self._original.fail(why, reason)

    def _give(self, chunks: tuple[Chunk, ...] | None) -> None:
        answered, self._answered = self._answered, None
        if answered is None:
            raise InvariantError(f"request {self.correlation_id} (key {self.api_key}) was answered twice")
        answered(chunks)


def _error_of(rule: ReplyRule, request: Request, named: Named) -> tuple[Chunk, ...] | None:
    return error_answer(request.api_key, request.api_version, request.body, rule.error, named(request))


def _answer(request: Request, chunks: tuple[Chunk, ...] | None) -> None:
    """Answer with an error; for a request that wants no response, end the connection instead."""
    if chunks is None:
        _close(request)
    else:
        request.respond(*chunks)


def _answer_as(request: Request, chunks: tuple[Chunk, ...] | None) -> None:
    if chunks is None:
        request.respond_nothing()
    else:
        request.respond(*chunks)


def _close(request: Request) -> None:
    request.fail("a fault was injected on purpose", CloseReason.LOCAL)
