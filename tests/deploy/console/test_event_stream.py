"""A stream of server-sent events: the events that it sends, and when it ends."""

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


async def test_an_event_stream_sends_events_as_json_and_ends_when_its_work_function_returns() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def work(emit: Emit) -> None:
        await emit("rows", {"a": "line\nü"})

    await EventStream(work)(SCOPE, never, send)
    assert 'event: rows\ndata: {"a": "line\\nü"}\n\n' in body_of(sent)
    assert sent[-1].get("more_body") is False


async def test_an_expected_exception_is_sent_as_the_last_event_of_an_event_stream() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def work(emit: Emit) -> None:
        raise KeyError("why")

    await EventStream(work, expected=(KeyError,))(SCOPE, never, send)
    assert "event: problem\ndata: \"'why'\"" in body_of(sent)


async def test_a_disconnecting_browser_ends_the_work_of_an_event_stream() -> None:
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


async def test_an_event_stream_beyond_the_limit_is_refused_with_the_limit() -> None:
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
