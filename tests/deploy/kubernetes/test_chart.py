"""Helm's output for the chart, for a matrix of values, is valid for Kubernetes, and contains valid node properties.

Run by `deploy/check/chart.sh`, which provides Helm and the schemas.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from kraft.config import NodeConfig, parse_properties

pytestmark = pytest.mark.deploy

CHART = Path(__file__).parents[3] / "deploy" / "kubernetes"
VERSIONS = ("1.37", "1.33", "1.31")
"""Versions of Kubernetes whose schemas the manifests must satisfy."""
TLS = {"tls": {"enabled": True, "secret": "kraft-tls", "clientAuth": "required"}}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "kafka", "effect": "NoSchedule"}
RANGES = ["10.0.0.0/8"]
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one-of-each": {"controllers": {"replicas": 1}, "brokers": {"replicas": 1}},
    "five-and-nine": {"controllers": {"replicas": 5}, "brokers": {"replicas": 9, "nodeIdFirst": 1000}},
    "tls": TLS,
    "node-port": {"brokers": {"external": {"type": "NodePort"}}},
    "load-balancer": {
        "brokers": {
            "external": {
                "type": "LoadBalancer",
                "host": "b{ordinal}.example.com",
                "annotations": {"external-dns.alpha.kubernetes.io/hostname": "b{ordinal}.example.com"},
                "sourceRanges": RANGES,
            }
        },
        **TLS,
    },
    "rack-of-node": {"rack": {"source": "Node"}},
    "no-rack": {"rack": {"source": "None"}},
    "console": {"console": {"enabled": True, "allowChanges": True}},
    "secrets": {"configSecret": "kraft-passwords", "image": {"pullSecrets": ["registry"]}},
    "placed": {
        "brokers": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [TOLERATION],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
                    ]
                }
            },
            "priorityClassName": "high",
            "spread": {"zone": "DoNotSchedule", "host": "Off"},
            "storage": {"size": "1Ti", "className": "fast", "retain": False},
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "x"},
        },
        "controllers": {"spread": {"zone": "Off", "host": "Off"}, "disruptionBudget": {"enabled": False}},
    },
    "bare": {
        "serviceAccount": {"create": False, "name": "given"},
        "scrapeAnnotations": False,
        "logJson": False,
        "image": {"digest": "sha256:" + "0" * 64},
        "config": {"num.partitions": 12, "auto.create.topics.enable": False, "log.retention.bytes": 107374182400},
        "podSecurityContext": {"fsGroup": 2000},
    },
}


@pytest.fixture
def helm() -> str:
    """The helm program. The tests of this module are skipped unless deploy/check/chart.sh has installed it."""
    path = os.environ.get("HELM", "")
    if not path:
        pytest.skip("HELM does not name the program: run deploy/check/chart.sh")
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with the key and the trust store of a pod, by the configuration key that names them."""
    folder = tmp_path_factory.mktemp("stores")
    authority = trustme.CA()
    authority.issue_cert("a.example.com").private_key_and_cert_chain_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "trust.pem")
    return {"ssl.keystore.location": folder / "key.pem", "ssl.truststore.location": folder / "trust.pem"}


