"""Each alert fires when its fault is caused in a real cluster, and ends with the fault.

Run by `deploy/check/monitoring.sh`, which provides Prometheus.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.deploy.monitoring.observed import Observed, observed

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]

LOSSY = ("--config", "unclean.leader.election.enable=true", "--config", "min.insync.replicas=1")
FAULTS = ("--fault-control",)


def test_alerts_fire_when_brokers_are_killed_and_end_when_they_are_back(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        copies = ("--config", "min.insync.replicas=2", "--replication-factor", "3")
        one.kraft.run("topics", "create", "orders", "--partitions", "6", *copies)
        one.kraft.run("topics", "create", "lone", "--partitions", "3", "--replication-factor", "1")
        one.wait_quiet()
        one.kraft.run("kill", "1")
        one.wait_firing(
            "KafkaNodeDown", "KafkaUnderReplicatedPartitions", "KafkaFencedBrokers", "KafkaOfflinePartitions"
        )
        assert "KafkaUnderMinIsrPartitions" not in one.firing()
        one.kraft.run("kill", "2")
        one.wait_firing("KafkaUnderMinIsrPartitions")
        assert "KafkaActiveControllerCount" not in one.firing()
        one.restart(1, 2)
        # the only replica of topic `lone` restarts after a SIGKILL, and may have lost unsynced records
        one.wait_firing("KafkaUncleanLeaderElection")
        one.wait_quiet()


def test_alerts_fire_when_the_quorum_has_lost_its_majority(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.wait_quiet()
        leader = one.active_controller()
        others = [node for node in (101, 102, 103) if node != leader]
        for node in others:
            one.kraft.run("kill", str(node))
        one.wait_firing("KafkaActiveControllerCount", "KafkaNoControllerKnown")
        one.restart(*others)
        one.wait_quiet()


def test_an_alert_fires_on_an_unclean_leader_election(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.kraft.run("topics", "create", "orders", "--replica-assignment", "1:2", *LOSSY)
        one.wait_quiet()
        one.kraft.run("kill", "2")
        one.wait_firing("KafkaUnderReplicatedPartitions")
        one.kraft.run("produce", "orders", text="kept by one\n")
        one.kraft.run("kill", "1")
        one.restart(2)
        one.wait_firing("KafkaUncleanLeaderElection")
        one.restart(1)
        one.wait_quiet()


def test_an_alert_fires_when_a_log_directory_fails(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with observed(tmp_path, f"1:log.dirs={first},{second}") as one:
        one.wait_quiet()
        second.rename(tmp_path / "gone")
        second.write_text("no folder")
        one.kraft.run("topics", "create", "orders", "--partitions", "12", "--replication-factor", "3")
        one.kraft.run("produce", "orders", text="".join(f"{n}\n" for n in range(200)))
        one.wait_firing("KafkaOfflineLogDirectory")
        one.kraft.run("stop", "1")
        second.unlink()
        (tmp_path / "gone").rename(second)
        one.restart(1)
        one.wait_quiet()


def test_an_alert_fires_when_a_node_is_close_to_its_file_limit(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.wait_quiet()
        (row,) = one.samples(f'process_open_fds{{instance="{one.folder.admin_address(1)}"}}')
        limits = resource.prlimit(one.pid(1), resource.RLIMIT_NOFILE)
        resource.prlimit(one.pid(1), resource.RLIMIT_NOFILE, (int(row["value"][1]) + 2, limits[1]))
        one.wait_firing("KafkaOpenFiles")
        resource.prlimit(one.pid(1), resource.RLIMIT_NOFILE, limits)
        one.wait_quiet()


def test_an_alert_fires_while_a_broker_is_cut_off_from_the_controllers(tmp_path: Path) -> None:
    with observed(tmp_path, options=FAULTS) as one:
        one.wait_quiet()
        cut_off(one, "1")
        many = ("topics", "create", "many", "--partitions", "1200", "--replication-factor", "1")
        # broker 2, which can reach a controller
        one.kraft.run(*many, "--bootstrap", f"127.0.0.1:{one.broker_port + 1}")
        one.wait_firing("KafkaMetadataBehind")
        one.kraft.run("fault", "clear", "--data", tmp_path / "data")
        one.wait_quiet()


def test_an_alert_fires_while_a_follower_is_fenced_for_its_stale_leader_epoch(tmp_path: Path) -> None:
    with observed(tmp_path, options=FAULTS) as one:
        one.kraft.run("topics", "create", "orders", "--replica-assignment", "1:2:3")
        one.wait_quiet()
        cut_off(one, "3")
        one.kraft.run("stop", "1")
        one.restart(1)
        one.wait_firing("KafkaFailedFollowers")
        one.kraft.run("fault", "clear", "--data", tmp_path / "data")
        one.wait_quiet()


def cut_off(one: Observed, broker: str) -> None:
    """Cut the links of a broker to the controllers; the brokers still reach each other."""
    for controller in ("101", "102", "103"):
        one.kraft.run("fault", "link", broker, controller, "hang", "--data", one.home / "data")
