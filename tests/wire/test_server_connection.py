from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import CloseReason, FileRange, InvariantError, WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.budget import MemoryBudget
from kraft.wire.framing import JOIN_BYTES_MAX
from kraft.wire.rpc import InternalKey
from kraft.wire.server import (
    CONTROLLER_TABLE,
    EVERY_TABLE,
    ApiTable,
    LongRequest,
    Request,
    ServerConnection,
    ServerLimits,
)
from kraft.wire.varints import encode_unsigned
from tests.stages.fake_transport import MemoryFile, RecordingTransport, drain, feed, frame, frames_in, take_turns
from tests.wire.fake_broker import BROKER_TABLE


class Server:
    """A connection whose handler keeps the requests, or answers each with the request's body if `echo`."""

    def __init__(
        self, *, echo: bool = False, limits: ServerLimits | None = None, table: ApiTable = EVERY_TABLE
    ) -> None:
        self.transport = RecordingTransport()
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.ends: list[CloseReason] = []
        self.echo = echo
        self.budget = MemoryBudget(64 << 20)
        self.connection = ServerConnection(
            self.transport,
            self.handle,
            limits=limits or ServerLimits(),
            budget=self.budget,
            on_closed=lambda _, reason: self.ends.append(reason),
            table=table,
        )

    def handle(self, request: Request) -> None:
        self.requests.append(request)
        self.bodies.append(bytes(request.body))
        if self.echo:
            request.respond(bytes(request.body))


def answers(data: bytes) -> list[tuple[int, bytes]]:
    return [(struct.unpack_from(">i", content)[0], content[4:]) for content in frames_in(data)]


@pytest.mark.parametrize("piece_bytes", [None, 1, 7, 1000])
def test_server_handles_frames_however_their_bytes_are_split(piece_bytes: int | None) -> None:
    server = Server(echo=True)
    data = b"".join(frame(b"body %d" % i, correlation_id=i) for i in range(20))
    feed(server.connection, data, piece_bytes=piece_bytes)
    assert answers(drain(server.connection)) == [(i, b"body %d" % i) for i in range(20)]
    assert {(r.api_key, r.api_version, r.client_id) for r in server.requests} == {(3, 1, "test")}


def test_an_incomplete_frame_after_a_whole_one_waits_for_its_remainder() -> None:
    server = Server()
    first, second = frame(b"one"), frame(b"two")
    feed(server.connection, first + second[:9])
    assert server.bodies == [b"one"]
    feed(server.connection, second[9:])
    assert server.bodies == [b"one", b"two"]


@given(st.lists(st.binary(max_size=40_000), max_size=6), st.integers(1, 50_000))
def test_frames_of_any_size_in_pieces_of_any_size_give_the_same_bodies(bodies: list[bytes], piece_bytes: int) -> None:
    server = Server(echo=True)
    data = b"".join(frame(body, correlation_id=i) for i, body in enumerate(bodies))
    assert feed(server.connection, data, piece_bytes=piece_bytes) == len(data)
    assert answers(drain(server.connection)) == list(enumerate(bodies))
    assert not server.transport.closes


def test_a_request_body_is_a_writable_view_that_can_be_patched_in_place() -> None:
    seen = []

    def patch(request: Request) -> None:
        request.body[0:1] = b"X"
        seen.append(bytes(request.body))
        request.respond(b"")

    server = ServerConnection(RecordingTransport(), patch, limits=ServerLimits(), budget=None)
    feed(server, frame(b"abc"))
    assert seen == [b"Xbc"]


def test_a_null_client_id_reads_as_empty_and_a_change_of_client_id_is_seen() -> None:
    server = Server()
    feed(
        server.connection,
        frame(client_id=None) + frame(client_id=b"a") + frame(client_id=b"a") + frame(client_id=b"bb"),
    )
    assert [request.client_id for request in server.requests] == ["", "a", "a", "bb"]


