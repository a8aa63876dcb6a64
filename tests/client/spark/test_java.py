"""Tests of the checks, before Spark is started, that a machine has what Spark needs. Each error explains what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kraft.client.spark.java import JavaMissing, JavaTooOld, find_java, major_of, version_of
from kraft.client.spark.packages import NEEDED, PackageMissing, PackageUnfit, check_package, check_packages

ROOT = Path(__file__).resolve().parents[3]

PRINTED = [
    ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n', "17.0.15", 17),
    ('openjdk version "21" 2023-09-19\nOpenJDK Runtime Environment (build 21+35)\n', "21", 21),
    ('openjdk version "26-ea" 2026-03-17\n', "26-ea", 26),
    ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)\n', "1.8.0_392", 8),
    ('openjdk version "11.0.22" 2024-01-16 LTS\n', "11.0.22", 11),
    ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17\n', "17.0.9", 17),
]


@pytest.mark.parametrize(("printed", "version", "major"), PRINTED)
def test_java_version_is_found_in_each_form_that_java_prints(printed: str, version: str, major: int) -> None:
    assert version_of(printed) == version
    assert major_of(version) == major


@pytest.mark.parametrize("printed", ["", "Error: could not find libjvm.so\n", 'openjdk version "unknown"\n'])
def test_java_version_of_text_without_a_version_is_none(printed: str) -> None:
    assert version_of(printed) is None


def fake_java(folder: Path, printed: str, code: int = 0) -> Path:
    """Make a folder for JAVA_HOME whose `java` prints this text as its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    (folder / "printed").write_text(printed)
    program.write_text(f'#!/bin/sh\n/bin/cat "{folder / "printed"}" >&2\nexit {code}\n')
    program.chmod(0o755)
    return folder


def test_find_java_on_path_returns_its_program_and_version(tmp_path: Path) -> None:
    home = fake_java(tmp_path, 'openjdk version "21.0.4" 2024-07-16\n')
    found = find_java({"PATH": f"/nowhere:{home / 'bin'}"})
    assert (found.path, found.version, found.major) == (home / "bin" / "java", "21.0.4", 21)


def test_find_java_with_java_home_ignores_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_392"\n')
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.15" 2025-04-15\n')
    assert find_java({"PATH": str(old / "bin"), "JAVA_HOME": str(new)}).major == 17
    with pytest.raises(JavaTooOld) as refused:
        find_java({"PATH": str(new / "bin"), "JAVA_HOME": str(old)})
    assert f"needs Java 17 or newer, but {old}/bin/java (JAVA_HOME is {old}) is Java 1.8.0_392" in str(refused.value)


def test_find_java_without_any_java_raises_an_error_that_explains_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.client.spark.java._JAVA_FOLDER", tmp_path / "nothing")
    with pytest.raises(JavaMissing) as missing:
        find_java({"PATH": str(tmp_path)})
    assert "PATH has no java and JAVA_HOME is not set" in str(missing.value)
    assert "apt install openjdk-17-jre-headless" in str(missing.value)


def test_find_java_error_names_the_newest_suitable_java_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("11.0.22", "21.0.4", "17.0.15"):
        home = fake_java(tmp_path / version, f'openjdk version "{version}"\n')
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setattr("kraft.client.spark.java._JAVA_FOLDER", tmp_path)
    with pytest.raises(JavaTooOld) as refused:
        find_java({"PATH": str(tmp_path / "11.0.22" / "bin")})
    assert f"export JAVA_HOME={tmp_path / '21.0.4'}" in str(refused.value)


def test_find_java_with_java_home_of_an_empty_folder_names_the_missing_program(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing) as missing:
        find_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert f"JAVA_HOME is {tmp_path}, but there is no program {tmp_path}/bin/java" in str(missing.value)


@pytest.mark.parametrize(("printed", "code"), [("Error: could not find libjvm.so\n", 1), ("hello\n", 0)])
def test_find_java_error_for_a_program_that_is_not_java_shows_the_output_of_the_program(
    tmp_path: Path, printed: str, code: int
) -> None:
    with pytest.raises(JavaMissing) as missing:
        find_java({"JAVA_HOME": str(fake_java(tmp_path, printed, code))})
    assert printed.strip() in str(missing.value)


def test_find_java_rejects_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    home = fake_java(tmp_path, "")
    (home / "bin" / "java").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(JavaMissing, match="does not run"):
        find_java({"JAVA_HOME": str(home)})


def test_checked_package_ranges_equal_those_of_the_spark_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    ends = {name: f",<{needed.first_unfit}" if needed.first_unfit else "" for name, needed in NEEDED.items()}
    needed = [f"{name}>={needed.oldest}{ends[name]}" for name, needed in NEEDED.items()]
    assert declared[: len(NEEDED)] == needed, "others are for reports"


def test_installed_packages_of_this_environment_pass_the_check() -> None:
    check_packages()


FIT = [
    ("pyspark", "4.2.0"),
    ("pyspark", "4.3.1"),
    ("pyspark", "4.2.0.dev1"),
    ("pandas", "2.3.3"),
    ("pyarrow", "26.0.1"),
]


@pytest.mark.parametrize(("name", "found"), FIT)
def test_check_package_accepts_each_version_in_the_supported_range(name: str, found: str) -> None:
    check_package(name, found)


UNFIT = [("pyspark", "3.5.9"), ("pyspark", "4.1.4"), ("pyspark", "4.4.0"), ("pandas", "3.0.0"), ("pyarrow", "17.0.0")]


@pytest.mark.parametrize(("name", "found"), UNFIT)
def test_check_package_error_for_an_unsupported_version_names_found_and_supported_versions(
    name: str, found: str
) -> None:
    with pytest.raises(PackageUnfit) as unfit:
        check_package(name, found)
    assert f"{name} {found} is installed, but {NEEDED[name].oldest} or newer" in str(unfit.value)
    assert "pip install 'pykraft[spark]'" in str(unfit.value)


def test_check_package_error_for_a_missing_package_names_the_package_and_the_install_command() -> None:
    with pytest.raises(PackageMissing, match=r"pandas is not installed.*pip install 'pykraft\[spark\]'"):
        check_package("pandas", None)


START = """
from kraft.client.spark.session import start_session
try:
    start_session()
except Exception as failure:
    print(type(failure).__name__, failure)
"""


def started_with(tmp_path: Path, **environment: str) -> str:
    """Start a session in a new process with only these environment variables, and return the output."""
    folders = os.pathsep.join([str(tmp_path / "packages"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", START],
        env={"PYTHONPATH": folders, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_start_session_with_an_old_java_first_on_path_fails_before_spark_starts(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", 'openjdk version "11.0.22" 2024-01-16\n')
    printed = started_with(tmp_path, PATH=str(home / "bin"))
    assert printed.startswith(f"JavaTooOld Spark needs Java 17 or newer, but {home}/bin/java (the first of PATH) is")


def test_start_session_without_java_fails_before_spark_starts(tmp_path: Path) -> None:
    assert started_with(tmp_path, PATH=str(tmp_path)).startswith("JavaMissing Spark needs Java 17 or newer")


def test_start_session_with_pandas_3_fails_before_pandas_is_imported(tmp_path: Path) -> None:
    metadata = tmp_path / "packages" / "pandas-3.1.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: pandas\nVersion: 3.1.1\n")
    assert started_with(tmp_path).startswith("PackageUnfit pandas 3.1.1 is installed, but 2.2 or newer, older than 3")
