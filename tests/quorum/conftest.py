"""What the tests of this folder share."""

from __future__ import annotations

from tests.ports import release_ports

__all__ = ["release_ports"]