def test_a_flexible_request_header_may_carry_tagged_fields_which_are_skipped() -> None:
    server = Server()
    tags = encode_unsigned(1) + encode_unsigned(7) + encode_unsigned(2) + b"zz"
    feed(server.connection, frame(b"\0plain", version=9) + frame(tags + b"tagged", version=9))
    assert server.bodies == [b"plain", b"tagged"]


def test_flexible_response_headers_have_tags_except_those_of_api_versions_and_internal_requests() -> None:
    server = Server()
    feed(
        server.connection,
        frame(b"\0", version=9) + frame(b"\0", key=18, version=3) + frame(key=InternalKey.VOTE, version=0),
    )
    for request in server.requests:
        request.respond(b"body")
    assert [content[4:] for content in frames_in(drain(server.connection))] == [b"\0body", b"body", b"body"]


def test_responses_are_sent_in_request_order_whatever_the_answering_order() -> None:
    server = Server()
    feed(server.connection, b"".join(frame(correlation_id=i) for i in range(5)))
    leaves: dict[int, list[int]] = {3: [], 1: [], 4: [], 0: [0, 1], 2: [2, 3, 4]}
    for index, expected in leaves.items():
        server.requests[index].respond(b"answer %d" % index)
        assert answers(drain(server.connection)) == [(i, b"answer %d" % i) for i in expected]
    assert server.connection.in_flight == 0


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_random_answering_orders_give_responses_in_request_order(order: list[int], silent: set[int]) -> None:
    server = Server()
    feed(server.connection, b"".join(frame(correlation_id=i) for i in range(8)))
    data = b""
    for index in order:
        if index in silent:
            server.requests[index].respond_nothing()
        else:
            server.requests[index].respond(b"%d" % index)
        data += drain(server.connection)
    assert answers(data) == [(i, b"%d" % i) for i in range(8) if i not in silent]


def test_a_response_given_in_the_handler_waits_for_an_earlier_parked_request() -> None:
    parked = []

    def handle(request: Request) -> None:
        if request.correlation_id == 0:
            parked.append(request)
        elif request.correlation_id == 2:
            request.respond_nothing()
        else:
            request.respond(b"now")

    connection = ServerConnection(RecordingTransport(), handle, limits=ServerLimits(), budget=None)
    feed(connection, b"".join(frame(correlation_id=i) for i in range(4)))
    assert not connection.output()
    assert connection.in_flight == 4
    parked[0].respond(b"later")
    assert answers(drain(connection)) == [(0, b"later"), (1, b"now"), (3, b"now")]


def test_request_that_expects_no_response_frees_its_slot_on_the_connection() -> None:
    connection = ServerConnection(RecordingTransport(), Request.respond_nothing, limits=ServerLimits(), budget=None)
    feed(connection, frame() + frame())
    assert connection.in_flight == 0
    assert not connection.output()


def test_response_given_after_the_handler_returned_wakes_the_driver_and_one_given_in_it_does_not() -> None:
    server = Server(echo=True)
    feed(server.connection, frame())
    assert server.transport.wakes == 0
    server.echo = False
    feed(server.connection, frame())
    server.requests[-1].respond(b"late")
    assert server.transport.wakes == 1


def test_pending_requests_hold_no_memory_outside_the_budget() -> None:
    parked: list[Request] = []
    budget = MemoryBudget(64 << 20)
    connection = ServerConnection(RecordingTransport(), parked.append, limits=ServerLimits(), budget=budget)
    large = frame(bytes(4 << 20))
    tracemalloc.start()
    try:
        for _ in range(5):
            feed(connection, large)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(parked) == connection.in_flight == 5
    assert held_bytes <= budget.used_bytes + (1 << 20)


def test_a_second_response_to_a_request_is_an_invariant_error() -> None:
    server = Server(echo=True)
    feed(server.connection, frame())
    assert server.requests[0].is_answered
    with pytest.raises(InvariantError, match="answered twice"):
        server.requests[0].respond(b"")
    with pytest.raises(InvariantError, match="answered twice"):
        server.requests[0].respond_nothing()


