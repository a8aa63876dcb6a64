"""Whatever order requests, commits, failures and timers come in, each request gets one reply."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.broker.txn.requests import AddRequest, EndRequest, InitRequest, Request, VerifyRequest
from kraft.broker.txn.waiting import COMPLETION_WAIT_MS
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import ID, Coordinating

ADDS, ENDS, REST = st.integers(0, 3), st.booleans(), st.just(0)
ACTIONS = st.one_of(
    st.tuples(st.just("add"), ADDS),
    st.tuples(st.just("add"), ADDS),
    st.tuples(st.just("end"), ENDS),
    st.tuples(st.sampled_from(["init", "verify", "commit", "fail", "late", "confirm"]), REST),
    st.tuples(st.just("pass"), st.sampled_from([1, COMPLETION_WAIT_MS, 60_000])),
)


class Talk:
    """A coordinator and a producer that keeps the newest identity. `replies` has the replies to each request."""

    def __init__(self, version: int) -> None:
        self.one = Coordinating(version=version)
        self.bumps = version == 2
        self.identity = (-1, -1)
        self.replies: list[list[Any]] = []
        self.ask(InitRequest(ID, 60_000))
        self.one.commits = False

    def ask(self, request: Request) -> None:
        self.replies.append(self.one.asked(request))
        for replies in self.replies:
            for reply in replies:
                if getattr(reply, "producer_id", -1) >= 0:
                    self.identity = max(self.identity, (reply.producer_id, reply.producer_epoch))

    def act(self, kind: str, value: int) -> None:
        one = self.one
        match kind:
            case "add":
                self.ask(AddRequest(ID, *self.identity, frozenset({("orders", value)})))
            case "verify":
                self.ask(VerifyRequest(ID, *self.identity, frozenset({("orders", 0)})))
            case "end":
                self.ask(EndRequest(ID, *self.identity, is_commit=bool(value), bumps_epoch=self.bumps))
            case "init":
                self.ask(InitRequest(ID, 60_000))
            case "commit":
                one.commit()
            case "fail":
                one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case "late":
                one.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case "confirm":
                one.confirm_markers()
            case _:
                one.pass_ms(value)


@settings(max_examples=400)
@given(version=st.sampled_from([0, 2]), actions=st.lists(ACTIONS, min_size=10, max_size=60), unloads=st.booleans())
def test_each_request_gets_one_reply_in_any_order_of_events(
    version: int, actions: list[tuple[str, int]], unloads: bool
) -> None:
    talk = Talk(version)
    for kind, value in actions:
        talk.act(kind, value)
        assert all(len(replies) <= 1 for replies in talk.replies)
    if unloads:
        for ticket, reply in talk.one.machine.unload(talk.one.now).replies:
            ticket(reply)
    else:
        for _ in range(3):
            talk.one.commit()
        talk.one.pass_ms(COMPLETION_WAIT_MS)
        talk.one.commit()
    assert [len(replies) for replies in talk.replies] == [1] * len(talk.replies)
