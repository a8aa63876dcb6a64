"""`kraft log dump`: secrets stay hidden, and damage is reported."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraft.client.metadata_log.event_fields import event_fields
from kraft.config.secrets import HIDDEN, is_secret_key
from kraft.deploy.cli.log_dump import dump_file
from kraft.image import ConfigResourceType, encode_event, events
from kraft.wire.records import BATCH_HEADER_BYTES, Record, encode_batch, write_crc
from tests.stages.kraft_command import Command

SECRETS = (
    "ssl.key.password",
    "ssl.keystore.key",
    "listener.name.external.ssl.key.password",
    "listener.name.external.plain.sasl.jaas.config",
    "sasl.jaas.config",
)


def config(name: str, value: str) -> events.Config:
    return events.Config(resource_type=ConfigResourceType.BROKER, resource_name="1", name=name, value=value)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_setting_is_dumped_as_hidden(name: str) -> None:
    assert event_fields(config(name, "geheim"))["value"] == HIDDEN


@pytest.mark.parametrize("name", ["retention.ms", "ssl.client.auth", "listeners"])
def test_settings_without_secrets_are_dumped_with_their_values(name: str) -> None:
    assert not is_secret_key(name)
    assert event_fields(config(name, "open"))["value"] == "open"


def test_a_dumped_metadata_log_holds_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    records = [Record(0, 1, None, encode_event(config(name, "geheim"))) for name in SECRETS]
    path = folder / f"{0:020}.log"
    path.write_bytes(encode_batch(records, base_offset=0, leader_epoch=1))
    rows = list(dump_file(path, with_records=True))
    assert [row["type"] for row in rows[1:]] == ["Config"] * len(SECRETS)
    assert "geheim" not in str(rows)


def test_kraft_log_dump_reports_an_unparsable_batch_and_shows_the_batches_after_it(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    bad = encode_batch([Record(0, 1, None, b"bad")])
    bad[BATCH_HEADER_BYTES] = 0x7F
    write_crc(bad, 0)
    path.write_bytes(bad + encode_batch([Record(0, 1, None, b"good")], base_offset=1))
    rows = list(dump_file(path, with_records=True))
    assert [row["kind"] for row in rows] == ["batch", "damage", "batch", "record"]
    assert "offset 0 do not parse" in rows[1]["reason"]
    assert rows[3]["value"] == "good"


def test_kraft_log_dump_fails_on_damage_and_refuses_files_that_are_not_logs(tmp_path: Path) -> None:
    kraft, folder = Command(tmp_path / "state"), tmp_path / "t-0"
    folder.mkdir()
    for name in ("zygote.log", "zygote.log.1"):
        (tmp_path / name).write_text("a text, and no log of Kafka's\n")
    assert "name the folder of a partition" in kraft.run("log", "dump", tmp_path, code=2)
    assert "not a file that kraft writes" in kraft.run("log", "dump", tmp_path / "zygote.log.1", code=2)
    assert kraft.printed("log", "dump", tmp_path / "zygote.log.1", code=2) == ""
    segment = folder / f"{0:020}.log"
    batch = encode_batch([Record(0, 1, None, b"whole")], base_offset=0, leader_epoch=1)
    segment.write_bytes(batch)
    assert "value=whole" in kraft.run("log", "dump", folder)
    segment.write_bytes(batch[:-1] + b"!")
    assert "1 place of what was shown cannot be read" in kraft.run("log", "dump", folder, code=1)
    segment.write_bytes(batch + b"torn")
    assert "damage position=" in kraft.printed("log", "dump", folder, code=1)


def test_kraft_log_dump_shows_the_batches_after_a_batch_whose_records_contradict_its_header(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    batches = [encode_batch([Record(0, 1, None, value)], base_offset=0, leader_epoch=1) for value in (b"a", b"b", b"c")]
    struct.pack_into(">i", batches[0], 57, 3)
    struct.pack_into(">h", batches[1], 21, 7)
    for batch in batches:
        write_crc(batch, 0)
    path.write_bytes(b"".join(batches))
    rows = list(dump_file(path, with_records=True))
    kinds = [row["kind"] for row in rows]
    assert [kind for kind in kinds if kind != "record"] == ["batch", "damage", "batch", "damage", "batch"]
    assert kinds[-1] == "record", "what comes behind the damaged batches is shown"
    assert [row["position"] for row in rows if row["kind"] == "damage"] == [0, len(batches[0])]
    assert [row["compression"] for row in rows if row["kind"] == "batch"][1] == "unknown (7)"
    assert rows[-1]["value"] == "c"
