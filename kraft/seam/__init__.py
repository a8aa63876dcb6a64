"""Pure: the boundary to the outside world. The interfaces Clock, Random, Network and Disk, and the errors that all
layers share; no implementations. May import nothing else of kraft.
"""

from kraft.seam.clock import Clock, Event, Random
from kraft.seam.disk import Buffer, Disk, DiskError, DiskLocked, File, FileRange, HandleRevoked, Lock
from kraft.seam.errors import InvariantError, StorageCorrupt, WireError, require, sole_error
from kraft.seam.ids import draw_uuid
from kraft.seam.network import (
    Address,
    AddressInUse,
    Binding,
    BoundListener,
    Chunk,
    CloseReason,
    Connection,
    DialFailed,
    DialMap,
    DialOutcome,
    LinkPolicy,
    LinkQuality,
    ListenerStats,
    Network,
    NetworkStats,
    Peer,
    Transport,
)
from kraft.seam.world import Seam, current_seam

__all__ = [
    "Address",
    "AddressInUse",
    "Binding",
    "BoundListener",
    "Buffer",
    "Chunk",
    "Clock",
    "CloseReason",
    "Connection",
    "DialFailed",
    "DialMap",
    "DialOutcome",
    "Disk",
    "DiskError",
    "DiskLocked",
    "Event",
    "File",
    "FileRange",
    "HandleRevoked",
    "InvariantError",
    "LinkPolicy",
    "LinkQuality",
    "ListenerStats",
    "Lock",
    "Network",
    "NetworkStats",
    "Peer",
    "Random",
    "Seam",
    "StorageCorrupt",
    "Transport",
    "WireError",
    "current_seam",
    "draw_uuid",
    "require",
    "sole_error",
]
