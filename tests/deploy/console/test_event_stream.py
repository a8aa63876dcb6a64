"""A stream of server-sent events: what it sends, and when it ends."""

from __future__ import annotations

import trio
from starlette.types import Message

from kraft.deploy.console.event_stream import STREAMS_MAX, Emit, EventStream

SCOPE = {"type": "http", "method": "GET", "headers": []}


async def never() -> Message:
    await trio.sleep_forever()
    raise AssertionError


def body_of(sent: list[Message]) -> str:
    return b"".join(message.get("body", b"") for message in sent).decode()


async def test_events_are_sent_as_json_and_the_stream_ends_with_its_work() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def work(emit: Emit) -> None:
        await emit("rows", {"a": "line\nü"})

    await EventStream(work)(SCOPE, never, send)
    assert 'event: rows\ndata: {"a": "line\\nü"}\n\n' in body_of(sent)
    assert sent[-1].get("more_body") is False


async def test_an_expected_failure_is_the_last_event() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def work(emit: Emit) -> None:
        raise KeyError("why")

    await EventStream(work, expected=(KeyError,))(SCOPE, never, send)
    assert "event: problem\ndata: \"'why'\"" in body_of(sent)


async def test_a_browser_that_goes_ends_the_work() -> None:
    ended = trio.Event()

    async def send(message: Message) -> None:
        pass

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def work(emit: Emit) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    await EventStream(work)(SCOPE, gone, send)
    assert ended.is_set()
    assert EventStream.open_streams == 0


async def test_one_stream_too_many_is_refused_with_the_limit() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def work(emit: Emit) -> None:
        raise AssertionError

    EventStream.open_streams = STREAMS_MAX
    try:
        await EventStream(work)(SCOPE, never, send)
    finally:
        EventStream.open_streams = 0
    assert sent[0]["status"] == 503
    assert str(STREAMS_MAX) in body_of(sent)
