"""`python -m tests.bench.attacks`: send a normal load during each attack on a broker, and show the attack's effect on
the load.

The cluster has three controllers and three brokers. The normal client produces RATE messages a second with replication
factor 3 and acks=all, each at its scheduled time. Each attack runs in a separate process against the partition's leader
(`--controllers`: against controller 1). The output has the normal client's latencies, the maximum memory growth of each
broker, and the maximum log lines of a node in a second. An attack is a row of ATTACKS: a plain function that gets a
`Target` and returns when its time is over.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import selectors
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import psutil

from kraft.sim.chaos.hosts.leash import exit_on_signals
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.produce import encode_produce_request
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.compression import Compression
from tests.bench import frames
from tests.bench.frames import PRODUCE_VERSION
from tests.bench.table import aligned, percentile
from tests.fuzz.values import Words, internal_request
from tests.stages.started_clusters import LocalCluster, running

TOPIC = "polite"
RATE = 200
ANSWER_SECONDS_MAX = 120
MIB = 1 << 20
BROKERS = 3


@dataclass(frozen=True, slots=True)
class Target:
    """The node to attack, and the time at which the attack ends (`time.monotonic`)."""

    address: tuple[str, int]
    ends_at: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_at

    @contextmanager
    def connected(self, count: int) -> Iterator[list[socket.socket]]:
        with ExitStack() as stack:
            yield [stack.enter_context(socket.create_connection(self.address, timeout=10)) for _ in range(count)]

    def wait(self) -> None:
        time.sleep(max(0.0, self.ends_at - time.monotonic()))


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def request(key: ApiKey, version: int, body: bytes) -> bytes:
    """Return a request frame with a header of version 1 and no client id."""
    header = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


REQUESTS = {
    "ApiVersions": request(ApiKey.API_VERSIONS, 0, b""),
    "Metadata": request(ApiKey.METADATA, 1, struct.pack(">i", -1)),
    "Fetch": request(
        ApiKey.FETCH,
        4,
        struct.pack(">iiiibi", -1, 500, 1, MIB, 0, 1) + _string(TOPIC) + struct.pack(">iiqi", 1, 0, 0, MIB),
    ),
    "ListOffsets": request(
        ApiKey.LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + _string(TOPIC) + struct.pack(">iiq", 1, 0, -1)
    ),
    "DescribeConfigs": request(
        ApiKey.DESCRIBE_CONFIGS, 1, struct.pack(">ib", 1, 4) + _string("1") + struct.pack(">ib", -1, 1)
    ),
}


MANY = 5_000


def _of_each(row: Callable[[int], bytes]) -> bytes:
    """Return the topics of a request: one topic with MANY partitions, one of which exists."""
    return struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">i", MANY) + b"".join(map(row, range(MANY)))


LARGE_REQUESTS = {
    "Fetch": request(
        ApiKey.FETCH,
        4,
        struct.pack(">iiiib", -1, 500, 1, MIB, 0) + _of_each(lambda index: struct.pack(">iqi", index, 0, MIB)),
    ),
    "ListOffsets": request(
        ApiKey.LIST_OFFSETS, 1, struct.pack(">i", -1) + _of_each(lambda index: struct.pack(">iq", index, -1))
    ),
    "Metadata": request(
        ApiKey.METADATA, 4, struct.pack(">i", MANY) + b"".join(_string(f"t{number}") for number in range(MANY)) + b"\0"
    ),
    "DescribeConfigs": request(
        ApiKey.DESCRIBE_CONFIGS,
        1,
        struct.pack(">i", 500)
        + b"".join(struct.pack(">b", 2) + _string(f"t{number}") + struct.pack(">i", -1) for number in range(500))
        + b"\1",
    ),
    "OffsetFetch": request(ApiKey.OFFSET_FETCH, 1, _string("group") + _of_each(lambda index: struct.pack(">i", index))),
    "OffsetCommit": request(
        ApiKey.OFFSET_COMMIT,
        2,
        _string("group")
        + struct.pack(">i", -1)
        + _string("")
        + struct.pack(">q", -1)
        + _of_each(lambda index: struct.pack(">iq", index, 1) + _string("")),
    ),
}


def flood_and_close(target: Target, *, frame: bytes, connections: int = 100, requests: int = 10_000) -> None:
    """Once a second, send as many copies of a request as the peer accepts, read nothing, and close the connection."""
    data = memoryview(frame * requests)
    while not target.is_over:
        round_ends_at = time.monotonic() + 1
        with target.connected(connections) as streams:
            _send_all(dict.fromkeys(streams, data), round_ends_at)
        time.sleep(max(0.0, round_ends_at - time.monotonic()))


def flood_and_stay(target: Target, *, frame: bytes, connections: int = 100, requests: int = 10_000) -> None:
    """Send requests for as long as the peer accepts them, read nothing, and stay connected."""
    data = memoryview(frame * requests)
    with target.connected(connections) as streams:
        _send_all(dict.fromkeys(streams, data), target.ends_at)
        target.wait()


def flood_and_read(target: Target, *, frame: bytes, connections: int = 100, window: int = 1_000) -> None:
    """Send requests endlessly, and read the responses."""
    with target.connected(connections) as streams, selectors.DefaultSelector() as selector:
        data = memoryview(frame * window)
        left = dict.fromkeys(streams, data)
        for stream in streams:
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while not target.is_over:
            for key, mask in selector.select(0.1):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                if mask & selectors.EVENT_READ and not stream.recv(MIB):
                    return
                if mask & selectors.EVENT_WRITE:
                    left[stream] = left[stream][_send(stream, left[stream]) :] or data


def half_frames(target: Target, *, connections: int = 200, frame_bytes: int = 4 * MIB, trickle_bytes: int = 0) -> None:
    """Announce a Produce request on each connection, send 64 KiB of it, and then `trickle_bytes` every five seconds."""
    head = struct.pack(">ihhih", frame_bytes, ApiKey.PRODUCE, 7, 1, -1)
    with target.connected(connections) as streams:
        for stream in streams:
            _send(stream, head + bytes(64 * 1024))
        while not target.is_over:
            time.sleep(max(0.0, min(5.0, target.ends_at - time.monotonic())))
            for stream in streams:
                _send(stream, bytes(trickle_bytes))


def idle_connections(target: Target, *, connections: int = 5_000) -> None:
    """Open connections, and send nothing."""
    with target.connected(connections):
        target.wait()


def produce_small_records(
    target: Target, *, records: int, compression: Compression, connections: int = 3, pause_s: float = 0.0
) -> None:
    """Produce batches of very many empty records, one request after the other on each connection."""
    batch = encode_batch([Record(number, 0, None, b"", ()) for number in range(records)], compression=compression)
    body = b"".join(
        encode_produce_request(PRODUCE_VERSION, acks=1, timeout_ms=30_000, topics=[(TOPIC, None, [(0, bytes(batch))])])
    )
    header = struct.pack(">hhih", ApiKey.PRODUCE, PRODUCE_VERSION, 1, -1) + b"\0"
    frame = struct.pack(">i", len(header) + len(body)) + header + body
    _send_in_a_loop(target, [frame], connections, pause_s)


def look_up_by_time(target: Target, *, connections: int = 3) -> None:
    """Write batches of very many records, and look up offsets by a timestamp in them again and again."""
    stored = replace(target, ends_at=min(target.ends_at, time.monotonic() + 2))
    produce_small_records(stored, records=200_000, compression=Compression.ZSTD, connections=1)
    by_time = struct.pack(">ii", -1, 1) + _string(TOPIC) + struct.pack(">iiq", 1, 0, 1)
    _send_in_a_loop(target, [request(ApiKey.LIST_OFFSETS, 1, by_time)], connections)


def forge_quorum_messages(target: Target, *, connections: int = 10) -> None:
    """Send messages that only nodes send, with random values (made by `tests.fuzz`)."""
    words = Words(("", TOPIC, "x"), (UUID(int=0), UUID(int=1)), {})
    forged = [internal_request(random.Random(number), words).frame for number in range(500)]
    _send_in_a_loop(target, [struct.pack(">i", len(frame)) + frame for frame in forged], connections)


def _send_in_a_loop(target: Target, frames: Sequence[bytes], connections: int, pause_s: float = 0.0) -> None:
    """Send frames one after another on each of this many connections. After a response, or after the end of the
    connection, pause before the next frame."""

    def ask() -> None:
        number = 0
        while not target.is_over:
            with suppress(OSError), socket.create_connection(target.address, timeout=10) as stream:
                stream.settimeout(2)
                while not target.is_over:
                    stream.sendall(frames[number % len(frames)])
                    number += 1
                    size = stream.recv(4, socket.MSG_WAITALL)
                    if len(size) < 4 or not stream.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL):
                        break
                    time.sleep(pause_s)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def nothing(target: Target) -> None:
    """Attack nothing, to get the figures of the normal client without an attack."""
    target.wait()


def _send(stream: socket.socket, data: bytes | memoryview) -> int:
    try:
        return stream.send(data, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0
    except ConnectionError:
        return 0


def _send_all(left: dict[socket.socket, memoryview], ends_at: float) -> None:
    """Send the remaining bytes of each stream, until all are sent or the time is over."""
    with selectors.DefaultSelector() as selector:
        for stream in left:
            selector.register(stream, selectors.EVENT_WRITE)
        while left and time.monotonic() < ends_at:
            for key, _ in selector.select(0.1):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                try:
                    count = stream.send(left[stream], socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    count = len(left[stream])
                left[stream] = left[stream][count:]
                if not left[stream]:
                    del left[stream]
                    selector.unregister(stream)


ATTACKS: Mapping[str, Callable[[Target], None]] = {
    "nothing": nothing,
    **{f"{name} and close": partial(flood_and_close, frame=frame) for name, frame in REQUESTS.items()},
    **{f"{name} unread": partial(flood_and_stay, frame=frame) for name, frame in REQUESTS.items()},
    **{f"{name} read": partial(flood_and_read, frame=frame) for name, frame in REQUESTS.items()},
    **{
        f"large {name} read": partial(flood_and_read, frame=frame, connections=6, window=10)
        for name, frame in LARGE_REQUESTS.items()
    },
    "half frames": half_frames,
    "trickled half frames": partial(half_frames, trickle_bytes=64 * 1024),
    "5,000 idle connections": idle_connections,
    "1,000,000 records in 1 KB": partial(produce_small_records, records=1_000_000, compression=Compression.ZSTD),
    "100,000 records in 1 MB, 10/s": partial(
        produce_small_records, records=100_000, compression=Compression.NONE, connections=1, pause_s=0.1
    ),
    "lookups by time": look_up_by_time,
    "forged quorum messages": forge_quorum_messages,
}


@dataclass(slots=True)
class Watched:
    """Figures of the normal client, and of the brokers' memory and logs, during one attack."""

    latencies_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    growth_bytes: int = 0
    left_bytes: int = 0
    """Memory growth that remains after the attack, in bytes."""
    log_lines: int = 0
    """Maximum number of log lines that one node wrote in a second."""


