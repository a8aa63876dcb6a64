"""A cache of the compiled methods that dataclasses and attrs (used by trio) generate, kept between runs.

Both libraries generate the methods of each class as source text, which Python compiles at every start. For the 300
classes of a node, this takes a fifth of the import time. While a `CompiledCache` is active, the compiled form of each
source text is looked up in a file in the user's cache folder. A file that is unreadable or fails its checksum is
ignored. Missing entries are compiled and, if the folder is writable, stored.
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
"""Name of a generated method that is never cached. Attrs writes into it a number that depends on the hash seed of the
process, so its source text never repeats."""


class CompiledCache:
    """Compiled code by source text, kept in memory and in the file at `path`. If `path` is None, it is kept only in
    memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else _read(path)

    def forget(self) -> None:
        """Free the memory of the cache."""
        self._known = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Compile generated methods through this cache while the context is open, then store new entries."""
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

        # The modules call the built-ins `exec` and `compile`. Module globals with these names override the built-ins.
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
    """Return the path of the cache file; None for a user without a home folder. Each Python version has its own file,
    because bytecode differs between versions."""
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
