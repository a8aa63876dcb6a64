"""The colours of pages and pictures, in light and dark.

Colour-blind readers can distinguish them: the colours of outcomes are similar to Paul Tol's high-contrast scheme, those
of nodes to his light scheme. Outcomes also differ in shape, verdicts have a symbol and a word, and nodes show their
number.
"""

from __future__ import annotations

from types import MappingProxyType

LIGHT = MappingProxyType(
    {
        "page": "#f7f6f3",
        "card": "#ffffff",
        "ink": "#1d2329",
        "soft": "#59626c",
        "line": "#dbd9d3",
        "accent": "#1f5f99",
        "ok": "#2b6ca8",
        "info": "#a87400",
        "fail": "#b03048",
        "fault": "#6d5a93",
        "valid": "#0c6b58",
        "invalid": "#a82238",
        "unknown": "#855a00",
        "valid-card": "#eaf4f1",
        "invalid-card": "#faecee",
        "unknown-card": "#fbf3e0",
        "full": "#b9c9d6",
        "short": "#e0a030",
        "least": "#c2485d",
        "on-node": "#16202a",
    }
)
DARK = MappingProxyType(
    {
        "page": "#14181c",
        "card": "#1b2127",
        "ink": "#e4e7ea",
        "soft": "#9ba6b0",
        "line": "#343c44",
        "accent": "#7db8ec",
        "ok": "#6db3ea",
        "info": "#e0b040",
        "fail": "#f0808f",
        "fault": "#b5a2de",
        "valid": "#58c8ad",
        "invalid": "#f38b99",
        "unknown": "#e3b54f",
        "valid-card": "#17302b",
        "invalid-card": "#3a1f25",
        "unknown-card": "#352a12",
        "full": "#4a5c6b",
        "short": "#c58a22",
        "least": "#cf5a70",
        "on-node": "#10161c",
    }
)
NODES = ("#77aadd", "#ee8866", "#eedd88", "#99ddff", "#ffaabb", "#44bb99", "#bbcc33", "#c3aed6")
"""Colours of the nodes that led or were in sync, assigned to nodes in ascending order of their ids."""


def node_colour(node: int, nodes: tuple[int, ...]) -> str:
    """Return the colour of a node; the run's nodes get colours in ascending order."""
    return NODES[nodes.index(node) % len(NODES)]
