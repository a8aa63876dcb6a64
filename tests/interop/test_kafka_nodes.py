"""Apache Kafka's nodes end together with the test process that has started them, however that process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.interop

STARTER = """
import sys
from pathlib import Path
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from kraft.sim.chaos.apache.kafka_nodes import KafkaNodes
from tests.bench.kafka import free_port, installed

folder = Path(sys.argv[1])
nodes = KafkaNodes(folder, KafkaLayout.plain(free_port(), is_single=True), {}, libraries=installed())
nodes.format()
nodes.start_all()
print((folder / "1" / "pid").read_text(), flush=True)
sys.stdin.read()
"""


def test_kafka_nodes_end_when_the_test_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        node = psutil.Process(int(starter.stdout.readline()))
        try:
            assert node.is_running()
            starter.kill()
            assert psutil.wait_procs([node], timeout=30) == ([node], [])
        finally:
            if node.is_running():
                node.kill()