def test_small_chunks_of_output_are_joined_and_large_ones_are_not_copied() -> None:
    server = Server()
    feed(server.connection, b"".join(frame(correlation_id=i) for i in range(3)))
    large = bytes(JOIN_BYTES_MAX + 1)
    server.requests[0].respond(b"a", b"b")
    server.requests[1].respond(b"head", large, b"tail")
    server.requests[2].respond(large, large)
    output = list(server.connection.output())
    assert [len(chunk) for chunk in output if not isinstance(chunk, FileRange)] == [
        8 + 2 + 8 + 4,
        len(large),
        4 + 8,
        *[len(large)] * 2,
    ]
    assert output[1] is large


def test_a_short_file_range_is_joined_and_a_long_or_uncached_one_is_left_to_the_driver() -> None:
    server = Server()
    feed(server.connection, b"".join(frame(correlation_id=i) for i in range(4)))
    file, cold = MemoryFile(bytes(range(256)) * 400), MemoryFile(b"cold" * 100, cached=False)
    server.requests[0].respond(b"h", FileRange(file, 10, 20))
    assert [bytes(chunk) for chunk in server.connection.output()] == [
        struct.pack(">ii", 25, 0) + b"h" + bytes(range(10, 30))
    ]
    drain(server.connection)
    server.requests[1].respond(b"h", FileRange(file, 0, 100_000), b"t")
    server.requests[2].respond(b"h", FileRange(cold, 0, 40))
    server.requests[3].respond(b"h", FileRange(file, 0, 0))
    kinds = [type(chunk) is FileRange for chunk in server.connection.output()]
    assert kinds == [False, True, False, True, False]
    assert [size for size, _ in answers(drain(server.connection))] == [1, 2, 3]


@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=20))
def test_partly_sent_output_continues_where_it_stopped(counts: list[int]) -> None:
    server = Server()
    file = MemoryFile(bytes(range(256)) * 300)
    feed(server.connection, frame(correlation_id=1) + frame(correlation_id=2))
    server.requests[0].respond(b"x" * 40_000, FileRange(file, 100, 70_000), b"tail")
    server.requests[1].respond(b"second")
    data = b""
    for count in counts:
        data += drain(server.connection, count_max=count)
    data += drain(server.connection)
    expected = b"x" * 40_000 + file.read(100, 70_000) + b"tail"
    assert answers(data) == [(1, expected), (2, b"second")]
    assert not server.connection.output()


def test_too_many_unanswered_requests_stop_reading_until_half_are_answered() -> None:
    server = Server(limits=ServerLimits(outstanding_requests_max=4))
    data = b"".join(frame(correlation_id=i) for i in range(10))
    feed(server.connection, data)
    assert len(server.requests) == 4
    assert len(server.connection.space()) == 0
    server.requests[0].respond(b"")
    assert len(server.connection.space()) == 0
    server.requests[1].respond(b"")
    assert server.transport.wakes == 3
    assert len(server.connection.space()) == 0, "the frames that were left are handled before more is read"
    assert len(server.requests) == 6
    for request in server.requests[2:6]:
        request.respond(b"")
    server.echo = True
    assert len(server.connection.space()) == 0
    take_turns(server.connection)
    assert len(server.connection.space()) > 0
    assert [number for number, _ in answers(drain(server.connection))] == list(range(10))


def give(connection: ServerConnection, data: bytes) -> None:
    """Pass bytes to the connection as one read of a driver does, without the further turns for which the connection
    waits."""
    connection.space()[: len(data)] = data
    connection.received(len(data))


