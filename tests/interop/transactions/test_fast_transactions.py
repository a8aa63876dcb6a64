"""A Java producer that sends several batches of each transaction before the first one is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.transactional import load
from tests.interop.connect.committed import read_committed
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "pipelined", 6
MEGABYTES, VALUE_BYTES = 40, 1_000
RECORDS_PER_TRANSACTION = 1_000
READ_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def test_a_java_producer_that_pipelines_the_batches_of_its_transactions_gets_no_error(cluster: LocalCluster) -> None:
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    commits = load.Commits(records=RECORDS_PER_TRANSACTION)
    load.write(cluster, TOPIC, partitions=PARTITIONS, size=VALUE_BYTES, commits=commits, megabytes=MEGABYTES)
    found = read_committed(cluster.bootstrap, TOPIC, PARTITIONS, READ_SECONDS_MAX)
    assert sum(map(len, found.records)) == MEGABYTES * 1_000_000 // VALUE_BYTES
