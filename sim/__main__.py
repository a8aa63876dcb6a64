"""`python -m kraft.sim`: the same as `kraft sim`."""

from __future__ import annotations

from kraft.sim.commands import app

if __name__ == "__main__":
    app(prog_name="python -m kraft.sim")