@pytest.mark.parametrize(
    ("key", "count"), [(ApiKey.PRODUCE, 16), (ApiKey.FETCH, 16), (ApiKey.METADATA, 2), (ApiKey.DESCRIBE_CONFIGS, 2)]
)
def test_a_turn_handles_a_bounded_number_of_requests_and_the_next_turn_continues(key: ApiKey, count: int) -> None:
    server = Server(echo=True)
    version = BROKER_TABLE.ranges[key][0]
    give(server.connection, b"".join(frame(key=key, version=version, correlation_id=i) for i in range(3 * count)))
    for turns in (1, 2):
        assert len(server.requests) == turns * count
        assert server.transport.turns == turns
        assert len(server.connection.space()) == 0, "nothing is read while requests are left"
        assert len(server.connection.output()), "what was answered leaves meanwhile"
        server.connection.take_turn()
    assert len(server.requests) == 3 * count
    assert server.transport.turns == 2
    assert len(server.connection.space()) > 0


def test_a_closed_connection_drops_requests_that_wait_for_a_turn() -> None:
    server = Server(echo=True)
    give(server.connection, b"".join(frame(correlation_id=i) for i in range(50)))
    handled = len(server.requests)
    server.connection.closed(CloseReason.RESET)
    server.connection.take_turn()
    assert len(server.requests) == handled < 50


def test_responses_that_wait_for_an_earlier_request_count_as_output() -> None:
    server = Server(limits=ServerLimits(outstanding_bytes_max=10_000))
    feed(server.connection, b"".join(frame(correlation_id=i) for i in range(5)))
    for request in server.requests[1:]:
        request.respond(bytes(3000))
    assert len(server.connection.space()) == 0, "12,000 bytes wait for the first answer"
    server.requests[0].respond(b"")
    drain(server.connection)
    assert len(server.connection.space()) > 0
    feed(server.connection, frame(correlation_id=5))
    assert len(server.requests) == 6


def test_a_slow_peer_has_a_bounded_output_queue_and_is_not_read_meanwhile() -> None:
    server = Server(echo=True, limits=ServerLimits(outstanding_bytes_max=10_000))
    data = b"".join(frame(bytes(3000), correlation_id=i) for i in range(20))
    feed(server.connection, data)
    assert len(server.requests) == 4
    sent = b""
    while part := drain(server.connection, count_max=5000):
        sent += part
        assert len(server.requests) * 3000 - len(sent) < 20_000
        feed(server.connection, data[len(data) :])
        server.connection.space()
    taken = len(server.requests)
    assert taken >= 5
    assert [number for number, _ in answers(sent)] == list(range(taken))


def test_muted_server_connection_reads_and_handles_nothing_until_it_is_unmuted() -> None:
    server = Server(echo=True)
    server.connection.mute()
    assert len(server.connection.space()) == 0
    server.connection.unmute()
    assert server.transport.wakes == 1
    space = server.connection.space()
    server.connection.mute()
    data = frame(b"came after muting")
    space[: len(data)] = data
    server.connection.received(len(data))
    assert not server.requests
    server.connection.unmute()
    server.connection.space()
    assert server.bodies == [b"came after muting"]


@pytest.mark.parametrize(("cost", "count"), [(0, 16), (3, 4), (100, 1)])
def test_an_expensive_request_ends_the_turn_sooner(cost: int, count: int) -> None:
    server = Server()

    def handle(request: Request) -> None:
        server.handle(request)
        request.connection.spend(cost)

    server.connection._on_request = handle
    version = BROKER_TABLE.ranges[ApiKey.PRODUCE][0]
    frames = [frame(key=ApiKey.PRODUCE, version=version, correlation_id=number) for number in range(2 * count)]
    give(server.connection, b"".join(frames))
    assert len(server.requests) == count
    server.connection.take_turn()
    assert len(server.requests) == 2 * count


@pytest.mark.parametrize("answer", [Request.respond, Request.respond_nothing])
def test_after_a_long_request_nothing_is_handled_until_it_is_answered(answer: Callable[[Request], None]) -> None:
    server = Server(limits=ServerLimits(long_request_bytes=100))
    give(server.connection, frame(bytes(200), key=ApiKey.METADATA) + frame(b"two", key=ApiKey.METADATA))
    (long,) = server.requests
    assert isinstance(long, LongRequest)
    getattr(long, answer.__name__)()
    server.connection.output()
    assert server.bodies[1:] == [b"two"]
    assert not isinstance(server.requests[1], LongRequest)


