"""Move source files and tests to the rooms that `move.txt` names, and rewrite everything that refers to them.

`python -m tests.architecture.move` runs once on a clean tree: it moves the files, rewrites imports, dotted names and
paths in every tracked text file, makes new packages, applies the literal edits of `move_edits.txt`, and formats.
`--check` reads the table alone and reports what is wrong with it. The program, its table and its edits are removed from
the repository when the move is done.

The table has one row per file, `old new` or `old =` (it stays); a row whose paths end with `/` moves a whole folder. A
path that does not exist is an error, and so is a tracked file without a row in a folder that has rows for its files.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/architecture/"
TABLE, PACKAGES, EDITS = f"{HERE}move.txt", f"{HERE}move_packages.txt", f"{HERE}move_edits.txt"
OURS = (f"{HERE}move.py", TABLE, PACKAGES, EDITS)
LINKED = ("broker", "client", "sim", "deploy")
TOPS = ("kraft", *LINKED, "tests")
DIGESTS = "tests/bugbank/digests.json"

DOT = "\0"
"""Stands for the dots of a name that is new already, so that it is not taken for an old one."""

DOTTED = re.compile(r"(?<![\w./-])(?:kraft|tests)(?:\.\w+)+")
SHORT = re.compile(rf"(?<![\w./-])(?:{'|'.join(LINKED)})(?:\.\w+)+")
"""Without `kraft.`, as texts and the Makefile have it; in code it would be the attribute of a variable."""

FROM = re.compile(r"\bfrom ((?:kraft|tests)(?:\.\w+)*) import (\w+(?:, \w+)*)")
"""An import in a text: in a string, or on a page."""

PATH = re.compile(rf"(?<![\w.-])(?<!\w/)(?:{'|'.join(TOPS)})(?:/[\w.-]*[\w-])+/?")
PIECES = re.compile(r'"[\w.]+"(?: / "[\w.]+")+')
PARENTS = re.compile(r"(Path\(__file__\)(?:\.resolve\(\))?\.parents\[)(\d+)(\])")
LINK = re.compile(r"\[([\w/]+\.py)\]\(([\w./-]+\.py)\)")
LINE_MAX = 120
BARE = re.compile(r"`([a-z][a-z_0-9]+)`")


class MoveError(Exception):
    """The table, the edits or a file is not as the move needs it."""


@dataclass(frozen=True, slots=True)
class Table:
    files: dict[str, str]
    """Old path → new path of every file that moves."""

    folders: dict[str, str]
    """Old folder → new folder, without the final slash, of every folder that moves whole."""

    modules: dict[str, str]
    """Old dotted name → new dotted name of every Python module that moves."""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tracked_files() -> list[str]:
    return git("ls-files").splitlines()


def module_of(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    if parts[0] in LINKED:
        parts = ("kraft", *parts)
    return ".".join(parts).removesuffix(".__init__")


def rows_of(name: str) -> Iterator[tuple[str, str]]:
    for line in (ROOT / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            old, new = line.split()
            yield old, old if new == "=" else new


def read_table() -> Table:
    """The table of `move.txt`, checked against the tracked files; every fault is reported at once."""
    tracked = set(tracked_files())
    faults: list[str] = []
    stated: dict[str, str] = {}
    folders: dict[str, str] = {}
    for old, new in rows_of(TABLE):
        if old in stated or old in folders:
            faults.append(f"two rows for {old}")
        if old.endswith("/"):
            folders[old] = new
            if not any(path.startswith(old) for path in tracked):
                faults.append(f"no such folder: {old}")
        else:
            stated[old] = new
            if old not in tracked:
                faults.append(f"no such file: {old}")
    listed = {str(PurePosixPath(old).parent) for old in stated} - {old.rstrip("/") for old in folders}
    for path in sorted(tracked):
        if str(PurePosixPath(path).parent) in listed and path not in stated:
            faults.append(f"no row for {path}")
    for path in sorted(tracked - stated.keys()):
        for old in sorted(folders, key=len, reverse=True):
            if path.startswith(old):
                stated[path] = folders[old] + path.removeprefix(old)
                break
    files = {old: new for old, new in stated.items() if old != new}
    targets: dict[str, str] = {}
    for old, new in stated.items():
        if new in targets:
            faults.append(f"both {targets[new]} and {old} move to {new}")
        targets[new] = old
    for path in sorted((tracked - files.keys()) & set(files.values())):
        faults.append(f"{path} exists and does not move")
    for path in sorted(files.keys() & set(files.values())):
        faults.append(f"{path} is an old and a new path: references to it would be rewritten twice")
    folders_after = {str(parent) for path in targets for parent in PurePosixPath(path).parents}
    for path in targets:
        if path.endswith(".py") and path.removesuffix(".py") in folders_after:
            faults.append(f"{path} has the name of a folder beside it")
    if faults:
        raise MoveError("\n".join(faults))
    modules = {module_of(old): module_of(new) for old, new in files.items() if old.endswith(".py")}
    modules = {old: new for old, new in modules.items() if old != new}
    plain = {old.rstrip("/"): new.rstrip("/") for old, new in folders.items() if old != new}
    return Table(files, plain, modules)


# Names


def moved_name(dotted: str, table: Table) -> str:
    """A dotted name after the move: its longest part that is a module that moves is replaced."""
    prefix = "" if dotted.startswith(("kraft.", "tests.")) else "kraft."
    parts = (prefix + dotted).split(".")
    for count in range(len(parts), 0, -1):
        new = table.modules.get(".".join(parts[:count]))
        if new is not None:
            return ".".join([new, *parts[count:]]).removeprefix(prefix)
    return dotted


def moved_path(path: str, table: Table) -> str:
    """A path in a text after the move; a file may be named without its suffix, and through its link below `kraft`."""
    link = "kraft/" if path.startswith(tuple(f"kraft/{name}/" for name in LINKED)) else ""
    plain = path.removeprefix(link).rstrip("/")
    slash = "/" if path.endswith("/") else ""
    for suffix in ("", ".py"):
        new = table.files.get(plain + suffix)
        if new is not None:
            return link + new.removesuffix(suffix).removesuffix("/__init__") + slash
    parents = PurePosixPath(plain)
    for folder in (parents, *parents.parents):
        new = table.folders.get(str(folder))
        if new is not None:
            return link + new + plain.removeprefix(str(folder)) + slash
    return path


def moved_pieces(text: str, table: Table) -> str:
    """`"kraft" / "wire" / "a.py"` after the move."""
    pieces = text.replace('"', "").split(" / ")
    if pieces[0] not in TOPS:
        return text
    new = moved_path("/".join(pieces), table)
    return " / ".join(f'"{piece}"' for piece in new.split("/"))


# Python files


def absolute_base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parents = parts[: len(parts) - node.level + is_package]
    return ".".join([*parents, *([node.module] if node.module else [])])


def rewrite_imports(source: str, path: str, table: Table) -> str:
    """`from folder import module` for modules that move: the folder changes, and where the module's own name does, the
    old one stays as its name in this file. A relative import becomes absolute when anything in it moves."""
    lines = source.splitlines(keepends=True)
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(statements, key=lambda node: node.lineno, reverse=True):
        base = absolute_base(node, module_of(path), path.endswith("/__init__.py"))
        moves = {alias.name: table.modules.get(f"{base}.{alias.name}") for alias in node.names}
        if not any(moves.values()) and not (node.level and (path in table.files or base in table.modules)):
            continue
        whole = "".join(lines[node.lineno - 1 : node.end_lineno])
        note = whole.partition("#")[2]
        if "\n" in note.strip():
            raise MoveError(f"{path}:{node.lineno}: a comment inside of an import")
        places: dict[str, list[str]] = {}
        for alias in node.names:
            target = moves[alias.name]
            if target is None:
                name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                places.setdefault(table.modules.get(base, base), []).append(name)
                continue
            folder, _, name = target.rpartition(".")
            known = alias.asname or alias.name
            places.setdefault(folder, []).append(name if name == known else f"{name} as {known}")
        indent = " " * node.col_offset
        mark = f"  # {note.strip()}" if note.strip() else ""
        made = [
            f"{indent}from {place.replace('.', DOT)} import {', '.join(names)}{mark}\n"
            for place, names in places.items()
        ]
        lines[node.lineno - 1 : node.end_lineno] = ["".join(made)]
    return "".join(lines)


def quoted_import(match: re.Match[str], table: Table) -> str:
    base, names = match[1], match[2].split(", ")
    targets = [table.modules.get(f"{base}.{name}") for name in names]
    if None in targets:
        return match[0]
    folders = {target.rpartition(".")[0] for target in targets if target}
    stems = [target.rpartition(".")[2] for target in targets if target]
    if len(folders) > 1:
        raise MoveError(f"two statements are needed for the quoted {match[0]!r}")
    shown = [stem if stem == name else f"{stem} as {name}" for stem, name in zip(stems, names, strict=True)]
    return f"from {folders.pop().replace('.', DOT)} import {', '.join(shown)}"


def rewrite_parents(source: str, path: str, new: str) -> str:
    """`Path(__file__).parents[2]` is another folder when the file moves to another depth."""
    deeper = new.count("/") - path.count("/")
    return PARENTS.sub(lambda match: f"{match[1]}{int(match[2]) + deeper}{match[3]}", source)


def rewrite_bare_names(source: str, path: str, table: Table) -> str:
    """`` `old_name` `` in a text about its neighbour, when the neighbour has got another name. A word that is also a
    name in the code of the file means that, and stays."""
    folder = str(PurePosixPath(path).parent)
    in_code = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (getattr(node, field, None) for field in ("id", "attr", "arg", "name"))
        if isinstance(name, str) and not isinstance(node, ast.alias)
    }
    renamed = {
        PurePosixPath(old).stem: PurePosixPath(new).stem
        for old, new in table.files.items()
        if str(PurePosixPath(old).parent) == folder and old.endswith(".py")
    }

    def replaced(match: re.Match[str]) -> str:
        new = renamed.get(match[1], "__init__")
        return match[0] if "_" not in match[1] or new == "__init__" or match[1] in in_code else f"`{new}`"

    return BARE.sub(replaced, source)


def wrap_texts(source: str) -> str:
    """Docstrings and comments whose lines got too long: words go on to the next line, or to a new one."""
    lines = source.splitlines()
    in_text = lines_of_texts(source)
    number = 0
    while number < len(lines):
        line = lines[number]
        if len(line) > LINE_MAX and number in in_text:
            mark = re.match(r"\s*(#:? )?", line)
            start = mark[0] if mark else ""
            cut = line.rfind(" ", len(start), LINE_MAX + 1)
            if cut > len(start):
                rest = line[cut + 1 :]
                lines[number] = line[:cut]
                after = lines[number + 1] if number + 1 < len(lines) else ""
                goes_on = number + 1 in in_text and re.match(rf"{re.escape(start)}[\w`(\[*]", after)
                if goes_on and not rest.endswith('"""'):
                    lines[number + 1] = f"{start}{rest} {after[len(start) :]}"
                else:
                    lines.insert(number + 1, start + rest)
                    in_text = {at if at <= number else at + 1 for at in in_text} | {number + 1}
        number += 1
    return "\n".join(lines) + "\n"


