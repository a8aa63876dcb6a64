"""RequestMeter: the number of requests to a node's listeners, the error codes of its responses, and the time of each
part.

Every request is counted, with one addition. Times are taken of all requests while there are few, else of one in
`every`, to time about TIMED_PER_SECOND_MAX in a second. Each timed request counts as `every` requests in its
histograms. The names of the parts are Kafka's. Source: Kafka's RequestMetrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kraft.seam.measures import Histogram
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.answered_errors import answered_errors
from kraft.wire.rpc import FIRST_INTERNAL_KEY, InternalKey

if TYPE_CHECKING:
    from kraft.wire.server import Request, ServerConnection

TIMED_PER_SECOND_MAX = 200
NS_PER_MS = 1e6

PARTS = (
    "TotalTimeMs",
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "ThrottleTimeMs",
    "RequestBytes",
)
WAITING_BY_REQUEST = frozenset({"Fetch", "JoinGroup", "SyncGroup"})
"""Requests that wait because their client asked for it, or because of other clients. Their remote time is ignored in
the search for slow requests."""
FETCH = int(ApiKey.FETCH)
PRODUCE = int(ApiKey.PRODUCE)
FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
_VERSION_BITS = 16


def request_name(key: int) -> str:
    """Return the API's name as in Kafka's metrics: `OffsetCommit`."""
    known = InternalKey(key) if key >= FIRST_INTERNAL_KEY else ApiKey(key)
    return "".join(word.capitalize() for word in known.name.split("_"))


class RequestMeter:
    """Counts and times of one node's requests. `now_ns` is the clock of `Transport.heard_ns`."""

    __slots__ = (
        "_now_ns",
        "_timed",
        "accepted",
        "closed",
        "connections",
        "consumer_fetches",
        "counts",
        "errors",
        "every",
        "fetched_partitions",
        "follower_fetches",
        "produced_partitions",
        "slow",
        "slow_ms",
        "times",
        "until_timed",
    )

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.counts: defaultdict[int, int] = defaultdict(int)
        """(API key << 16 | version) → number of requests."""
        self.consumer_fetches: defaultdict[int, int] = defaultdict(int)
        """Version → number of fetches by consumers. They are counted in `counts` too, when they arrive."""
        self.follower_fetches: defaultdict[int, int] = defaultdict(int)
        self.errors: defaultdict[tuple[int, int], int] = defaultdict(int)
        """(API key, error code) → number of responses with this error; see `error_counts` for Produce and Fetch."""
        self.produced_partitions = 0
        """Number of successful partition results in produce responses, which `errors` does not count."""
        self.fetched_partitions = 0
        """Number of partition results without an error in fetch responses."""
        self.times: dict[str, tuple[Histogram, ...]] = {}
        """Request name → a histogram for each of PARTS."""
        self.slow_ms = float("inf")
        """Milliseconds above which a timed request is passed to `slow`."""
        self.slow: Callable[[str, dict[str, float]], None] = lambda name, parts: None
        """Callback that gets a slow request's name, and the times of its parts by name."""
        self.every = 1
        self.until_timed = 1
        self._timed = 0
        self.connections: dict[ServerConnection, None] = {}
        """Open connections to the node's listeners, as the keys of a dictionary that keeps their order."""
        self.accepted: defaultdict[str, int] = defaultdict(int)
        """Listener → number of accepted connections."""
        self.closed: defaultdict[str, int] = defaultdict(int)

    # connections

    def connection_opened(self, connection: ServerConnection) -> None:
        self.connections[connection] = None
        self.accepted[connection.transport.listener] += 1

    def connection_closed(self, connection: ServerConnection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.closed[connection.transport.listener] += 1

    # counts

    def count_answer(self, key: int, response: Any) -> None:
        """Count the error codes in a response."""
        errors = self.errors
        key = int(key)
        for code in answered_errors(response):
            errors[key, code] += 1

    def count_error(self, key: int, error: int) -> None:
        """Count an error in a response that is not a single message."""
        self.errors[int(key), int(error)] += 1

    def request_counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield (request name, version, count), with FetchConsumer and FetchFollower in addition to Fetch."""
        for number, count in self.counts.items():
            yield request_name(number >> _VERSION_BITS), number & 0xFFFF, count
        for name, fetches in ((FETCH_CONSUMER, self.consumer_fetches), (FETCH_FOLLOWER, self.follower_fetches)):
            for version, count in fetches.items():
                yield name, version, count

    def error_counts(self) -> Iterator[tuple[str, str, int]]:
        """Yield (request name, error name, count). Counts never decrease: requests not answered yet are not
        included."""
        counts: defaultdict[tuple[int, ErrorCode], int] = defaultdict(int)
        for (key, code), count in self.errors.items():
            counts[key, ErrorCode.of(code)] += count
        for key, succeeded in ((PRODUCE, self.produced_partitions), (FETCH, self.fetched_partitions)):
            if succeeded:
                counts[key, ErrorCode.NONE] += succeeded
        for (key, error), count in counts.items():
            yield request_name(key), error.name, count

    # times

    def time(self, request: Request, size_bytes: int) -> RequestTiming:
        """Start to time this request, and decide which request is timed next."""
        self._timed += 1
        if self._timed >= 2 * TIMED_PER_SECOND_MAX:
            self._timed //= 2
            self.every *= 2
        self.until_timed = self.every
        heard_ns = request.connection.transport.heard_ns
        return RequestTiming(self, request_name(request.api_key), self.every, size_bytes, heard_ns, self._now_ns())

    def second_over(self) -> None:
        """Adapt the share of requests that are timed to the rate of the last second. Called once a second."""
        self.every = 1 + self._timed * self.every // TIMED_PER_SECOND_MAX
        self.until_timed = min(self.until_timed, self.every)
        self._timed = 0

    def record(self, name: str, values: tuple[float, ...], weight: int) -> None:
        """Add the parts of one request, in the order of PARTS."""
        if values[0] >= self.slow_ms:
            self._report_slow(name, values)
        histograms = self.times.get(name)
        if histograms is None:
            histograms = self.times[name] = tuple(Histogram() for _ in PARTS)
        for histogram, value in zip(histograms, values, strict=True):
            histogram.update(value, weight)

    def _report_slow(self, name: str, values: tuple[float, ...]) -> None:
        parts = dict(zip(PARTS, values, strict=True))
        waited_ms = parts["RemoteTimeMs"] if name in WAITING_BY_REQUEST else 0
        if name not in (FETCH_CONSUMER, FETCH_FOLLOWER) and parts["TotalTimeMs"] - waited_ms >= self.slow_ms:
            self.slow(name, parts)


class RequestTiming:
    """The times at which each part of one request began. A part that did not occur took no time."""

    __slots__ = (
        "_answered_ns",
        "_handled_ns",
        "_heard_ns",
        "_meter",
        "_name",
        "_queued_ns",
        "_sent_ns",
        "_size_bytes",
        "_started_ns",
        "_weight",
        "fetch_name",
        "throttle_ms",
    )

    def __init__(
        self, meter: RequestMeter, name: str, weight: int, size_bytes: int, heard_ns: int, started_ns: int
    ) -> None:
        self._meter = meter
        self._name = name
        self._weight = weight
        self._size_bytes = size_bytes
        self._heard_ns = heard_ns
        self._started_ns = started_ns
        self._handled_ns = self._answered_ns = self._queued_ns = self._sent_ns = -1
        self.throttle_ms = 0
        self.fetch_name = ""
        """FetchConsumer or FetchFollower, under which a Fetch is recorded too."""

    def handled(self) -> None:
        """Record that the handler has returned."""
        self._handled_ns = self._meter._now_ns()
        if self._sent_ns >= 0:
            self._record()

    def answered(self) -> None:
        """Record that the response is available."""
        self._answered_ns = self._meter._now_ns()

    def queued(self) -> None:
        """Record that the response was queued, because every earlier request of the connection is answered."""
        self._queued_ns = self._meter._now_ns()
        if self._answered_ns < 0:
            self._answered_ns = self._queued_ns

    def sent(self) -> None:
        """Record that the connection has sent all of its output."""
        self._sent_ns = self._meter._now_ns()
        if self._handled_ns >= 0:
            self._record()

    def _record(self) -> None:
        heard, started, handled, answered = self._heard_ns, self._started_ns, self._handled_ns, self._answered_ns
        local_end = min(handled, answered)
        values = (
            (self._sent_ns - heard) / NS_PER_MS,
            max(0, started - heard) / NS_PER_MS,
            (local_end - started) / NS_PER_MS,
            (answered - local_end) / NS_PER_MS,
            (self._queued_ns - answered) / NS_PER_MS,
            (self._sent_ns - self._queued_ns) / NS_PER_MS,
            self.throttle_ms,
            self._size_bytes,
        )
        self._meter.record(self._name, values, self._weight)
        if self.fetch_name:
            self._meter.record(self.fetch_name, values, self._weight)