def test_long_produce_and_fetch_requests_do_not_pause_the_connection() -> None:
    server = Server(limits=ServerLimits(long_request_bytes=100))
    give(server.connection, b"".join(frame(bytes(200), key=key, version=4) for key in (ApiKey.PRODUCE, ApiKey.FETCH)))
    assert [type(request) for request in server.requests] == [Request, Request]


def test_a_paused_connection_continues_once_resume_was_called_as_often_as_pause() -> None:
    server = Server()
    connection = server.connection
    feed(connection, frame(b"one"))
    connection.pause()
    connection.pause()
    space = connection.space()
    assert len(space) == 0
    connection.mute()
    connection.unmute()
    connection.resume()
    assert len(connection.space()) == 0
    wakes = server.transport.wakes
    connection.resume()
    assert server.transport.wakes == wakes + 1
    feed(connection, frame(b"two"))
    assert server.bodies == [b"one", b"two"]
    connection.pause()
    connection.closed(CloseReason.PEER)
    connection.resume()
    assert server.transport.wakes == wakes + 1


def test_frames_left_while_reading_was_blocked_are_handled_when_the_driver_only_calls_output() -> None:
    server = Server(echo=True)
    space = server.connection.space()
    server.connection.mute()
    data = frame(b"left")
    space[: len(data)] = data
    server.connection.received(len(data))
    server.connection.unmute()
    assert answers(drain(server.connection)) == [(1, b"left")]


def test_a_large_response_blocks_reading_until_it_is_sent() -> None:
    server = Server(limits=ServerLimits(outstanding_bytes_max=100_000))
    feed(server.connection, frame())
    server.requests[0].respond(bytes(300_000))
    assert len(server.connection.space()) == 0
    drain(server.connection, count_max=200_000)
    assert len(server.connection.space()) == 0
    wakes = server.transport.wakes
    drain(server.connection)
    assert server.transport.wakes == wakes + 1
    assert len(server.connection.space()) > 0


def test_server_connection_that_holds_requests_still_handles_those_with_unheld_keys() -> None:
    server = Server(echo=True)
    server.connection.hold_requests = True
    feed(
        server.connection,
        frame(key=18, version=0) + frame(key=3, correlation_id=2) + frame(key=18, version=0, correlation_id=3),
    )
    assert [request.api_key for request in server.requests] == [18]
    assert len(server.connection.space()) == 0
    assert server.connection.hold_requests
    server.connection.hold_requests = False
    assert len(server.connection.space()) > 0
    assert [request.api_key for request in server.requests] == [18, 3, 18]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -5) + bytes(20), "announces -5 bytes"),
        (struct.pack(">i", 104_857_601) + bytes(20), "limit is 104857600"),
        (struct.pack(">i", 0), "cannot hold a request header"),
        (struct.pack(">i", 9) + bytes(20), "cannot hold a request header"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP request"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20), "TLS handshake"),
        (frame(key=999), "key 999"),
        (frame(key=-3), "not served"),
        (frame(key=3, version=14), "version 14 of request key 3 is not supported, 0 to 13 are"),
        (frame(key=0, version=2), "version 2 of request key 0"),
        (frame(client_id=b"\xff\xfe"), "not UTF-8"),
        (struct.pack(">ihhih", 12, 3, 1, 1, 500) + b"ab" + bytes(600), "client id of 500 bytes"),
        (struct.pack(">ihhih", 10, 3, 9, 1, 0) + bytes(20), "runs past the end of its frame"),
        (frame(b"\xff\xff\xff\xff\xff\xff", version=9), "too long"),
    ],
)
def test_bytes_that_do_not_parse_close_the_connection_with_the_reason(data: bytes, reason: str) -> None:
    server = Server()
    feed(server.connection, data)
    assert server.transport.closes == [(CloseReason.BAD_BYTES, False)]
    assert reason in (server.connection.closed_because or "")
    assert server.connection.is_closed
    assert not server.requests


