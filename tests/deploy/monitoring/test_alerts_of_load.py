"""Alerts of a process and its disk fire when clients or the machine cause their fault, and end with it.

Run by `deploy/check/monitoring.sh`, which provides Prometheus and node_exporter.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.monitoring.attacks import halves_of_requests, processor_taken_away, requests_without_end
from tests.deploy.monitoring.observed import observed
from tests.deploy.monitoring.small_disk import SmallDisk
from tests.stages.ports import hold_ports

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]


def test_alerts_fire_while_clients_saturate_the_event_loop(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.kraft.run("topics", "create", "orders", "--partitions", "100", "--replication-factor", "1")
        one.wait_quiet()
        with requests_without_end(one.broker_port):
            one.wait_firing("KafkaLoopBusy")
            with processor_taken_away(one.pid(1)):
                one.wait_firing("KafkaLongLoopSteps")
        one.wait_quiet()


def test_an_alert_fires_while_requests_exhaust_the_request_memory(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.wait_quiet()
        with halves_of_requests(one.broker_port):
            one.wait_firing("KafkaMemoryBudget")
        one.wait_quiet()


def test_alerts_fire_while_a_disk_or_a_volume_is_nearly_full(tmp_path: Path) -> None:
    """node_exporter reports the disk of a machine. A file with a kubelet's metrics reports a volume."""
    (port,) = hold_ports(1)
    job = f"  - {{job_name: node, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
    with SmallDisk.mounted(tmp_path / "disk", port) as disk, observed(tmp_path, jobs=job) as one:
        one.wait_quiet()
        for full, alert in ((disk.fill, "KafkaDiskFillsMachine"), (disk.tell_of_full_volume, "KafkaDiskFillsVolume")):
            with full():
                one.wait_firing(alert)
            one.wait_quiet()
