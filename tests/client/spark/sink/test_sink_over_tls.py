"""Test of the sink's producer over TLS: it does not miss responses that TLS has already decrypted."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pytest
import trustme
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client.spark.settings import ConnectionSettings, SinkSettings, TlsFiles
from kraft.client.spark.sink.rows import MarkOrigin, SinkColumns
from kraft.client.spark.sink.task import write_at_least_once
from kraft.seam import Address
from tests.deploy.cli.test_tls import authority, own_certificate, servers  # noqa: F401 - fixtures

ROWS = 20_000


@pytest.mark.interop
def test_sync_producer_writes_many_small_batches_over_tls_once_and_in_order(
    servers: str,  # noqa: F811
    authority: tuple[trustme.CA, Path],  # noqa: F811
    own_certificate: Path,  # noqa: F811
) -> None:
    client = {
        "bootstrap.servers": servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority[1]),
        "ssl.certificate.location": str(own_certificate),
        "ssl.key.location": str(own_certificate),
    }
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    host, port = servers.split(":")
    tls = TlsFiles(keystore_location=str(own_certificate), truststore_location=str(authority[1]))
    connection = ConnectionSettings(bootstrap=(Address(host, int(port)),), tls=tls, request_timeout_ms=5_000)
    settings = SinkSettings(connection=connection, topic="t", batch_bytes=4_096)
    values = [b"%d" % number for number in range(ROWS)]
    batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])
    write_at_least_once(settings, SinkColumns(value=0), [batch], MarkOrigin("q", 0, 0))
    consumer = confluent_kafka.Consumer(client | {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes | None] = []
    while len(found) < ROWS:
        found += [message.value() for message in consumer.consume(1_000, 1)]
    consumer.close()
    assert found == values