def produce_politely(address: tuple[str, int], frame: frames.Frame, ends_at: float, watched: Watched) -> None:
    """Send RATE requests a second, each at its scheduled time, whether or not earlier ones were answered."""
    with socket.create_connection(address) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(ANSWER_SECONDS_MAX)
        due: list[float] = []
        start = time.monotonic()
        total = int((ends_at - start) * RATE)

        def send() -> None:
            for number in range(total):
                at = start + number / RATE
                time.sleep(max(0.0, at - time.monotonic()))
                due.append(at)
                stream.sendall(frame.request)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        unread = b""
        try:
            while len(watched.latencies_ms) < total:
                data = stream.recv(frames.RECEIVE_BYTES)
                if not data:
                    watched.failures.append("the broker closed the polite connection")
                    return
                unread += data
                while len(unread) >= len(frame.answer):
                    size = 4 + struct.unpack_from(">i", unread)[0]
                    if not unread.startswith(frame.accepted, 9):
                        watched.failures.append("a polite request was refused")
                    unread = unread[size:]
                    watched.latencies_ms.append(1000 * (time.monotonic() - due[len(watched.latencies_ms)]))
        except OSError as error:
            watched.failures.append(str(error))


class NodeWatch:
    """Samples the memory of the brokers and the number of lines in all logs, ten times a second while the context is
    open."""

    def __init__(self, cluster: LocalCluster, watched: Watched) -> None:
        self._processes = [psutil.Process(pid) for pid in cluster.broker_pids]
        self._logs = [path for path in cluster.folder.glob("*/log/*.log") if path.is_file()] or list(
            cluster.folder.glob("**/*.log")
        )
        self._logs = [path for path in self._logs if path.stem.isalpha()]
        self._watched = watched
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._before = self._memory()
        self._places = {path: path.stat().st_size for path in self._logs}
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._watched.left_bytes = self._growth()
        for path, place in self._places.items():
            self._watched.log_lines = max(self._watched.log_lines, _lines_per_second(path, place))

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self._watched.growth_bytes = max(self._watched.growth_bytes, self._growth())

    def _memory(self) -> list[int]:
        return [process.memory_info().rss if process.is_running() else 0 for process in self._processes]

    def _growth(self) -> int:
        memory = self._memory()
        if 0 in memory:
            self._watched.failures.append("a broker has ended")
        return max(now - before for now, before in zip(memory, self._before, strict=True))


