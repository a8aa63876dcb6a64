"""Random requests against a cluster of processes, beside a client that produces and must not be disturbed permanently.

Requests are sent to the listeners of all brokers and controllers, both Kafka's own requests and internal ones.
Permitted results are a response, a closed connection, and a parked request. Findings are a node that has stopped, and
an exception or an ERROR line in a node's log. Requests may take effect: a topic of these runs may be deleted, an
election may begin.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import trio

from kraft.client import Producer
from kraft.client.admin import Admin, NewTopic
from kraft.seam import Address
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.wire.api_keys import BROKER_APIS, CONTROLLER_APIS, ApiKey
from tests.fuzz.values import FuzzRequest, Words, internal_request, kafka_request

SENDERS = 8
ANSWER_SECONDS_MAX = 1.0
FRAMES_PER_CONNECTION = 5
RECENT_FRAMES = 400
WITNESS_TOPIC = "witness"
WITNESS_PAUSE_S = 0.1
WITNESS_SECONDS_MAX = 60.0
TOPICS = ("orders", "payments")
GROUPS = ("readers", "writers")
TOPIC_FIELDS = ("name", "topic", "topics", "topic_name", "topic_names", "resource_name")
FITTING_LISTENER = 0.85
ALARMS = (" ERROR ", " CRITICAL ", "Traceback (most recent call last)", "exception=")
HARMS_LIVE_NODES = frozenset({ApiKey.UNREGISTER_BROKER})
"""Requests that are not sent: with the id of a live broker, they would rightly remove that broker."""


@dataclass(slots=True)
class Findings:
    """Findings of a run. `alarms`: lines of logs. `ended`: nodes that have stopped. `counts`: results of requests."""

    counts: Counter[str] = field(default_factory=Counter)
    recent: deque[FuzzRequest] = field(default_factory=lambda: deque(maxlen=RECENT_FRAMES))
    ended: list[int] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    witness_sent: int = 0
    witness_gap_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not self.ended and not self.alarms


def fuzz_cluster(cluster: KafkaCluster, seed: int, seconds: float) -> Findings:
    """Send random requests for this long. Raises TooSlowError if the cluster does not accept a record within
    WITNESS_SECONDS_MAX afterwards."""
    findings = Findings()
    trio.run(_run, cluster, random.Random(seed), seconds, findings)
    findings.ended = [node for node in cluster.node_ids if not cluster.is_running(node) or cluster.pid(node) is None]
    findings.alarms = alarms_of(cluster.folder)
    return findings


def alarms_of(folder: Path) -> list[str]:
    """Return the lines of the nodes' logs that no client's request may cause."""
    found = []
    for path in sorted(folder.glob("*/node.log")):
        lines = path.read_text(errors="replace").splitlines()
        found += [f"{path.parent.name}: {line}" for line in lines if any(alarm in line for alarm in ALARMS)]
    return found


async def _run(cluster: KafkaCluster, source: random.Random, seconds: float, findings: Findings) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for topic in (*TOPICS, WITNESS_TOPIC):
            await admin.topics.create(NewTopic(topic, 3, 3, {"min.insync.replicas": "2"}))
        described = await admin.topics.describe(TOPICS)
        cluster_id = (await admin.nodes.cluster()).cluster_id
        quorum = await admin.nodes.quorum()
        brokers = [broker.address for broker in (await admin.nodes.cluster()).brokers]
    ids = [topic.topic_id for topic in described]
    controllers = [endpoints[0].address for endpoints in quorum.endpoints.values()]
    names = (
        *TOPICS,
        *GROUPS,
        cluster_id,
        "",
        "é\0\n",
        "n" * 300,
        "__consumer_offsets",
        "retention.ms",
        "-1",
        "PLAINTEXT",
    )
    fitting = dict.fromkeys(TOPIC_FIELDS, TOPICS) | {"group_id": GROUPS, "group": GROUPS, "cluster_id": (cluster_id,)}
    words = Words(names, (UUID(int=0), uuid4(), *ids), fitting)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_witness, cluster.bootstrap_servers, findings)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as senders:
                for number in range(SENDERS):
                    own = random.Random(f"{source.random()} {number}")
                    senders.start_soon(_send, own, brokers, controllers, words, findings)
        nursery.cancel_scope.cancel()
    with trio.fail_after(WITNESS_SECONDS_MAX):
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send(WITNESS_TOPIC, b"the end")


async def _witness(servers: str, findings: Findings) -> None:
    """Produce a record from time to time, beside the random requests."""
    async with Producer(bootstrap_servers=servers) as producer:
        last_s = trio.current_time()
        while True:
            await producer.send(WITNESS_TOPIC, b"still there")
            now_s = trio.current_time()
            findings.witness_sent += 1
            findings.witness_gap_s = max(findings.witness_gap_s, now_s - last_s)
            last_s = now_s
            await trio.sleep(WITNESS_PAUSE_S)


async def _send(
    source: random.Random, brokers: list[Address], controllers: list[Address], words: Words, findings: Findings
) -> None:
    while True:
        is_broker = source.random() < 0.6
        address = source.choice(brokers if is_broker else controllers)
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
        except OSError:
            findings.counts["no connection"] += 1
            await trio.sleep(WITNESS_PAUSE_S)
            continue
        async with stream:
            for _ in range(FRAMES_PER_CONNECTION):
                request = _request(source, words, is_broker=is_broker == (source.random() < FITTING_LISTENER))
                findings.recent.append(request)
                outcome = await _ask(stream, request.frame)
                findings.counts[outcome] += 1
                findings.counts[f"sent {request.name}"] += 1
                if outcome != "answered":
                    break


def _request(source: random.Random, words: Words, *, is_broker: bool) -> FuzzRequest:
    """Return a random request for a broker's listener, or for a controller's."""
    if source.random() < (0.1 if is_broker else 0.7):
        return internal_request(source, words)
    apis = [api for key, api in (BROKER_APIS if is_broker else CONTROLLER_APIS).items() if key not in HARMS_LIVE_NODES]
    return kafka_request(source, source.choice(apis), words)


async def _ask(stream: trio.SocketStream, frame: bytes) -> str:
    """Send a request; return whether the request was answered, parked (no response yet), or ended the connection."""
    try:
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            await stream.send_all(struct.pack(">i", len(frame)) + frame)
            data = b""
            while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                more = await stream.receive_some()
                if not more:
                    return "closed"
                data += more
            return "answered"
        return "parked"
    except trio.BrokenResourceError:
        return "closed"
