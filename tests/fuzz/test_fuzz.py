"""Random requests: undamaged ones can be decoded, and the nodes survive all of them."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from uuid import UUID

import pytest

from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.wire.api_keys import BROKER_APIS, CONTROLLER_APIS
from kraft.wire.messages import decode_request
from kraft.wire.rpc import request_classes
from tests.fuzz import values
from tests.fuzz.cluster_run import alarms_of, fuzz_cluster
from tests.fuzz.values import Words, internal_request, kafka_request

WORDS = Words(("orders", "readers", ""), (UUID(int=0), UUID(int=7)), {"name": ("orders",)})
HEAD_BYTES = 2 + 2 + 4 + 2 + len(values.CLIENT_ID)
OWN_CODECS = (0, 1)
"""API keys of Produce and Fetch, which have their own codecs."""


def test_the_same_seed_makes_the_same_fuzz_requests() -> None:
    def make() -> list[bytes]:
        source = random.Random(5)
        return [kafka_request(source, api, WORDS).frame for api in BROKER_APIS.values()] + [
            internal_request(source, WORDS).frame for _ in range(50)
        ]

    assert make() == make()


def test_undamaged_fuzz_requests_can_be_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "WELL_FORMED", 1.0)
    source = random.Random(3)
    for api in [*BROKER_APIS.values(), *CONTROLLER_APIS.values()]:
        for _ in range(20):
            request = kafka_request(source, api, WORDS)
            key, version = struct.unpack_from(">hh", request.frame)
            assert (key, version) == (api.key, request.version)
            if key not in OWN_CODECS:
                body = request.frame[HEAD_BYTES:]
                decode_request(key, version, body[1:] if values.is_flexible(key, version) else body)


def test_fuzzing_makes_every_internal_request() -> None:
    source = random.Random(1)
    assert {internal_request(source, WORDS).key for _ in range(400)} == set(request_classes())


def test_fuzzing_reports_errors_in_node_logs_but_not_warnings(tmp_path: Path) -> None:
    (tmp_path / "101").mkdir()
    log = tmp_path / "101" / "node.log"
    log.write_text("2026-01-01 WARNING a connection was closed\n")
    assert not alarms_of(tmp_path)
    log.write_text("2026-01-01 ERROR   request failed\nTraceback (most recent call last):\n")
    assert len(alarms_of(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_of_a_real_cluster_survive_random_requests(seed: int) -> None:
    with KafkaCluster(controllers=3, brokers=3) as cluster:
        findings = fuzz_cluster(cluster, seed, seconds=15)
    assert not findings.ended
    assert not findings.alarms
    assert findings.counts["answered"] > 500
    assert findings.witness_sent > 20
