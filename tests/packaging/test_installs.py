"""Each way to install gives a working `kraft`, and adds nothing but `kraft` to the user's environment.

Everything is built and installed offline. The dependencies come from this environment's site-packages, so that our
packaging is tested and not an index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("broker", "client", "sim", "deploy")
SITE = next(path for path in map(Path, sys.path) if path.name == "site-packages")

pytestmark = pytest.mark.timeout(300)

SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Options for extracting the archive safely. Python before 3.11.4 has no filter; there the archive is trusted, because
this test has built it."""


USERS_TESTS = """
from confluent_kafka import Producer as ForeignProducer
from kraft.client import Producer


def test_real(kafka_cluster):
    producer = ForeignProducer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    producer.produce("orders", b"3 apples")
    assert producer.flush(20) == 0
    assert kafka_cluster.leader("orders") == 1


def test_simulated(simulated_cluster):
    async def main():
        async with Producer(bootstrap_servers=simulated_cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"3 apples")
            simulated_cluster.kill(simulated_cluster.leader("orders"))
            return await producer.send("orders", b"4 apples")

    assert simulated_cluster.run(main).offset == 1
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository that is like a clone: tracked and new files, with symbolic links."""
    target = tmp_path_factory.mktemp("source") / "pykraft"
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist", "build")
    shutil.copytree(ROOT, target, symlinks=True, ignore=ignored)
    return target


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., Path]:
    """Create a fresh virtual environment and pip install the given arguments. Return the environment's folder of
    programs."""

    def make(*what: str | Path) -> Path:
        venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
        programs = tmp_path / "venv" / "bin"
        library = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
        (library / "dependencies.pth").write_text(f"{dependencies(tmp_path)}\n")
        pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-deps", "--no-index"]
        run(*pip, "--no-build-isolation", *what, cwd=tmp_path)
        return programs

    return make


def dependencies(tmp_path: Path) -> Path:
    """Return this environment's packages, without our own editable install."""
    folder = tmp_path / "dependencies"
    folder.mkdir()
    for entry in SITE.iterdir():
        if "pykraft" not in entry.name and entry.name != "__pycache__":
            (folder / entry.name).symlink_to(entry)
    return folder


def require_working(programs: Path, tmp_path: Path) -> None:
    """Check that `kraft` runs, that every top-level part of the package can be imported, and that none can be imported
    without the prefix `kraft`."""
    outside = tmp_path / "outside"
    outside.mkdir()
    assert "Start a cluster on this machine" in run(programs / "kraft", "--help", cwd=outside)
    floors = "import kraft.broker, kraft.client, kraft.sim, kraft.deploy, kraft.wire, kraft.config"
    run(programs / "python", "-c", floors, cwd=outside)
    run(programs / "python", "-c", "from pyspark_kraft import DefaultSource", cwd=outside)
    for name in (*LINKED, "tests"):
        done = subprocess.run(
            [programs / "python", "-c", f"import {name}"], cwd=outside, capture_output=True, text=True
        )
        assert "No module named" in done.stderr, f"import {name} works from outside"


def build(source: Path, target: Path, kind: str) -> Path:
    run(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", target, source, cwd=source)
    return next(path for path in target.iterdir() if path.suffix in (".whl", ".gz"))


def test_a_wheel_contains_every_source_folder_once_and_below_the_folder_kraft(source: Path, tmp_path: Path) -> None:
    wheel = build(source, tmp_path / "dist", "wheel")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kraft", "pykraft", "pyspark_kraft.py"}
    assert "kraft/broker/node/serve.py" in names
    assert "kraft/deploy/cli/__init__.py" in names
    assert "kraft/py.typed" in names
    assert len(names) == len(set(names))


def test_a_wheel_built_with_a_c_compiler_contains_the_compiled_extension_and_its_source(
    source: Path, tmp_path: Path
) -> None:
    wheel = build(source, tmp_path / "dist", "wheel")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if "/record_walk" in name}
    assert "kraft/wire/record_walk.py" in found
    assert len(found) == (3 if shutil.which("cc") else 1)
    assert wheel.name.endswith("-none-any.whl") is (len(found) == 1)


@pytest.mark.slow
def test_a_wheel_built_without_a_c_compiler_works_with_python_code_only(
    source: Path, tmp_path: Path, environment: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/no/compiler")
    wheel = build(source, tmp_path / "dist", "wheel")
    assert wheel.name.endswith("-py3-none-any.whl")
    programs = environment(wheel)
    assert "record walk: interpreted" in run(programs / "kraft", "--version", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_an_editable_install_with_a_c_compiler_uses_the_compiled_extension(
    source: Path, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    programs = environment("--editable", source)
    assert "record walk: compiled" in run(programs / "kraft", "--version", cwd=tmp_path)


@pytest.mark.slow
def test_a_wheel_installs_a_working_kraft(source: Path, tmp_path: Path, environment: Callable[..., Path]) -> None:
    require_working(environment(build(source, tmp_path / "dist", "wheel")), tmp_path)


@pytest.mark.slow
def test_an_installed_wheel_provides_the_pytest_plugin(
    source: Path, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    """One test uses another project's client and a cluster of real processes, the other pykraft's client and a
    simulated cluster. pytest finds the plugin only by the wheel's entry point."""
    programs = environment(build(source, tmp_path / "dist", "wheel"))
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_shop.py").write_text(USERS_TESTS)
    printed = run(programs / "python", "-m", "pytest", "-p", "no:cacheprovider", "-v", "test_shop.py", cwd=tests)
    assert "2 passed" in printed


@pytest.mark.slow
def test_a_wheel_built_from_the_source_distribution_installs_a_working_kraft(
    source: Path, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    archive = build(source, tmp_path / "sdist", "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", **SAFELY)
    unpacked = next((tmp_path / "unpacked").iterdir())
    assert (unpacked / "Makefile").exists()
    require_working(environment(build(unpacked, tmp_path / "dist", "wheel")), tmp_path)


@pytest.mark.slow
def test_an_editable_install_gives_a_working_kraft(
    source: Path, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    require_working(environment("--editable", source), tmp_path)


@pytest.mark.slow
def test_an_install_from_a_git_checkout_gives_a_working_kraft(
    source: Path, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(source, checkout, symlinks=True)
    run("git", "init", "--quiet", cwd=checkout)
    run("git", "add", "--all", cwd=checkout)
    author = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    run("git", *author, "commit", "--quiet", "--message", "all", cwd=checkout)
    require_working(environment(f"pykraft @ git+file://{checkout}"), tmp_path)


def test_building_a_checkout_without_symbolic_links_fails_with_one_clear_error(source: Path, tmp_path: Path) -> None:
    """With symbolic links disabled, git writes the target of a link into a file as text."""
    broken = tmp_path / "broken"
    shutil.copytree(source, broken, symlinks=True)
    for name in LINKED:
        (broken / "kraft" / name).unlink()
        (broken / "kraft" / name).write_text(f"../{name}")
    done = subprocess.run(["make", "setup"], cwd=broken, capture_output=True, text=True)
    assert done.returncode != 0
    assert "This checkout has no symbolic links" in done.stdout + done.stderr
    imported = subprocess.run([sys.executable, "-c", "import kraft.broker"], cwd=broken, capture_output=True, text=True)
    assert "Clone with 'git -c core.symlinks=true clone'" in imported.stderr
