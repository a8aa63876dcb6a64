"""All files that deploy or scrape nodes use the same port of the admin listener and the same job name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.monitoring.expressions import MONITORING

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
PORT = "9404"
SERVICE = re.compile(r"^  ([a-z0-9-]+):\n    <<: \*node$", re.MULTILINE)
TEXTS = ("*.md", "*.yml", "*.yaml", "*.tpl", "*.sh", "*.properties")
LISTENER = re.compile(
    r"(?:kraft\.admin\.listener|KRAFT_ADMIN_LISTENER)[=:] ?[\w.]+:(\d+)|name: admin, (?:containerP|p)ort: (\d+)"
    r"|prometheus\.io/port: \"(\d+)\""
)


def deployed() -> list[Path]:
    folders = (ROOT / "deploy", ROOT / "docs")
    return sorted(path for folder in folders for pattern in TEXTS for path in folder.rglob(pattern))


def test_the_admin_listener_has_one_port_wherever_nodes_are_deployed() -> None:
    ports = {
        (path.relative_to(ROOT), number)
        for path in deployed()
        for line in path.read_text().splitlines()
        for found in LISTENER.finditer(line)
        for number in found.groups()
        if number
    }
    assert {number for _, number in ports} <= {PORT, "0"}
    assert len({path for path, _ in ports}) >= 6


def test_prometheus_scrapes_every_node_of_the_compose_file() -> None:
    services = SERVICE.findall((DOCKER / "docker-compose.cluster.yml").read_text())
    targets = re.findall(r"^    - (\S+)$", (DOCKER / "targets" / "cluster.yml").read_text(), re.MULTILINE)
    assert targets == [f"{service}:{PORT}" for service in services]
    assert len(targets) == 6
    console = (DOCKER / "docker-compose.monitoring.yml").read_text()
    assert re.findall(r"--metrics=\d=(\S+)", console) == targets


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-kubernetes.yml"])
def test_the_prometheus_job_is_called_kafka(name: str) -> None:
    assert re.findall(r"job_name: (\S+)", (MONITORING / name).read_text()) == ["kafka"]


def test_the_compose_file_mounts_the_rules_and_dashboards_of_this_repository() -> None:
    text = (DOCKER / "docker-compose.monitoring.yml").read_text()
    mounts = dict(re.findall(r"^      - (\.\S+?):(/\S+):ro$", text, re.MULTILINE))
    assert mounts["../monitoring/alerts.yml"] == "/etc/prometheus/alerts.yml"
    assert all((DOCKER / source).exists() for source in mounts)
    provider = (MONITORING / "provisioning" / "dashboards" / "kraft.yml").read_text()
    assert f"path: {mounts['../monitoring/dashboards']}\n" in provider
