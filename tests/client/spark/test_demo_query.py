"""Tests of the last step of `kraft demo`: a query where Spark can run, installation advice where it cannot, and never a
failure.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.demo.spark_query import METADATA_LOG, show_who_led, shown_command


def test_demo_query_without_java_prints_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "nodes" / "1" / METADATA_LOG).mkdir(parents=True)
    assert show_who_led(tmp_path) is False
    assert "Spark needs Java 17 or newer" in capsys.readouterr().out


def test_demo_query_of_a_run_that_kept_no_data_starts_no_spark_query(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert show_who_led(tmp_path) is False
    assert shown_command(tmp_path) not in capsys.readouterr().out


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_demo_query_shows_the_leaders_of_partitions_over_time(
    spark_ready: None, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tests.client.spark.topic_records import create_topic
    from tests.stages.started_clusters import running

    with running() as cluster:
        create_topic(cluster.bootstrap, "chaos", partitions=2, replication_factor=3)
        (tmp_path / "nodes").symlink_to(cluster.folder)
        assert show_who_led(tmp_path)
    header, *rows = [line.split() for line in capfd.readouterr().out.splitlines()[3:]]
    assert header == ["TIME", "PARTITION", "LEADER", "ISR"]
    assert sorted(row[1] for row in rows) == ["chaos-0", "chaos-1"]
    assert {row[2] for row in rows} <= {"1", "2", "3"}
