"""Shell completion of commands, options and names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command


def complete(line: str, tmp_path: Path) -> list[str]:
    """Return the candidates that bash offers for the last word of the line."""
    words = line.split(" ")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "_KRAFT_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "kraft.deploy.cli"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_shell_completion_offers_commands_and_options(tmp_path: Path) -> None:
    assert complete("kraft to", tmp_path) == ["topics"]
    assert "reset-offsets" in complete("kraft groups ", tmp_path)
    assert complete("kraft topics describe --unav", tmp_path) == ["--unavailable"]


def test_without_a_cluster_completion_offers_no_names_and_prints_nothing(tmp_path: Path) -> None:
    assert complete("kraft topics delete --bootstrap-server 127.0.0.1:1 a", tmp_path) == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("produce t --compression z", ["zstd"]),
        ("perf produce -z ", ["none", "gzip", "snappy", "lz4", "zstd"]),
        ("perf e2e --acks ", ["all", "1", "0"]),
        ("groups list --state St", ["Stable"]),
        ("groups list --type c", ["classic", "consumer"]),
        ("partitions offsets t --at ", ["earliest", "latest", "newest"]),
        ("consume t --offset ear", ["earliest"]),
        ("up --profile k", ["kafka"]),
        ("node --log-level w", ["warning"]),
        ("consume t -X fetch.min", ["fetch.min.bytes="]),
        ("consume t -X group.i", ["group.instance.id="]),
    ],
)
def test_shell_completion_offers_fixed_values_of_options_without_a_cluster(
    tmp_path: Path, line: str, offered: list[str]
) -> None:
    assert complete(f"kraft {line}", tmp_path) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("topics create t --config retention.m", ["retention.ms="]),
        ("up --set num.part", ["num.partitions="]),
        ("configs alter --topic t --set retention.m", ["retention.ms="]),
        ("configs alter --topic t --delete retention.m", ["retention.ms"]),
        ("configs alter --broker all --append log.retention.m", ["log.retention.ms="]),
        ("configs alter --broker 1 --delete cordoned", ["cordoned.log.dirs"]),
        ("configs alter --broker all --delete cordoned", []),
        ("configs alter --broker 1 --set process.r", []),
        ("configs alter --group g --set retention.m", []),
        ("configs alter --set retention.m", []),
    ],
)
def test_shell_completion_offers_only_setting_keys_of_the_named_topic_or_broker(
    tmp_path: Path, line: str, offered: list[str]
) -> None:
    assert sorted(complete(f"kraft {line}", tmp_path)) == offered


def test_shell_completion_offers_the_nodes_of_a_stopped_local_cluster(tmp_path: Path) -> None:
    ClusterFolder(tmp_path / "here").create(ClusterLayout(controllers=1, brokers=2), "AAAAAAAAAAAAAAAAAAAAAQ")
    assert complete(f"kraft kill --data {tmp_path}/here ", tmp_path) == ["101", "1", "2"]
    assert complete(f"kraft fault link --data {tmp_path}/here 1 10", tmp_path) == ["101"]
    assert complete(f"kraft logs --data {tmp_path}/nowhere ", tmp_path) == []
    assert complete("kraft stop ", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_kraft_completion_prints_a_script_for_each_shell(tmp_path: Path, shell: str) -> None:
    script = Command(tmp_path).run("completion", shell)
    assert f"_KRAFT_COMPLETE=complete_{shell}" in script
    assert "kraft" in script


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("up --set num.part", "compopt -o nospace; num.partitions="),
        ("up --set log.retention.", "; log.retention.ms= log.retention.minutes="),
        ("up --pro", "; --profile"),
    ],
)
def test_bash_completion_adds_no_space_after_a_key_that_needs_a_value(tmp_path: Path, words: str, answer: str) -> None:
    script = Command(tmp_path).run("completion", "bash")
    asking = f"""{script}
        compopt() {{ echo -n "compopt $*"; }}
        COMP_WORDS=(kraft {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        registered=$(complete -p kraft); registered=${{registered##*-F }}
        "${{registered% kraft}}" $'{sys.executable}\\n-m\\nkraft.deploy.cli'
        echo "; ${{COMPREPLY[*]}}"
    """
    done = subprocess.run(["bash", "-c", asking], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith(answer)


def test_an_unknown_shell_is_refused_with_the_supported_shells(tmp_path: Path) -> None:
    assert "fish" in Command(tmp_path).run("completion", "tcsh", code=2)