def lines_of_texts(source: str) -> set[int]:
    """Numbers, from 0, of the lines that a docstring or a comment of their own fills."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type == tokenize.STRING
            and token.string.startswith('"""')
            and not token.line[: token.start[1]].strip()
        ):
            found |= set(range(token.start[0] - 1, token.end[0]))
        elif token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            found.add(token.start[0] - 1)
    return found


def moved_link(match: re.Match[str], table: Table) -> str:
    """`[old_name.py](../folder/old_name.py)` on a page: the text of the link follows its target."""
    shown, target = match[1], match[2]
    up = re.match(r"(?:\.\./)*", target)
    start = up[0] if up else ""
    new = start + moved_path(target.removeprefix(start), table)
    if target.endswith(shown) and new != target:
        base = target.removesuffix(shown)
        shown = new.removeprefix(base) if "/" in shown and new.startswith(base) else new.rpartition("/")[2]
    return f"[{shown}]({new})"


def rewrite(text: str, path: str, table: Table) -> str:
    before = text
    if path.endswith(".py"):
        text = PIECES.sub(lambda match: moved_pieces(match[0], table), text)
        text = rewrite_bare_names(text, path, table)
        if path in table.files:
            text = rewrite_parents(text, path, table.files[path])
        text = rewrite_imports(text, path, table)
    else:
        text = SHORT.sub(lambda match: moved_name(match[0], table), text)
    text = FROM.sub(lambda match: quoted_import(match, table), text)
    text = DOTTED.sub(lambda match: moved_name(match[0], table), text).replace(DOT, ".")
    if path.endswith(".md"):
        text = LINK.sub(lambda match: moved_link(match, table), text)
    text = PATH.sub(lambda match: moved_path(match[0], table), text)
    return wrap_texts(text) if text != before and path.endswith(".py") else text