def render(helm: str, values: dict[str, Any], folder: Path, *, fails: bool = False) -> str:
    """Render the chart. Return the manifests or, with `fails`, the error text."""
    path = folder / "values.json"
    path.write_text(json.dumps(values))
    command = [helm, "template", "a", str(CHART), "-n", "data", "--kube-version", VERSIONS[0], "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr
    return done.stderr if fails else done.stdout


def manifests(text: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def named(rows: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (row,) = [row for row in of_kind(rows, kind) if row["metadata"]["name"] == name]
    return row


def test_helm_lint_accepts_the_chart(helm: str) -> None:
    command = [helm, "lint", "--strict", str(CHART), "--kube-version", VERSIONS[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", MATRIX)
def test_the_charts_manifests_have_only_fields_known_to_kubernetes(helm: str, name: str, tmp_path: Path) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    rows = manifests(render(helm, MATRIX[name], tmp_path))
    for version in VERSIONS:
        for row in rows:
            schemas.validate(row, version, strict=True)
    keys = [(row["kind"], row["metadata"]["name"]) for row in rows]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", MATRIX)
def test_selectors_and_probes_of_the_chart_match_its_pods(helm: str, name: str, tmp_path: Path) -> None:
    rows = manifests(render(helm, MATRIX[name], tmp_path))
    pods = [row["spec"]["template"] for row in rows if row["kind"] in ("StatefulSet", "Deployment")]
    for row in rows:
        selector = row.get("spec", {}).get("selector")
        if selector is None or "statefulset.kubernetes.io/pod-name" in selector:
            continue
        wanted = selector.get("matchLabels", selector).items()
        chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, row["metadata"]["name"]
        ports = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in row["spec"].get("ports", []) if row["kind"] == "Service"} <= ports
    for row in of_kind(rows, "StatefulSet"):
        (container,) = row["spec"]["template"]["spec"]["containers"]
        paths = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
        assert paths == ["/live", "/live", "/ready"]
        volumes = {one["name"] for one in row["spec"]["template"]["spec"]["volumes"]} | {"data"}
        assert {one["name"] for one in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("name", MATRIX)
def test_the_properties_rendered_by_the_chart_are_valid_for_each_role(
    helm: str, name: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    rows = manifests(render(helm, MATRIX[name], tmp_path))
    data = named(rows, "ConfigMap", "a-kraft")["data"]
    for role in ("controller", "broker"):
        properties = dict(parse_properties(data[f"{role}.properties"]))
        for key, path in stores.items():
            if key in properties:
                properties[key] = str(path)  # a file inside the pod
        host = "a.example.com"
        names = [entry.partition("://") for entry in properties["listeners"].split(",")]
        advertised = ",".join(f"{listener}://{host}:{address.rpartition(':')[2]}" for listener, _, address in names)
        config = NodeConfig.parse({**properties, "node.id": "1", "advertised.listeners": advertised})
        assert config.roles == {role}
        assert all(one.host == host for one in config.advertised_listeners)


def test_a_configuration_value_of_the_chart_is_in_the_nodes_properties_unchanged(helm: str, tmp_path: Path) -> None:
    config = {
        "log.cleaner.min.cleanable.ratio": 0.35,
        "log.retention.bytes": 107374182400,
        "auto.create.topics.enable": False,
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)\\.x$/$1/\\",
    }
    data = named(manifests(render(helm, {"config": config}, tmp_path)), "ConfigMap", "a-kraft")["data"]
    properties = dict(parse_properties(data["broker.properties"]))
    expected = {key: str(value).lower() if value is False else str(value) for key, value in config.items()}
    assert {key: properties[key] for key in config} == expected


def test_a_configuration_change_restarts_the_pods_and_other_values_do_not(helm: str, tmp_path: Path) -> None:
    def checksums(values: dict[str, Any]) -> tuple[str, ...]:
        rows = of_kind(manifests(render(helm, values, tmp_path)), "StatefulSet")
        return tuple(row["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for row in rows)

    broker, controller = checksums({})
    assert checksums({"brokers": {"priorityClassName": "high"}}) == (broker, controller)
    changed = checksums({"brokers": {"config": {"num.partitions": 3}}})
    assert changed[0] != broker
    assert changed[1] == controller


def test_each_voter_of_the_chart_has_its_own_id_and_address(helm: str, tmp_path: Path) -> None:
    rows = manifests(render(helm, MATRIX["five-and-nine"], tmp_path))
    (init,) = named(rows, "StatefulSet", "a-kraft-controller")["spec"]["template"]["spec"]["initContainers"]
    variables = {one["name"]: one.get("value") for one in init["env"]}
    voters = [voter.split("@") for voter in variables["VOTERS"].split(",")]
    assert [int(node) for node, _ in voters] == [100, 101, 102, 103, 104]
    directories = {address.rsplit(":", 1)[1] for _, address in voters}
    assert len(directories) == 5
    assert all(len(one) == 22 for one in [*directories, variables["CLUSTER_ID"]])


def test_each_broker_of_the_chart_has_its_own_node_port(helm: str, tmp_path: Path) -> None:
    rows = manifests(render(helm, MATRIX["node-port"], tmp_path))
    ports = {
        row["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]: row["spec"]["ports"][0]["nodePort"]
        for row in of_kind(rows, "Service")
        if row["spec"].get("type") == "NodePort"
    }
    assert ports == {f"a-kraft-broker-{n}": 31090 + n for n in range(3)}


def test_no_container_may_gain_privileges_or_write_to_its_image(helm: str, tmp_path: Path) -> None:
    rows = manifests(render(helm, MATRIX["console"], tmp_path))
    for row in [*of_kind(rows, "StatefulSet"), *of_kind(rows, "Deployment")]:
        pod = row["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"brokers": {"replica": 3}}, "replica"),
        ({"controllers": {"replicas": 2}}, "replicas"),
        ({"clusterId": "short"}, "clusterId"),
        ({"brokers": {"external": {"type": "Ingress"}}}, "type"),
        ({"brokers": {"external": {"type": "LoadBalancer"}}}, "brokers.external.host"),
        ({"tls": {"enabled": True}}, "tls.secret"),
        ({"config": {"node.id": 7}}, "node.id"),
        ({"config": {"a.b": "x\nbroker.rack=y"}}, "line break"),
        ({"console": {"enabled": True}, **TLS}, "console"),
    ],
    ids=str,
)
def test_invalid_chart_values_are_refused_by_name(helm: str, values: dict[str, Any], word: str, tmp_path: Path) -> None:
    assert word in render(helm, values, tmp_path, fails=True)
