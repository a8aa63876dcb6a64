"""The form of commit subjects: `area: what changed`, at most 72 characters, imperative.

`python -m tests.architecture.commit_subjects` checks the commits after `BASE`, and `--message FILE` checks one message
that is about to be committed (the hook .githooks/commit-msg). Only the standard library is needed for both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BASE = "5cdf362a3a22d00432d8cd17758700bb2bfd8e26"
BASE_TIME = 1795783282
"""Time of the commit `BASE` in seconds since 1970. Neither `BASE` nor earlier commits are checked. In a shallow clone
without `BASE`, the time decides which commits are checked."""

LENGTH_MAX = 72
AREAS_BESIDE_FOLDERS = frozenset({"build", "changelog", "ci", "contributing", "make", "readme", "release"})

_FORM = re.compile(r"(?P<areas>[^\s:,]+(?:, [^\s:,]+)*): (?P<change>\S.*)")
_MERGE = re.compile(r"Merge (branch|tag|commit|remote-tracking branch) ")
_PATH = re.compile(r"(^|[\s'\"])(\.{0,2}/|~|\w+://|\w+@)")
_CODE = re.compile(r"\b([RMDTKGCLN][1-9]\d?b?|[BX]\d{2}b?)\b")
_DRAFT = re.compile(r"(fixup|squash|amend)! ")

_NOT_IMPERATIVE = re.compile(
    r"(?!(?:bleed|embed|exceed|feed|need|proceed|seed|shed|speed|bring|ping|string)$)\w+(?:ed|ing)$"
)
_PLURAL_OR_THIRD_PERSON = re.compile(r"(?!(?:alias|bias|focus)$)\w+[^su]s$")
_NO_VERB = re.compile(
    r"(?:an?|all|and|any|both|each|every|everybody|everything|fewer|for|from|how|in|its?|large|long|longer|more|new|newer|no"
    r"|nobody|not|nothing|now|of|older?|on|one|only|other|our|plain|small|some|somebody|that|the|their|there|they|this|to"
    r"|what|when|where|whether|which|who|whoever|why|with|\w+ of) ",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to be checked."""

    id: str
    time: int
    subject: str


def problems(subject: str, areas: frozenset[str] | None = None) -> Iterator[str]:
    """Yield each reason why a subject is refused. The area is checked only if `areas` is given."""
    if len(subject) > LENGTH_MAX:
        yield f"it has {len(subject)} characters; at most {LENGTH_MAX} are allowed"
    if _MERGE.match(subject):
        if _PATH.search(subject):
            yield "a merge must not name a path or an address; name the branch only"
        return
    form = _FORM.fullmatch(subject.removeprefix('Revert "').removesuffix('"'))
    if form is None:
        yield "it must have the form `area: what changed`"
        return
    for area in form["areas"].split(", "):
        if areas is not None and area not in areas:
            yield f"`{area}` is not the name of a folder, such as raft, storage, fetch, cli, sim or docs"
    yield from _problems_of_change(form["change"])


def _problems_of_change(change: str) -> Iterator[str]:
    word = change.split()[0]
    if _NO_VERB.match(f"{change} ") or _NOT_IMPERATIVE.fullmatch(word) or _PLURAL_OR_THIRD_PERSON.fullmatch(word):
        yield f"begin with a verb in the imperative (add, fix, remove …) instead of `{word}`"
    elif word[0].isupper():
        yield f"begin with a verb in lower case instead of `{word}`"
    if change.endswith("."):
        yield "it must not end with a full stop"
    if _CODE.search(re.sub(r"\([^)]*\)", "", change)):
        yield "a code of a check or a bug may only follow in brackets; say in words what it means"


def problems_of_message(message: str, areas: frozenset[str] | None = None) -> list[str]:
    """Return why a whole message is refused. Comments of git and unfinished commits (fixup!) are ignored."""
    lines = [line for line in message.partition("\n# ---")[0].splitlines() if not line.startswith("#")]
    while lines and not lines[0].strip():
        del lines[0]
    if not lines:
        return []  # git itself refuses an empty message
    if _DRAFT.match(lines[0]):
        return []
    found = list(problems(lines[0].rstrip(), areas))
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line must be empty")
    return found


def known_areas(root: Path = ROOT) -> frozenset[str] | None:
    """Return the names of all folders that git tracks, and a few more areas. None if git cannot tell."""
    listed = _git(root, "ls-files", "-z")
    if listed is None:
        return None
    folders = {part for name in listed.split("\0") for part in Path(name).parts[:-1]}
    return frozenset(folders | AREAS_BESIDE_FOLDERS)


def new_commits(root: Path = ROOT, base: str = BASE, base_time: int = BASE_TIME) -> list[Commit] | None:
    """Return the commits after the base, newest first. None if there is no history here.

    A shallow clone may lack the base; then the commits of the clone that are newer than the base are returned."""
    has_base = _git(root, "cat-file", "-e", f"{base}^{{commit}}") is not None
    listed = _git(root, "log", "-z", "--format=%H %ct %s", "HEAD", *([f"^{base}"] if has_base else []))
    if listed is None:
        return None
    commits = [line.split(" ", 2) for line in listed.split("\0") if line]
    found = [Commit(id, int(time), subject) for id, time, subject in commits]
    return found if has_base else [commit for commit in found if commit.time > base_time]


def _git(root: Path, *arguments: str) -> str | None:
    """Run git in the top folder of a clone. None if git fails, or if the folder is not the top of a clone."""
    try:
        top = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=root, capture_output=True, text=True)
        if top.returncode or Path(top.stdout.strip()) != root.resolve():
            return None
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


def _check_message(path: Path) -> int:
    found = problems_of_message(path.read_text(errors="replace"), known_areas())
    for problem in found:
        print(f"The commit's subject is refused: {problem}.", file=sys.stderr)
    if found:
        print("Example: `storage: truncate the index with its log`. See CONTRIBUTING.md.", file=sys.stderr)
    return 1 if found else 0


def _check_new_commits() -> int:
    commits = new_commits()
    if commits is None:
        print("commit subjects: not checked, because there is no git history here")
        return 0
    areas = known_areas()
    bad = [(commit, problem) for commit in commits for problem in problems(commit.subject, areas)]
    for commit, problem in bad:
        print(f"{commit.id[:10]} {commit.subject}\n    {problem}", file=sys.stderr)
    print(f"commit subjects: {len(commits)} new commits, {len({commit.id for commit, _ in bad})} of them refused")
    return 1 if bad else 0


def main() -> int:
    """Check one message or the new commits, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check the subjects of commits.")
    parser.add_argument("--message", type=Path, metavar="FILE", help="check the message in this file instead")
    message: Path | None = parser.parse_args().message
    return _check_new_commits() if message is None else _check_message(message)


if __name__ == "__main__":
    sys.exit(main())