# The whole tree


def read_text(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


def change_file(path: str, change: Callable[[str], str]) -> None:
    text = read_text(ROOT / path)
    if text is None:
        return
    changed = change(text)
    if changed != text:
        (ROOT / path).write_text(changed)


def make_packages() -> None:
    """`move_packages.txt`: a line with a path, then the indented docstring of the new package."""
    docstrings: dict[str, list[str]] = {}
    current: list[str] = []
    for line in (ROOT / PACKAGES).read_text().splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif line.strip() and not line.startswith("#"):
            current = docstrings.setdefault(line.strip(), [])
    for path, lines in docstrings.items():
        if (ROOT / path).exists():
            raise MoveError(f"{path} exists")
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines)
        (ROOT / path).write_text(f'"""{text}"""\n')


def apply_edits() -> None:
    """`move_edits.txt`: blocks of a path, the text that is there (`-` lines) and what replaces it (`+` lines)."""
    faults = []
    for block in re.split(r"^@@ ", (ROOT / EDITS).read_text(), flags=re.MULTILINE)[1:]:
        head, *lines = block.splitlines()
        old = "\n".join(line[1:] for line in lines if line.startswith("-"))
        new = "\n".join(line[1:] for line in lines if line.startswith("+"))
        path = ROOT / head.strip()
        text = path.read_text() if path.is_file() else ""
        if text.count(old) != 1:
            faults.append(f"{head.strip()}: {text.count(old)} times: {old[:100]!r}")
        else:
            path.write_text(text.replace(old, new))
    if faults:
        raise MoveError("edits that do not apply:\n" + "\n".join(faults))


