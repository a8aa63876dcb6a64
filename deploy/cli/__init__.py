"""Async: the kraft command. May import everything.

`main` stands here, and imports nothing that it can put off: `kraft up` forks its zygote first, so that the zygote
imports what nodes need while this process reads its arguments.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["up"] and not {"--help", "-h"} & set(arguments):
        from kraft.deploy.cli.early import start_zygote_early

        start_zygote_early()
    from kraft.deploy.cli.app import run
    from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules

    hide_modules(TEST_TOOLS)
    run(arguments)
