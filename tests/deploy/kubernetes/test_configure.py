"""The chart's init step: it makes a pod's server.properties from that of its role, and formats the log directory
once."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from kraft.config import NodeConfig
from kraft.deploy.launch.node_process import read_config

CHART = Path(__file__).parents[3] / "deploy" / "kubernetes"
CLUSTER_ID = "5L6g3nShTeMCtKX86sw00A"
DIRECTORY_ID = "abcdef0123456789abcdeA"
COMMON = "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=a-controller-0.a.svc:9093\n"
SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod whose volume mounts are replaced by folders."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def configure(self, name: str, **environment: str) -> NodeConfig:
        """Run the init step in this pod."""
        (self.folder / "run").mkdir(exist_ok=True)
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        kraft = programs / "kraft"
        kraft.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraft.deploy.cli "$@"\n')
        kraft.chmod(0o755)
        variables = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CONFIG_DIR": str(self.folder / "etc"),
            "RUN_DIR": str(self.folder / "run"),
            "POD_NAME": name,
            "HOST_SUFFIX": "a-kraft.data.svc.cluster.local",
            "CLUSTER_ID": CLUSTER_ID,
            "RACK_SOURCE": "None",
            "EXTERNAL_TYPE": "None",
            "EXTERNAL_PORT": "9094",
            "EXTERNAL_HOST": "",
            **environment,
        }
        command = ["sh", str(CHART / "files" / "configure.sh")]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, done.stdout + done.stderr
        return read_config(self.folder / "run" / "server.properties")

    def directory_ids(self) -> set[str]:
        """Return the directory ids of the formatted log directory."""
        text = (self.folder / "data" / "kraft" / "meta.properties").read_text()
        return {line.split("=")[1] for line in text.splitlines() if line.startswith("directory.id")}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    pod = Pod(tmp_path)
    log_dirs = f"log.dirs={tmp_path}/data/kraft\n"
    protocols = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT\n"
    controller = "process.roles=controller\nlisteners=CONTROLLER://:9093\n"
    pod.write("config/controller.properties", controller + COMMON + log_dirs)
    broker = "process.roles=broker\nlisteners=INTERNAL://:9092,EXTERNAL://:9094\ninter.broker.listener.name=INTERNAL\n"
    pod.write("config/broker.properties", broker + COMMON + protocols + log_dirs)
    return pod


def advertised(config: NodeConfig) -> dict[str, tuple[str, int]]:
    return {one.name: (one.host, one.port) for one in config.advertised_listeners}


def broker(pod: Pod, **environment: str) -> NodeConfig:
    return pod.configure("a-kraft-broker-2", ROLE="broker", NODE_ID_FIRST="10", **environment)


def test_a_controller_pod_becomes_an_initial_voter_with_the_directory_id_of_the_list(pod: Pod) -> None:
    voters = f"100@a-controller-0.a.svc:9093:{DIRECTORY_ID}"
    role = {"ROLE": "controller", "NODE_ID_FIRST": "100"}
    config = pod.configure("a-kraft-controller-0", INITIALIZE="true", VOTERS=voters, **role)
    assert config.node_id == 100
    assert advertised(config) == {"CONTROLLER": ("a-kraft-controller-0.a-kraft.data.svc.cluster.local", 9093)}
    assert pod.directory_ids() == {DIRECTORY_ID}
    pod.configure("a-kraft-controller-0", INITIALIZE="true", VOTERS=voters, **role)  # the pod is restarted


def test_a_controller_pod_that_may_not_initialize_gets_its_own_directory_id(pod: Pod) -> None:
    voters = f"100@a-controller-0.a.svc:9093:{DIRECTORY_ID}"
    role = {"ROLE": "controller", "NODE_ID_FIRST": "100"}
    pod.configure("a-kraft-controller-0", INITIALIZE="false", VOTERS=voters, **role)
    assert pod.directory_ids() != {DIRECTORY_ID}


def test_a_broker_pod_advertises_its_own_node_port(pod: Pod) -> None:
    config = broker(pod, EXTERNAL_TYPE="NodePort", EXTERNAL_PORT="31090", EXTERNAL_HOST="fd00::7")
    assert config.node_id == 12
    assert advertised(config) == {
        "INTERNAL": ("a-kraft-broker-2.a-kraft.data.svc.cluster.local", 9092),
        "EXTERNAL": ("fd00::7", 31092),
    }


def test_a_broker_pod_advertises_its_own_name_behind_a_load_balancer(pod: Pod) -> None:
    config = broker(pod, EXTERNAL_TYPE="LoadBalancer", EXTERNAL_HOST="broker-{ordinal}.example.com")
    assert advertised(config)["EXTERNAL"] == ("broker-2.example.com", 9094)


def test_a_broker_pod_takes_its_rack_from_the_zone_label_of_the_pod(pod: Pod) -> None:
    assert broker(pod, RACK_SOURCE="PodLabel", ZONE="eu-1a").rack == "eu-1a"


def test_a_broker_pod_without_a_known_zone_starts_without_a_rack(pod: Pod) -> None:
    assert broker(pod, RACK_SOURCE="PodLabel", ZONE="").rack is None


def test_the_init_step_adds_the_properties_of_a_secret_and_a_key_store(pod: Pod) -> None:
    pod.write("secret/server.properties", "num.partitions=7")
    pod.write("tls/tls.key", "KEY\n")
    pod.write("tls/tls.crt", "CHAIN\n")
    assert broker(pod).integer("num.partitions") == 7
    assert (pod.folder / "run" / "keystore.pem").read_text() == "KEY\nCHAIN\n"
    assert (pod.folder / "run" / "keystore.pem").stat().st_mode & 0o077 == 0


class Nodes(http.server.BaseHTTPRequestHandler):
    """A server for the part of the Kubernetes API that describes Kubernetes nodes."""

    def do_GET(self) -> None:
        known = self.path == "/api/v1/nodes/machine-1" and self.headers["Authorization"] == "Bearer secret"
        self.send_response(200 if known else 403)
        self.end_headers()
        self.wfile.write(b'{"metadata": {"labels": {"topology.kubernetes.io/zone": "eu-1b"}}}')

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def api(account: Path) -> Iterator[int]:
    """Port of the Kubernetes API. The folder `account` gets the service account files that a pod has."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    account.mkdir()
    authority.cert_pem.write_to_path(account / "ca.crt")
    (account / "token").write_text("secret\n")
    with http.server.HTTPServer(("127.0.0.1", 0), Nodes) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_broker_pod_takes_its_rack_from_the_zone_of_its_kubernetes_node(pod: Pod) -> None:
    pod.write("config/zone", (CHART / "files" / "zone").read_text())
    account = pod.folder / "account"
    with api(account) as port:
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        config = broker(pod, RACK_SOURCE="Node", NODE_NAME="machine-1", ACCOUNT_DIR=str(account), **where)
    assert config.rack == "eu-1b"
