"""Compiled methods of dataclasses and of attrs' classes (trio's), remembered between runs.

Both write the methods of each class as text and have Python compile it, at every start: for the 300 classes of a node
that is a fifth of the time to import them. While a `CompiledCache` is active, the compiled form is looked up by
that very text in a file of this user's cache folder, as Python itself does for modules. A file that cannot be read or
does not match its checksum is ignored; what is missing is compiled and, if the folder can be written, remembered.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import marshal
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import attr._make

CHECKSUM_BYTES = 32
PER_PROCESS = "def __hash__"
"""attrs writes a number of this process's hash seed into this method: such a text never comes again."""


class CompiledCache:
    """The compiled form of texts, in memory and in the file at `path` (None: in memory alone)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else _read(path)

    def forget(self) -> None:
        """Give the memory back."""
        self._known = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Compile the methods of classes through this cache, and write down what was new."""
        known, count = self._known, len(self._known)

        def execute(text: str, namespace: dict[str, Any] | None = None, names: Mapping[str, Any] | None = None) -> None:
            code = known.get(text)
            if code is None:
                code = known[text] = compile(text, "<dataclass>", "exec")
            exec(code, namespace, names)

        def compiled(text: str, filename: str, mode: str) -> CodeType:
            code = known.get(text)
            if code is None:
                code = compile(text, filename, mode)
                if PER_PROCESS not in text:
                    known[text] = code
            return code

        # The modules call the built-ins `exec` and `compile`; a global of that name takes its place.
        dataclasses.exec = execute  # type: ignore[attr-defined]
        attr._make.compile = compiled  # type: ignore[attr-defined]
        try:
            yield
        finally:
            del dataclasses.exec  # type: ignore[attr-defined]
            del attr._make.compile  # type: ignore[attr-defined]
        if self._path is not None and len(known) > count:
            _write(self._path, known)


def cache_path() -> Path | None:
    """The file of this Python version: its bytecode is its own. None for a user without a home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:
        return None
    return Path(base) / "kraft" / f"methods-{importlib.util.MAGIC_NUMBER.hex()}.code"


def _read(path: Path) -> dict[str, CodeType]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    if hashlib.sha256(data[CHECKSUM_BYTES:]).digest() != data[:CHECKSUM_BYTES]:
        return {}
    known: dict[str, CodeType] = marshal.loads(data[CHECKSUM_BYTES:])
    return known


def _write(path: Path, known: dict[str, CodeType]) -> None:
    data = marshal.dumps(known)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
        temporary.replace(path)
    except OSError:
        return
