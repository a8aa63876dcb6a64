"""RequestMetrics: counts of requests and of errors in their responses, and the duration of each part of a request."""

from __future__ import annotations

from typing import Any

from kraft.seam.measures import Histogram
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.answered_errors import answered_errors
from kraft.wire.request_meter import PARTS, TIMED_PER_SECOND_MAX, RequestMeter
from kraft.wire.rpc.controller_messages import HeartbeatResponse
from kraft.wire.server import TIMINGS_MAX, Request, ServerConnection, ServerLimits
from tests.stages.broker_harness import BrokerHarness
from tests.stages.fake_transport import RecordingTransport, drain, feed, frame
from tests.stages.plane import Plane, batch, run

MS = 1_000_000


class Served:
    """A connection that stores its requests, a meter, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.meter = RequestMeter(lambda: self.now_ns)
        self.requests: list[Request] = []
        self.handler_ms = 0
        self.connection = ServerConnection(
            RecordingTransport(), self._handle, limits=ServerLimits(), budget=None, meter=self.meter
        )

    def _handle(self, request: Request) -> None:
        self.requests.append(request)
        self.pass_ms(self.handler_ms)

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS

    def send(self, count: int = 1) -> None:
        feed(self.connection, b"".join(frame(key=3, version=1) for _ in range(count)))

    def part(self, name: str) -> Histogram:
        return self.meter.times["Metadata"][PARTS.index(name)]

    def totals(self) -> dict[str, float]:
        return {name: self.part(name).total for name in PARTS}


def test_request_metrics_measure_the_time_of_each_part_of_a_request() -> None:
    served = Served()
    served.pass_ms(3)  # read at 0 ms, handled after this line
    served.handler_ms = 5
    served.send(2)
    first, second = served.requests
    served.pass_ms(7)
    second.respond(b"2")
    served.pass_ms(11)
    first.respond(b"1")
    served.pass_ms(13)
    drain(served.connection)
    of_first = {"queue": 3, "local": 5, "remote": 5 + 7 + 11, "behind": 0, "send": 13}
    of_second = {"queue": 8, "local": 5, "remote": 7, "behind": 11, "send": 13}
    both = {name: of_first[name] + of_second[name] for name in of_first}
    size = len(frame(key=3, version=1)) - 4
    assert served.totals() == {
        "TotalTimeMs": sum(both.values()),
        "RequestQueueTimeMs": both["queue"],
        "LocalTimeMs": both["local"],
        "RemoteTimeMs": both["remote"],
        "ResponseQueueTimeMs": both["behind"],
        "ResponseSendTimeMs": both["send"],
        "ThrottleTimeMs": 0,
        "RequestBytes": 2 * size,
    }


def test_the_timing_of_a_request_without_response_ends_when_its_handler_returns() -> None:
    served = Served()
    served.send()
    served.pass_ms(4)
    served.requests[0].respond_nothing()
    assert (served.part("TotalTimeMs").total, served.part("RemoteTimeMs").total) == (4, 4)


def test_only_a_sample_of_many_requests_is_timed_and_weighted_to_represent_all() -> None:
    served = Served()
    sent = 5 * TIMED_PER_SECOND_MAX
    for _ in range(3):
        for _ in range(sent):
            served.send()
            served.requests.pop().respond(b"")
            drain(served.connection)
        served.meter.second_over()
    samples, count = len(served.part("TotalTimeMs").samples), served.part("TotalTimeMs").count
    assert served.meter.every > 4
    assert sum(count for _, _, count in served.meter.request_counts()) == 3 * sent
    assert abs(count - 3 * sent) < sent / 20
    assert samples < 3 * 2 * TIMED_PER_SECOND_MAX
    served.meter.second_over()
    assert served.meter.every == served.meter.until_timed == 1


def test_a_peer_that_stops_reading_causes_only_a_bounded_number_of_stored_timings() -> None:
    served = Served()
    for _ in range(TIMINGS_MAX + 10):
        served.send()
        served.requests.pop().respond(b"")
        served.meter.second_over()  # so that every request is timed
    assert len(served.connection._timings) == TIMINGS_MAX
    drain(served.connection)
    assert served.part("TotalTimeMs").count == TIMINGS_MAX
    served.send()
    served.requests.pop().respond(b"")
    drain(served.connection)
    assert served.part("TotalTimeMs").count == TIMINGS_MAX + 1


def test_a_response_counts_one_error_for_each_struct_with_an_error_code() -> None:
    cls = messages.response_class(ApiKey.OFFSET_COMMIT)
    topic = messages.nested_class(cls, "topics")
    partition = messages.nested_class(topic, "partitions")
    rows = [messages.build(partition, partition_index=index, error_code=code) for index, code in enumerate((0, 3, 3))]
    message = messages.build(cls, topics=[messages.build(topic, name="orders", partitions=rows)])
    assert list(answered_errors(message)) == [0, 3, 3]
    assert list(answered_errors(HeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))) == [41]


def test_a_handlers_failure_counts_as_an_unknown_server_error() -> None:
    harness = BrokerHarness()
    harness.broker.dispatcher._handlers = {int(ApiKey.HEARTBEAT): _failing}
    harness.connect().ask(ApiKey.HEARTBEAT, 4, group_id="g", member_id="m")
    assert list(harness.broker.requests.error_counts()) == [("Heartbeat", "UNKNOWN_SERVER_ERROR", 1)]


def test_an_unanswered_produce_does_not_count_as_success() -> None:
    meter = RequestMeter(lambda: 0)
    meter.counts[int(ApiKey.PRODUCE) << 16 | 12] += 1
    assert list(meter.error_counts()) == [], "it may fail still, and a count that falls is a restart for Prometheus"


def test_a_fetch_whose_handler_fails_does_not_lower_the_success_count() -> None:
    meter = RequestMeter(lambda: 0)
    meter.fetched_partitions += 5
    meter.count_error(ApiKey.FETCH, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert set(meter.error_counts()) == {("Fetch", "NONE", 5), ("Fetch", "UNKNOWN_SERVER_ERROR", 1)}


def test_an_undecoded_fetch_counts_as_neither_consumer_nor_follower_fetch() -> None:
    meter = RequestMeter(lambda: 0)
    meter.counts[int(ApiKey.FETCH) << 16 | 12] += 1
    assert list(meter.request_counts()) == [("Fetch", 12, 1)]


def test_an_error_code_of_a_newer_release_counts_as_an_unknown_server_error() -> None:
    meter = RequestMeter(lambda: 0)
    meter.count_error(ApiKey.METADATA, 9_999)
    meter.count_error(ApiKey.METADATA, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert list(meter.error_counts()) == [("Metadata", "UNKNOWN_SERVER_ERROR", 2)]


def _failing(*arguments: Any) -> None:
    raise RuntimeError("a bug")


def test_requests_and_errors_are_counted_by_name_on_broker_and_controller() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        node = plane.cluster.node(1)

        def errors(request: str, error: str) -> float:
            found = node.metrics.value("kafka.network", "RequestMetrics", "ErrorsPerSec", request=request, error=error)
            return found or 0

        assert errors("CreateTopics", "NONE") == 1
        await plane.produce("orders", batch("a"))
        await plane.produce_many([("orders", [(0, batch("b")), (9, batch("c"))])])
        assert (errors("Produce", "NONE"), errors("Produce", "UNKNOWN_TOPIC_OR_PARTITION")) == (2, 1)
        before = errors("Fetch", "NONE")
        await plane.fetch("orders", 0)
        await plane.fetch("orders", 99)
        assert (errors("Fetch", "NONE") - before, errors("Fetch", "OFFSET_OUT_OF_RANGE")) == (1, 1)
        counted = {(name, version): count for name, version, count in node.requests.request_counts()}
        assert counted["Produce", 12] == 2
        assert counted["FetchConsumer", 12] == 2
        for name in ("Produce", "Fetch", "FetchConsumer", "CreateTopics"):
            assert node.metrics.value("kafka.network", "RequestMetrics", "TotalTimeMs", request=name), name

    run(test, combined=1)


def test_follower_fetches_are_counted_under_their_own_name() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.produce("orders", batch("a"))
        meter = plane.cluster.node(1).requests
        await plane.until(lambda: "FetchFollower" in meter.times)
        counted = {name: count for name, _, count in meter.request_counts()}
        assert counted["FetchFollower"] == counted["Fetch"] > 0
        assert "FetchConsumer" not in counted
        controller = plane.cluster.node(101).requests
        names = {name for name, _, _ in controller.request_counts()}
        assert "MetadataFetch" in names
        assert ("MetadataFetch", "NONE") in {(name, error) for name, error, _ in controller.error_counts()}

    run(test, controllers=1, brokers=2)


def test_a_slow_request_is_logged_with_the_time_of_each_part() -> None:
    served = Served()
    reported: list[tuple[str, dict[str, float]]] = []
    served.meter.slow_ms = 10
    served.meter.slow = lambda name, parts: reported.append((name, parts))
    served.handler_ms = 4
    served.send()
    served.requests[0].respond(b"1")
    drain(served.connection)
    assert not reported
    served.handler_ms = 12
    served.send()
    served.requests[1].respond(b"2")
    drain(served.connection)
    ((name, parts),) = reported
    assert (name, parts["LocalTimeMs"]) == ("Metadata", 12)


def test_a_fetch_that_waits_for_its_requested_max_wait_is_not_logged_as_slow() -> None:
    meter = RequestMeter(lambda: 0)
    reported: list[str] = []
    meter.slow_ms = 10
    meter.slow = lambda name, parts: reported.append(name)
    waited = tuple({"TotalTimeMs": 500.0, "RemoteTimeMs": 495.0}.get(part, 0.0) for part in PARTS)
    meter.record("Fetch", waited, 1)
    assert not reported
    meter.record("Produce", waited, 1)
    assert reported == ["Produce"]
