"""The client libraries by their names for `--client`. Each is imported when it is first requested."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType

from kraft.seam import Seam
from kraft.sim.chaos.clients import ClientLibrary

DEFAULT_LIBRARY = "kraft"
LIBRARIES = MappingProxyType(
    {
        "kraft": ("kraft.sim.chaos.clients.kraft_client", "KraftLibrary", "pykraft"),
        "confluent-kafka": ("kraft.sim.chaos.clients.confluent", "ConfluentLibrary", "confluent-kafka"),
        "kafka-python": ("kraft.sim.chaos.clients.kafka_python", "KafkaPythonLibrary", "kafka-python"),
    }
)
"""Name → module, class, and the package that it needs."""


class UnknownLibrary(ValueError):
    """The client library is unknown, or its package is not installed; the text says what to do."""


def library_of(name: str = DEFAULT_LIBRARY, seam: Seam | None = None) -> ClientLibrary:
    """Return the library of this name. `seam` is the interface to the outside world for pykraft's own client. Raises
    UnknownLibrary."""
    if name not in LIBRARIES:
        raise UnknownLibrary(f"there is no client {name!r}: choose {', '.join(LIBRARIES)}")
    module, kind, package = LIBRARIES[name]
    try:
        made = getattr(import_module(module), kind)
        found: ClientLibrary = made(seam) if name == DEFAULT_LIBRARY else made()
    except ImportError as problem:
        raise UnknownLibrary(
            f"the client {name} needs the package {package}, which cannot be imported ({problem}): "
            "pip install pykraft[chaos]"
        ) from problem
    return found