def test_an_oversized_frame_is_refused_after_its_first_four_bytes() -> None:
    server = Server(limits=ServerLimits(frame_bytes_max=1000))
    feed(server.connection, struct.pack(">i", 1001))
    assert server.connection.is_closed


def test_api_versions_in_an_unsupported_version_reaches_the_handler() -> None:
    server = Server(table=BROKER_TABLE)
    feed(server.connection, frame(b"\0whatever", key=18, version=77))
    assert server.requests[0].api_version == 77
    server.requests[0].respond(b"v0")
    assert answers(drain(server.connection)) == [(1, b"v0")]


def test_each_listener_accepts_only_its_own_api_keys() -> None:
    assert ApiKey.PRODUCE in BROKER_TABLE.ranges
    assert InternalKey.VOTE not in BROKER_TABLE.ranges
    assert InternalKey.IDENTIFY in BROKER_TABLE.ranges
    assert ApiKey.PRODUCE not in CONTROLLER_TABLE.ranges
    assert set(InternalKey) <= set(CONTROLLER_TABLE.ranges)
    server = Server(table=CONTROLLER_TABLE)
    feed(server.connection, frame(key=ApiKey.FETCH, version=12))
    assert server.connection.is_closed


def test_a_wire_error_in_the_handler_closes_the_connection_and_later_frames_are_not_handled() -> None:
    def refuse(request: Request) -> None:
        seen.append(request)
        raise WireError("the body does not parse")

    seen: list[Request] = []
    transport = RecordingTransport()
    connection = ServerConnection(transport, refuse, limits=ServerLimits(), budget=None)
    feed(connection, frame() + frame())
    assert len(seen) == 1
    assert transport.closes == [(CloseReason.BAD_BYTES, False)]
    assert connection.closed_because == "the body does not parse"


def test_failing_a_request_closes_the_connection_with_the_requests_name() -> None:
    server = Server()
    feed(server.connection, frame(key=0, version=7) + frame(key=InternalKey.VOTE, version=0))
    server.requests[0].fail("acks=0 and topic orders has no leader here", CloseReason.LOCAL)
    server.requests[1].fail("a second reason is not recorded")
    assert server.transport.closes == [(CloseReason.LOCAL, False)]
    assert (
        server.connection.closed_because == "PRODUCE version 7 from 'test': acks=0 and topic orders has no leader here"
    )


def test_failing_a_request_with_an_unknown_key_closes_the_connection_with_the_keys_number() -> None:
    server = Server()
    request = Request(server.connection, 12345, 0, 1, "", memoryview(b""), False)
    request.fail("no")
    assert (server.connection.closed_because or "").startswith("key 12345")


def test_responses_after_the_end_of_a_connection_are_discarded_and_its_owner_is_notified_once() -> None:
    server = Server()
    server.connection.session = "who"
    feed(server.connection, frame() + frame())
    server.requests[0].respond(b"queued")
    server.connection.closed(CloseReason.RESET)
    server.requests[1].respond(b"late")
    assert not server.connection.output()
    assert server.ends == [CloseReason.RESET]
    assert server.connection.closed_because == "the peer reset it"
    wakes = server.transport.wakes
    server.connection.unmute()
    server.connection.received(0)
    assert server.transport.wakes == wakes


def test_server_connections_get_increasing_numbers() -> None:
    assert Server().connection.number < Server().connection.number


def test_a_server_connection_exposes_its_transport() -> None:
    assert Server().connection.transport.listener == "PLAINTEXT"


@given(st.data())
def test_mutated_frames_never_raise_and_never_cause_responses_out_of_order(data: st.DataObject) -> None:
    stream = bytearray(b"".join(frame(b"\0body %d" % i, version=9, correlation_id=i) for i in range(4)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    server = Server(echo=True)
    feed(server.connection, stream, piece_bytes=data.draw(st.integers(1, 60)))
    assert len(frames_in(drain(server.connection))) == len(server.requests)
