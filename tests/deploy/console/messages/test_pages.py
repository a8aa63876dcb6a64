"""The message pages over HTTP, against a real cluster."""

from __future__ import annotations

import pytest
import trio
from starlette.types import Message

from kraft.client import Producer
from kraft.client.admin import Admin, NewTopic
from kraft.deploy.console.event_stream import EventStream
from kraft.deploy.console.messages import reading
from kraft.deploy.console.messages.query import Query
from kraft.deploy.console.messages.reading import Reader
from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.asgi import scope_of
from tests.deploy.console.inside import console

HOUR_MS = 3_600_000


async def fill(bootstrap: str, topic: str, *, partitions: int = 1, count: int = 8) -> None:
    """Write records 0 to `count` - 1 to partition 0, one per hour since 1970, as JSON with a header."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.topics.create(NewTopic(topic, partitions=partitions))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for at in range(count):
            await producer.send(
                topic,
                b'{"n":%d}' % at,
                b"key-%d" % at,
                partition=0,
                headers=[("trace", b"%d" % at)],
                timestamp_ms=at * HOUR_MS,
            )


async def test_the_messages_page_shows_the_newest_records_decoded_and_a_link_to_older_ones(
    small_cluster: LocalCluster,
) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "newest")
    async with console(bootstrap) as asked:
        page = await asked.page("/messages/newest?count=2")
        assert '{ "n": 7 }' in page
        assert '{ "n": 5 }' not in page
        assert "trace 7" in page
        assert "2 records shown, 2 read" in page
        older = await asked.page("/messages/newest?count=2&where=before&cursor=0-6")
        assert '{ "n": 5 }' in older


async def test_a_page_of_large_records_is_bounded_in_bytes_and_marked_incomplete(
    small_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "large")
    monkeypatch.setattr(reading, "POLL_RECORDS", 2)
    monkeypatch.setattr(reading, "HELD_BYTES_MAX", 1)
    monkeypatch.setattr(reading, "READ_MS_MAX", 60_000)
    async with console(bootstrap) as asked:
        page = await asked.page("/messages/large")
        assert "2 records shown, 2 read" in page
        assert "Not all was read" in page


async def test_the_messages_page_finds_records_by_offset_time_and_filter(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "found", partitions=3)
    async with console(bootstrap) as asked:
        by_offset = await asked.page("/messages/found?partition=0&where=offset&offset=6")
        assert "2 records shown" in by_offset
        by_time = await asked.page("/messages/found?where=time&time=1970-01-01T05:00")
        assert "3 records shown" in by_time
        filtered = await asked.page("/messages/found?where=begin&filter=n.:[35]&regex=1&part=value")
        assert "2 records shown, 8 read" in filtered
        in_header = await asked.page("/messages/found?filter=trace%3D4&part=header")
        assert "1 record shown, 8 read" in in_header


async def test_an_invalid_messages_query_is_refused_with_the_reason(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "wrong", count=0)
    async with console(bootstrap) as asked:
        assert "has no partition 9" in await asked.page("/messages/wrong?partition=9", status=400)
        assert "not a regular expression" in await asked.page("/messages/wrong?filter=(&regex=1", status=400)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in await asked.page("/messages/not-there", status=400)
        assert "No record here" in await asked.page("/messages/wrong")


async def test_a_regular_expression_that_backtracks_endlessly_does_not_block_the_console(
    small_cluster: LocalCluster,
) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "hard", count=0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(3):
            await producer.send("hard", b"a" * 20_000 + b"c")
    async with console(bootstrap) as asked:
        answer = await asked.client.get("/messages/hard", params={"filter": "(a|a)*$", "regex": "1", "part": "value"})
        assert answer.status_code == 400
        assert "took more than 50 ms with the record at hard-0, offset 0" in answer.text
        assert "3 records shown" in await asked.page("/messages/hard?filter=a&part=value")


async def test_the_record_page_shows_the_whole_record_in_the_requested_form(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "whole", count=2)
    async with console(bootstrap) as asked:
        assert "key-1" in await asked.page("/messages/whole/0/1")
        assert "7b 22 6e 22 3a 31 7d" in await asked.page("/messages/whole/0/1?form=hex")
        assert "holds no record at offset 7" in await asked.page("/messages/whole/0/7", status=404)


async def test_the_messages_page_escapes_names_and_values(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "escaped", count=0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send("escaped", b"<script>hit</script>", b"<b>", headers=[("<i>", b"<u>")])
    async with console(bootstrap) as asked:
        answer = await asked.client.get("/messages/escaped?filter=%22%3E%3Cb%3E")
        assert 'name="filter" size="20" value="&#34;&gt;&lt;b&gt;"' in answer.text
        answer = await asked.client.get("/messages/escaped")
        assert "&lt;script&gt;hit" in answer.text
        assert not {"<script>hit", "<i>", "<u>"} & set(answer.text.split())


async def test_a_record_is_appended_only_from_a_console_page_with_changes_allowed(
    small_cluster: LocalCluster,
) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "appended", count=0)
    async with console(bootstrap) as asked:
        assert "--allow-changes" in await asked.page("/messages/appended")
        assert (await asked.post("/messages/appended", value="x")).status_code == 403
    async with console(bootstrap, allow_changes=True) as asked:
        assert (await asked.post("/messages/appended", origin="http://evil.example", value="x")).status_code == 403
        answer = await asked.post("/messages/appended", key="k", value_null="1", headers="a=b")
        assert answer.headers["location"] == "/messages/appended?notice=Appended+to+partition+0+at+offset+0"
        answer = await asked.post("/messages/appended", key="0", key_form="hex")
        assert "expected pairs of hexadecimal digits" in answer.text
    async with console(bootstrap) as asked:
        page = await asked.page("/messages/appended")
        assert "1 record shown" in page
        assert "null" in page


async def test_following_a_topic_yields_new_records_that_match(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "followed", count=1)
    got: list[bytes | None] = []
    async with console(bootstrap) as asked, trio.open_nursery() as nursery:
        settings = asked.app.state.view.settings

        async def tell(records: list[object], left_out: int) -> None:
            got.extend(record.value for record in records)  # type: ignore[attr-defined]
            assert left_out == 0
            if not records:
                begun.set()
            else:
                nursery.cancel_scope.cancel()

        begun = trio.Event()
        nursery.start_soon(Reader(settings.admin, settings.consumer).follow, Query("followed"), tell)
        await begun.wait()
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send("followed", b"new")
            await trio.sleep_forever()
    assert got == [b"new"]


async def test_following_a_topic_over_http_sends_rows_as_events(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    await fill(bootstrap, "streamed", count=1)
    sent: list[str] = []
    async with console(bootstrap) as asked, Producer(bootstrap_servers=bootstrap) as producer:
        gone = trio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message.get("body", b"").decode())
            if '"rows": []' in sent[-1]:
                await producer.send("streamed", b"<new>")
            elif "event: records" in sent[-1]:
                gone.set()

        await asked.app(scope_of("GET", "/messages/streamed/live?filter=new"), receive, send)
    assert [text for text in sent if "event" in text][1:]
    assert "<new>" in "".join(sent)
    assert EventStream.open_streams == 0
