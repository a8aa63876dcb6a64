"""Commit subjects have one form: the rules, the hook that `make setup` installs, and the check of new commits."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.commit_subjects import known_areas, new_commits, problems, problems_of_message

ROOT = Path(__file__).resolve().parents[2]
AREAS = frozenset({"cli", "docs", "raft", "sim", "storage"})
GOOD = "storage: truncate the index with its log"
NEWER, OLDER = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"


def git(folder: Path, *arguments: str, date: str = NEWER) -> subprocess.CompletedProcess[str]:
    """Run git without the settings of this machine's user."""
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    command = ["git", *settings, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def commit(folder: Path, subject: str, date: str = NEWER) -> str:
    """Make an empty commit and return its id."""
    done = git(folder, "commit", "--allow-empty", "-m", subject, date=date)
    assert done.returncode == 0, done.stderr
    return git(folder, "rev-parse", "HEAD").stdout.strip()


def make_repository(folder: Path) -> Path:
    """Make a clone with what the hook needs: the Makefile, the hook and the rules."""
    for name in ("Makefile", ".githooks/commit-msg", "tests/architecture/commit_subjects.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "storage").mkdir()
    (folder / "storage" / "log.py").touch()
    assert git(folder, "init", "-q", "-b", "main").returncode == 0
    git(folder, "add", "-A")
    return folder


def install_hooks(folder: Path) -> None:
    """Run the part of `make setup` that installs the hook."""
    done = subprocess.run(["make", "hooks"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "subject",
    [
        GOOD,
        "raft, storage: remove names that only their own tests used",
        "docs: list every API (K6)",
        "readme: show the main command first",
        "Merge branch 'main' into language",
        'Revert "storage: truncate the index with its log"',
        "cli: need fewer round trips for kraft groups",
        "storage: append in one write",
    ],
)
def test_commit_check_accepts_a_subject_with_an_area_and_an_imperative(subject: str) -> None:
    assert list(problems(subject, AREAS | {"readme"})) == []


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("truncate the index with its log", "form"),
        ("storage:truncate the index", "form"),
        ("storage: ", "form"),
        ("attic: remove the index", "not the name of a folder"),
        ("storage: truncate the index " + "x" * 60, "at most 72"),
        ("storage: truncates the index", "imperative"),
        ("storage: truncated the index", "imperative"),
        ("storage: truncating the index", "imperative"),
        ("storage: the index is truncated", "imperative"),
        ("storage: what was written is read", "imperative"),
        ("storage: text of the error about a full disk", "imperative"),
        ("storage: Truncate the index", "lower case"),
        ("storage: truncate the index.", "full stop"),
        ("sim: plant B41 again", "code"),
        ("Merge branch 'main' of /home/user/pykraft", "path"),
        ("Merge branch '../other/main'", "path"),
        ("Merge branch 'main' of https://example.org/pykraft", "path"),
    ],
)
def test_checks_catch_a_bad_commit_subject(subject: str, problem: str) -> None:
    assert any(problem in found for found in problems(subject, AREAS))


def test_commit_check_ignores_the_comment_lines_of_git_in_a_message() -> None:
    assert problems_of_message(f"# a comment\n\n{GOOD}\n\nWhy.\n# Changes:\n", AREAS) == []
    assert problems_of_message(f"{GOOD}\nWhy.\n", AREAS) == ["the second line must be empty"]
    assert problems_of_message("fixup! whatever it was\n", AREAS) == []


def test_commit_hook_refuses_a_bad_subject_and_accepts_a_good_one(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    install_hooks(repository)
    refused = git(repository, "commit", "-m", "what was written")
    assert refused.returncode != 0
    assert "The commit's subject is refused" in refused.stderr
    assert git(repository, "commit", "-m", GOOD).returncode == 0
    assert git(repository, "log", "--format=%s").stdout.split("\n")[:-1] == [GOOD]


def test_installing_the_commit_hook_keeps_hooks_of_the_user(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    git(repository, "config", "core.hooksPath", "mine")
    install_hooks(repository)
    assert git(repository, "config", "core.hooksPath").stdout == "mine\n"


def test_installing_the_commit_hook_does_nothing_outside_of_a_git_clone(tmp_path: Path) -> None:
    unpacked = make_repository(tmp_path / "outer") / "pykraft-0.1.0"
    unpacked.mkdir()
    shutil.copy(ROOT / "Makefile", unpacked)
    install_hooks(unpacked)
    assert git(tmp_path / "outer", "config", "core.hooksPath").stdout == ""
    shutil.rmtree(tmp_path / "outer" / ".git")
    install_hooks(unpacked)


def test_commit_check_covers_only_commits_after_the_base_commit(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    commit(repository, "an old subject", OLDER)
    base = commit(repository, "the base", OLDER)
    commit(repository, GOOD)
    found = new_commits(repository, base)
    assert found is not None
    assert [each.subject for each in found] == [GOOD]


def test_commit_check_finds_new_commits_in_a_shallow_clone_without_the_base_commit(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "full")
    base = commit(repository, "the base", OLDER)
    base_time = int(git(repository, "log", "-1", "--format=%ct").stdout)
    commit(repository, GOOD)
    commit(repository, "docs: name every option")
    shallow = tmp_path / "shallow"
    done = git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "main", f"file://{repository}", str(shallow))
    assert done.returncode == 0, done.stderr
    found = new_commits(shallow, base, base_time)
    assert found is not None
    assert [each.subject for each in found] == ["docs: name every option"]
    assert new_commits(shallow, base, found[0].time) == []


def test_commit_check_checks_nothing_in_a_source_tree_without_git_history(tmp_path: Path) -> None:
    assert new_commits(tmp_path) is None
    assert known_areas(tmp_path) is None


def test_areas_of_commit_subjects_are_the_names_of_folders_that_git_tracks(tmp_path: Path) -> None:
    areas = known_areas(make_repository(tmp_path))
    assert areas is not None
    assert {"storage", "tests", "architecture", "ci"} <= areas
    assert "no_such_folder" not in areas


def test_new_commits_of_this_repository_have_good_subjects() -> None:
    areas = known_areas()
    bad = [(each.subject, problem) for each in new_commits() or () for problem in problems(each.subject, areas)]
    assert bad == []
