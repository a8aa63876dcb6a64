"""Reports whether this machine lets tests mount file systems and create network namespaces."""

from __future__ import annotations

import pytest

from kraft.sim.chaos.hosts.disks import can_mount
from kraft.sim.chaos.hosts.network_commands import can_lose_packets, can_use_namespaces, can_use_netem

NO_MOUNTS = can_mount()
NO_NAMESPACES = can_use_namespaces()
NO_NETEM = can_use_netem()
NO_LOSS = can_lose_packets()

needs_mounts = pytest.mark.skipif(bool(NO_MOUNTS), reason=NO_MOUNTS)
needs_namespaces = pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)
needs_loss = pytest.mark.skipif(bool(NO_LOSS), reason=NO_LOSS)
needs_netem = pytest.mark.skipif(bool(NO_NETEM), reason=NO_NETEM)
