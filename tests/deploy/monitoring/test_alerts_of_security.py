"""Alerts of a cluster with TLS fire when clients are rejected or a certificate is about to expire, and end with the
cause.

Run by `deploy/check/monitoring.sh`, which provides Prometheus.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.deploy.monitoring.attacks import nonsense
from tests.deploy.monitoring.observed import observed

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]


def test_alerts_fire_on_refused_tls_clients_and_on_an_expiring_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted, server = tmp_path / "ca.pem", tmp_path / "server.pem"
    trusted.write_bytes(authority.cert_pem.bytes())

    def issue(days: int) -> None:
        issued = authority.issue_cert("127.0.0.1", "localhost", not_after=datetime.now(UTC) + timedelta(days=days))
        draft = tmp_path / "draft.pem"
        draft.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        draft.replace(server)

    issue(days=60)
    settings = (
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        f"ssl.keystore.location={server}",
        "ssl.keystore.type=PEM",
        f"ssl.truststore.location={trusted}",
        "ssl.truststore.type=PEM",
    )
    with observed(tmp_path, *settings) as one:
        one.wait_quiet()
        nonsense(one.broker_port, times=20)
        one.wait_firing("KafkaFailedAuthentications")
        one.wait_quiet()
        issue(days=7)
        one.wait_firing("KafkaCertificateExpires")
        issue(days=60)
        one.wait_quiet()
