"""Properties from KAFKA_… variables, and the commands that read these variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.deploy.launch.environment import environment_properties, property_name
from kraft.deploy.launch.node_process import read_config
from tests.config.test_check import CONTROLLER
from tests.stages.kraft_command import Command


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_A__B___C_D", "a_b-c.d"),
        (
            "KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-512_SASL_JAAS_CONFIG",
            "listener.name.secure.scram-sha-512.sasl.jaas.config",
        ),
        ("KAFKA_KAFKA_METRICS_REPORTERS", "kafka.metrics.reporters"),
        ("KRAFT_ADMIN_LISTENER", "kraft.admin.listener"),
        ("KRAFT_", None),
        ("KRAFT_BOOTSTRAP_SERVER", None),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_OPTS", None),
        ("KAFKA_", None),
        ("PATH", None),
    ],
)
def test_an_environment_variable_sets_the_same_key_as_in_kafkas_image(variable: str, key: str | None) -> None:
    assert property_name(variable) == key


def test_environment_variables_override_the_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in CONTROLLER.items()))
    over = environment_properties({"KAFKA_LOG_RETENTION_HOURS": "5", "KAFKA_LOG_DIRS": "/elsewhere"})
    config = read_config(file, over=over)
    assert (config.log_dirs, config.integer("log.retention.hours")) == (("/elsewhere",), 5)


def test_kraft_configs_check_explains_each_line_and_whether_a_node_would_start(
    kraft: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a node\n" + "".join(f"{key}={value}\n" for key, value in CONTROLLER.items()))
    answer = kraft.json("config", "check", file)
    assert answer["starts"] is True
    assert [row["source"] for row in answer["settings"]] == [f"line {number}" for number in range(2, 8)]

    monkeypatch.setenv("KAFKA_LOG_RETENTION_HOUR", "5")
    said = kraft.printed("config", "check", file, "--from-environment", "--json", code=1)
    (row,) = [row for row in json.loads(said)["settings"] if row["source"] == "KAFKA_LOG_RETENTION_HOUR"]
    assert row["meaning"] == "unknown"
    assert "log.retention.hours" in row["why"]


def test_kraft_configs_check_ends_with_a_verdict_that_names_the_wrong_lines(kraft: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in CONTROLLER.items()))
    assert kraft.run("config", "check", file).endswith("a node would start with this\n")
    mapped = ",".join(f"LISTENER{number}:PLAINTEXT" for number in range(20))
    more = f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{mapped}\nlog.retenton.ms=5\n"
    file.write_text(file.read_text() + more)
    said = kraft.run("config", "check", file, code=1)
    assert "would not start with this: line 8 (log.retenton.ms); with --ignore-unknown it would" in said
    assert max(map(len, said.splitlines())) < 250, "long values are cut"


def test_kraft_configs_check_of_contradicting_lines_fails(kraft: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("process.roles=controller\nnode.id=1\n")
    said = kraft.run("config", "check", file, code=1)
    assert "a node would not start with this" in said
    assert "what to check?" in kraft.run("config", "check", code=2)
