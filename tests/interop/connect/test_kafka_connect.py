"""Kafka Connect in distributed mode, exactly once, on our brokers, while workers and brokers fail.

Source: KIP-618.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kraft.broker.shard.placement import partition_of
from tests.interop.connect.committed import CommittedLog, read_committed
from tests.interop.connect.topics import config_of, partitions_of
from tests.interop.connect.workers import GROUP, INTERNAL_TOPICS, OFFSETS, Workers, workers_running
from tests.interop.programs import install_tools
from tests.interop.transactions.scenario import TRANSACTION_STATE, TRANSACTION_STATE_PARTITIONS, killed
from tests.stages.started_clusters import KRAFT, LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

NUMBERS, LINES, SINK = "numbers", "lines", "sink"
"""Names of the connectors; those of the sources are also their topics."""
SEQUENCES = 2
FIRST_TASK, RETIRED_TASK = f"{GROUP}-{NUMBERS}-0", f"{GROUP}-{NUMBERS}-1"
"""Transactional ids of the tasks that write numbers. The second task is not started again after the last change."""
ADVANCE = 150
"""Numbers of each sequence, and lines, that are awaited at each stage."""
STAGE_SECONDS_MAX = 120
READ_SECONDS_MAX = 60
FILES = "org.apache.kafka.connect.file"
REQUIRED = {"exactly.once.support": "required"}
REPLICAS, COUNT = "topic.creation.default.replication.factor", "topic.creation.default.partitions"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running() as started:
        yield started


class Scene:
    """The connectors at work: how far they are, and what they have to write."""

    def __init__(self, cluster: LocalCluster, workers: Workers, stack: ExitStack, folder: Path) -> None:
        self.cluster = cluster
        self.workers = workers
        self.numbers = stack.enter_context(CommittedLog(cluster.bootstrap, NUMBERS, SEQUENCES))
        self.lines = stack.enter_context(CommittedLog(cluster.bootstrap, LINES, 1))
        self.written: list[str] = []
        self._source = folder / "source.txt"
        self._target = folder / "target.txt"

    def configure_numbers(self, **changes: object) -> None:
        config = {"connector.class": "kraft.interop.SequenceSource", "sequences": SEQUENCES}
        topic = {"topic": NUMBERS, REPLICAS: 3, COUNT: SEQUENCES}
        self.workers.configure(NUMBERS, {**config, **topic, **REQUIRED, **changes})

    def configure_lines(self) -> None:
        self._source.touch()
        source = {"connector.class": f"{FILES}.FileStreamSourceConnector", "file": self._source}
        topic = {"topic": LINES, REPLICAS: 3, COUNT: 1}
        boundary = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": 300}
        self.workers.configure(LINES, {**source, **topic, **boundary, **REQUIRED})

    def configure_sink(self) -> None:
        """Start the sink. The topics must exist: its consumer would create them with one partition."""
        sink = {"connector.class": f"{FILES}.FileStreamSinkConnector", "file": self._target}
        self.workers.configure(SINK, {**sink, "topics": f"{NUMBERS},{LINES}"})

    def advance(self) -> None:
        """Write more lines, and wait until they and more numbers of each sequence are committed."""
        goal = min(self.numbers.counts()) + ADVANCE
        fresh = [f"line-{number}" for number in range(len(self.written), len(self.written) + ADVANCE)]
        with self._source.open("a") as source:
            source.writelines(f"{line}\n" for line in fresh)
        self.written += fresh
        self.wait_numbers(goal)
        self.workers.wait_for(
            f"{len(self.written)} lines are committed",
            lambda: sum(self.lines.counts()) >= len(self.written),
            STAGE_SECONDS_MAX,
        )

    def wait_numbers(self, count: int) -> None:
        self.workers.wait_for(
            f"each sequence has {count} committed numbers",
            lambda: min(self.numbers.counts()) >= count,
            STAGE_SECONDS_MAX,
        )

    def worker_of_first_task(self) -> int:
        self.workers.wait_tasks(NUMBERS, SEQUENCES)
        return self.workers.tasks(NUMBERS)[0]

    def wait_moved(self, lost: int) -> None:
        """Wait until the other worker has all tasks that write numbers."""
        self.workers.wait_for(
            f"worker {1 - lost} has all tasks",
            lambda: self.workers.tasks(NUMBERS) == dict.fromkeys(range(SEQUENCES), 1 - lost),
            STAGE_SECONDS_MAX,
        )

    def wait_divided(self) -> None:
        """Wait until both workers have a task that writes numbers."""
        self.workers.wait_for(
            "both workers have tasks",
            lambda: sorted(self.workers.tasks(NUMBERS).values()) == [0, 1],
            STAGE_SECONDS_MAX,
        )

    def coordinator_of_first_task(self) -> int:
        return self.cluster.leader(TRANSACTION_STATE, partition_of(FIRST_TASK, TRANSACTION_STATE_PARTITIONS))

    def sunk(self) -> list[str]:
        return self._target.read_text().splitlines() if self._target.exists() else []


def described(cluster: LocalCluster, transactional_id: str) -> dict[str, Any]:
    """Return what the coordinator knows of a transactional id."""
    command = [*KRAFT, "transactions", "describe", transactional_id, "--json", "-b", cluster.bootstrap]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stored_offsets(cluster: LocalCluster, connector: str) -> dict[str, object]:
    """Return the last offset of each source partition that is committed in the topic of offsets."""
    count = INTERNAL_TOPICS[OFFSETS]
    found: dict[str, object] = {}
    for records in read_committed(cluster.bootstrap, OFFSETS, count, READ_SECONDS_MAX).records:
        for record in records:
            name, partition = json.loads(record.key)
            if name == connector:
                found[json.dumps(partition)] = json.loads(record.value)
    return found


def test_connect_writes_each_record_once_when_workers_and_brokers_are_killed_and_a_worker_hangs(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        workers = stack.enter_context(workers_running(cluster.bootstrap, tmp_path))
        scene = Scene(cluster, workers, stack, tmp_path)
        scene.configure_numbers(**{"tasks.max": SEQUENCES})
        scene.configure_lines()
        scene.wait_divided()
        scene.advance()
        scene.configure_sink()

        victim = scene.worker_of_first_task()
        workers.kill(victim)
        scene.wait_moved(victim)
        scene.advance()
        workers.start(victim)
        scene.wait_divided()

        with killed(cluster, scene.coordinator_of_first_task(), NUMBERS, LINES, *INTERNAL_TOPICS):
            scene.advance()

        zombie = scene.worker_of_first_task()
        workers.pause(zombie)
        scene.wait_moved(zombie)
        scene.advance()
        workers.resume(zombie)
        scene.wait_divided()
        scene.advance()

        limit = max(scene.numbers.counts()) + ADVANCE
        scene.configure_numbers(**{"tasks.max": 1, "limit": limit})
        scene.wait_numbers(limit)
        numbers = [[f"{sequence}-{number}" for number in range(limit)] for sequence in range(SEQUENCES)]
        assert read_committed(cluster.bootstrap, NUMBERS, SEQUENCES, READ_SECONDS_MAX).values == numbers
        assert read_committed(cluster.bootstrap, LINES, 1, READ_SECONDS_MAX).values == [scene.written]
        assert described(cluster, RETIRED_TASK)["state"] == "Empty", "only fenceProducers leaves this state behind"

        expected = {*scene.written, *itertools.chain(*numbers)}
        workers.wait_for("the sink has all records", lambda: set(scene.sunk()) >= expected, STAGE_SECONDS_MAX)
        assert set(scene.sunk()) == expected

        wanted = {json.dumps({"sequence": str(sequence)}): {"next": limit} for sequence in range(SEQUENCES)}
        workers.wait_for("the offsets are stored", lambda: workers.offsets(NUMBERS) == wanted, STAGE_SECONDS_MAX)
        assert stored_offsets(cluster, NUMBERS) == wanted
        for topic, count in INTERNAL_TOPICS.items():
            assert partitions_of(cluster, topic) == count
            assert config_of(cluster, topic)["cleanup.policy"] == "compact"