def _lines_per_second(path: Path, place: int) -> int:
    """Return the maximum number of log lines with timestamps in the same second."""
    with path.open("rb") as file:
        file.seek(place)
        seconds = Counter(line[:19] for line in file)
    return max(seconds.values(), default=0)


def play(cluster: LocalCluster, name: str, seconds: float, target: tuple[str, int]) -> Watched:
    """Run one attack during the normal load, and return its figures."""
    watched = Watched()
    leader = cluster.leader_address(TOPIC)
    frame = frames.produce_frame(TOPIC, bytes(100), acks=-1)
    context = multiprocessing.get_context("spawn")
    with NodeWatch(cluster, watched):
        ends_at = time.monotonic() + seconds
        attacker = context.Process(target=_attack, args=(name, target, ends_at), daemon=True)
        attacker.start()
        try:
            produce_politely(leader, frame, ends_at, watched)
        finally:
            attacker.join(10)
            attacker.kill()
            attacker.join()
        time.sleep(3)  # measured after housekeeping has freed memory
    return watched


def _attack(name: str, address: tuple[str, int], ends_at: float) -> None:
    try:
        ATTACKS[name](Target(address, ends_at))
    except OSError as error:
        print(f"attack {name}: {error}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.attacks", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"default: all of {', '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each runs (default: %(default)s)")
    parser.add_argument("--controllers", action="store_true", help="attack controller 1, not the partition's leader")
    arguments = parser.parse_args(argv)
    for name in arguments.attacks:
        if name not in ATTACKS:
            parser.error(f"no attack {name!r}; there are: {', '.join(ATTACKS)}")
    rows = [("attack", "answers", "p50 ms", "p99 ms", "max ms", "grows MiB", "keeps MiB", "log lines/s", "failures")]
    print("  ".join(rows[0]))
    failed = False
    with running() as cluster:
        cluster.create_topic(TOPIC, partitions=1, replication_factor=BROKERS)
        cluster.wait_in_sync(TOPIC, BROKERS)
        leader = cluster.leader_address(TOPIC)
        first_port = int(cluster.bootstrap.split(",")[0].rpartition(":")[2])
        target = ("127.0.0.1", first_port + 100) if arguments.controllers else leader
        for name in arguments.attacks or ATTACKS:
            watched = play(cluster, name, arguments.seconds, target)
            rows.append(_row(name, watched))
            print("  ".join(rows[-1]), flush=True)
            failed = failed or bool(watched.failures)
    print(aligned(rows, left=frozenset({0, 8})))
    return int(failed)


def _row(name: str, watched: Watched) -> tuple[str, ...]:
    latencies = watched.latencies_ms or [float("inf")]
    return (
        name,
        str(len(watched.latencies_ms)),
        f"{percentile(latencies, 0.5):.1f}",
        f"{percentile(latencies, 0.99):.1f}",
        f"{max(latencies):.0f}",
        f"{watched.growth_bytes / MIB:.0f}",
        f"{watched.left_bytes / MIB:.0f}",
        str(watched.log_lines),
        "; ".join(sorted(set(watched.failures))),
    )


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
