"""`python -m kraft.sim`: the same as `kraft sim`."""

from __future__ import annotations

from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules

if __name__ == "__main__":
    hide_modules(TEST_TOOLS)
    from kraft.sim.commands import app

    app(prog_name="python -m kraft.sim")