def remains(table: Table) -> Iterator[str]:
    """References to places that are no more: paths that do not exist, names of modules that moved."""
    gone = {str(PurePosixPath(old).parent) for old in table.files}
    gone = {folder for folder in gone if not (ROOT / folder).is_dir()}
    folders = "|".join(re.escape(folder) for folder in sorted(gone, key=len, reverse=True))
    packages = "|".join(re.escape(folder.replace("/", ".")) for folder in sorted(gone, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w/])(?:{folders})\b|(?<![\w.])(?:kraft\.)?(?:{packages})\b")
    for path in tracked_files():
        text = None if path in OURS else read_text(ROOT / path)
        for number, line in enumerate((text or "").splitlines(), 1):
            broken = [found for found in PATH.findall(line) if found in table.files and not (ROOT / found).exists()]
            if pattern.search(line) or broken:
                yield f"{path}:{number}: {line.strip()[:150]}"


def move(table: Table) -> None:
    for new in table.files.values():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
    rewritten = [path for path in tracked_files() if path not in OURS]
    for path in rewritten:
        change_file(path, partial(rewrite, path=path, table=table))
    for old in table.files:  # by a third name, because one file may take the place of another
        git("mv", old, f"{old}.moving")
    for old, new in table.files.items():
        git("mv", f"{old}.moving", new)
    for folder in sorted({ROOT / old for old in table.files}, key=lambda path: -len(path.parts)):
        remove_empty(folder.parent)
    make_packages()
    apply_edits()
    if (ROOT / DIGESTS).is_file():
        change_file(DIGESTS, lambda text: json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n")
    git("add", "-A")
    for command in (["check", "--select", "I", "--fix", "--quiet", "."], ["format", "--quiet", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=ROOT, check=True)
    git("add", "-A")


def remove_empty(folder: Path) -> None:
    """Remove a folder that holds nothing any more but compiled files, and its parents likewise."""
    while folder != ROOT and folder.is_dir():
        kept = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        if kept:
            return
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        folder = folder.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only report what is wrong with the table")
    options = parser.parse_args()
    try:
        table = read_table()
        if options.check:
            print(f"{len(table.files)} files move")
            return
        if git("status", "--porcelain", "--untracked-files=no"):
            raise MoveError("the tree has changes: commit them first")
        move(table)
    except MoveError as fault:
        sys.exit(str(fault))
    for line in remains(table):
        print(line)


if __name__ == "__main__":
    main()
