"""Report how well the source is divided: folders with too many files, and import cycles.

`python -m tests.architecture.rooms` prints each folder with more than `FILES_MAX` source files, then each import cycle,
the largest first. Imports inside functions and under `TYPE_CHECKING` count, because a reader follows them too.
`test_rooms.py` checks the figures against the limits here.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("broker", "client", "sim", "deploy")
"""Folders beside `kraft` that are its subpackages through symbolic links."""

FILES_MAX = 30
CYCLE_MAX = 6
"""Maximum size of an import cycle, in files. Lower this limit when the largest cycle gets smaller; never raise it."""

Graph = Mapping[str, frozenset[str]]
"""Each module with the modules that it imports."""


def source_files(root: Path = ROOT) -> Iterator[Path]:
    """Return every source file of the product, relative to `root`, once each."""
    for folder in ("kraft", *LINKED):
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root)
            if not (folder == "kraft" and relative.parts[1] in LINKED):
                yield relative


def files_of_tests(root: Path = ROOT) -> Iterator[Path]:
    """Return every Python file below `tests`, relative to `root`."""
    for path in sorted((root / "tests").rglob("*.py")):
        yield path.relative_to(root)


def module_name(path: Path) -> str:
    """Return the name by which other modules import this file."""
    parts = path.with_suffix("").parts
    if parts[0] in LINKED:
        parts = ("kraft", *parts)
    return ".".join(parts).removesuffix(".__init__")


def crowded_folders(files: Iterable[Path], files_max: int = FILES_MAX) -> list[tuple[int, Path]]:
    """Return folders with more than `files_max` files directly in them, with their counts, the largest first."""
    counts = Counter(path.parent for path in files)
    return sorted(((count, folder) for folder, count in counts.items() if count > files_max), reverse=True)


def imported_names(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Return names that might be modules. For `from a import b` these are both `a.b` and `a`, in case `b` is not a
    module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            parents = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_graph(root: Path = ROOT) -> Graph:
    files = {module_name(path): path for path in source_files(root)}

    def nearest_module(name: str) -> str | None:
        while name and name not in files:
            name = name.rpartition(".")[0]
        return name or None

    graph: dict[str, frozenset[str]] = {}
    for module, path in files.items():
        names = imported_names((root / path).read_text(), module, path.name == "__init__.py")
        found = {nearest_module(name) for name in names if name.startswith("kraft")}
        graph[module] = frozenset(name for name in found if name is not None and name != module)
    return graph


def import_cycles(graph: Graph) -> list[list[str]]:
    """Return sets of modules that all import each other, directly or through others; the largest first.

    These are the strongly connected components with more than one module (Tarjan 1972), found without recursion."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    cycles: list[list[str]] = []
    for start in sorted(graph):
        if start in index:
            continue
        path = [(start, iter(sorted(graph[start])))]
        while path:
            module, imports = path[-1]
            if module not in index:
                index[module] = lowest[module] = len(index)
                stack.append(module)
                on_stack.add(module)
            for imported in imports:
                if imported not in index:
                    path.append((imported, iter(sorted(graph[imported]))))
                    break
                if imported in on_stack:
                    lowest[module] = min(lowest[module], index[imported])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[module])
                if lowest[module] == index[module]:
                    end = stack.index(module)
                    component = stack[end:]
                    del stack[end:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        cycles.append(sorted(component))
    return sorted(cycles, key=lambda cycle: (-len(cycle), cycle))


def main() -> None:
    crowded = crowded_folders([*source_files(), *files_of_tests()])
    print(f"folders with more than {FILES_MAX} source files: {len(crowded)}")
    for count, folder in crowded:
        print(f"  {count:4} {folder}")
    cycles = import_cycles(import_graph())
    print(
        f"import cycles, type-only imports included: {len(cycles)}; largest: {max(map(len, cycles), default=0)} files"
    )
    for cycle in cycles:
        print(f"  {len(cycle):4} {' '.join(name.removeprefix('kraft.') for name in cycle)}")


if __name__ == "__main__":
    main()
