"""Input of Prometheus: the rules and their expressions, and the configurations for compose and Kubernetes.

Run by `deploy/check/monitoring.sh`, which provides Prometheus.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.monitoring.expressions import BOARDS, MONITORING, RULES, board_expressions, rule_operands
from tests.deploy.monitoring.observed import SECONDS_MAX, Observed, observed, prometheus, tool, wait_until
from tests.stages.kraft_command import Command
from tests.stages.ports import hold_ports

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]

NOT_HERE = frozenset({"KafkaDiskFillsMachine", "KafkaDiskFillsVolume", "KafkaCertificateExpires"})
"""Metrics for which no data is expected here: those of node_exporter, the kubelet, and TLS listeners."""
HERE = Path(__file__).parent
DOCKER = MONITORING.parent / "docker"
MOUNT = re.compile(r"^      - (\.\S+?):/etc/prometheus/(\S+):ro$", re.MULTILINE)


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_only_on_the_series_of_its_own_fault() -> None:
    run(tool("PROMTOOL"), "test", "rules", str(HERE / "alerts_test.yml"))


def test_prometheus_accepts_the_configuration_and_the_rules() -> None:
    run(tool("PROMTOOL"), "check", "rules", str(MONITORING / "alerts.yml"))
    run(tool("PROMTOOL"), "check", "config", "--syntax-only", str(MONITORING / "prometheus.yml"))


def test_prometheus_in_kubernetes_scrapes_each_helm_release_as_a_separate_job(tmp_path: Path) -> None:
    """Debian's Prometheus has no Kubernetes support, so a file provides the labels of pods."""
    program, (port,) = tool("PROMETHEUS"), hold_ports(1)
    text = (MONITORING / "prometheus-kubernetes.yml").read_text()
    discovery = "kubernetes_sd_configs: [{role: pod}]"
    assert discovery in text
    (tmp_path / "prometheus.yml").write_text(text.replace(discovery, "file_sd_configs: [{files: [pods.json]}]"))
    shutil.copy(RULES, tmp_path)
    pods = [
        pod("10.0.0.1:9404", "prod", "events", "events-kraft-broker-0", "admin", "kraft"),
        pod("10.0.0.1:9092", "prod", "events", "events-kraft-broker-0", "client", "kraft"),
        pod("10.0.0.2:9404", "test", "events", "events-kraft-broker-0", "admin", "kraft"),
        pod("10.0.0.3:9404", "test", "other", "other-0", "admin", "other"),
    ]
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    one = Observed(Command(tmp_path), tmp_path, port)
    with prometheus(program, tmp_path, port):
        wait_until(one.has_started, (tmp_path / "log").read_text)
        wait_until(lambda: len(one.ask("targets")["droppedTargets"]) == 2, lambda: one.ask("targets"))
        labels = [target["labels"] for target in one.ask("targets")["activeTargets"]]
        assert sorted(labels, key=lambda one: one["job"]) == [
            {"instance": "events-kraft-broker-0", "job": "kafka/prod/events"},
            {"instance": "events-kraft-broker-0", "job": "kafka/test/events"},
        ]


def pod(address: str, namespace: str, release: str, name: str, port: str, application: str) -> dict[str, object]:
    """Return a target as Prometheus discovers it in Kubernetes."""
    of_pod = "__meta_kubernetes_pod_"
    labels = {
        "__meta_kubernetes_namespace": namespace,
        f"{of_pod}name": name,
        f"{of_pod}container_port_name": port,
        f"{of_pod}label_app_kubernetes_io_name": application,
        f"{of_pod}label_app_kubernetes_io_instance": release,
    }
    return {"targets": [address], "labels": labels}


def test_the_prometheus_of_the_compose_file_has_the_rules_and_all_nodes(tmp_path: Path) -> None:
    program, (port,) = tool("PROMETHEUS"), hold_ports(1)
    for source, target in MOUNT.findall((DOCKER / "docker-compose.monitoring.yml").read_text()):
        place = tmp_path / target
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (DOCKER / source).is_dir() else shutil.copy)(DOCKER / source, place)
    one = Observed(Command(tmp_path), tmp_path, port)
    with prometheus(program, tmp_path, port):
        wait_until(one.has_started, (tmp_path / "log").read_text)
        wait_until(lambda: len(one.ask("targets")["activeTargets"]) == 6, lambda: one.ask("targets"))
        labels = [target["labels"] for target in one.ask("targets")["activeTargets"]]
        assert {label["job"] for label in labels} == {"kafka"}
        assert {"broker-4:9404", "controller-1:9404"} <= {label["instance"] for label in labels}
        names = {rule["name"] for group in one.ask("rules")["groups"] for rule in group["rules"]}
        assert names == set(re.findall(r"alert: (\w+)", RULES.read_text()))


def test_each_expression_of_rules_and_dashboards_returns_data_for_a_cluster(tmp_path: Path) -> None:
    with observed(tmp_path) as one:
        one.kraft.run("topics", "create", "orders", "--partitions", "6", "--replication-factor", "3")
        asked = [*board_expressions(), *rule_operands(one.ask("rules"))]
        missing = {(where, text) for where, text in asked if where not in NOT_HERE}
        assert len(BOARDS) == 3

        def all_return_data() -> bool:
            work(one)
            missing.difference_update([row for row in sorted(missing) if one.samples(row[1])])
            return not missing

        wait_until(all_return_data, lambda: f"no data: {missing}")
        one.wait_quiet()


def work(one: Observed) -> None:
    """Use the cluster so that every dashboard has data: records, a group, and an error."""
    one.kraft.run("produce", "orders", text="".join(f"{n}\n" for n in range(200)))
    one.kraft.run("consume", "orders", "--group", "readers", "-n", "100")
    one.kraft.run("topics", "describe", "no-such-topic", code=4)
