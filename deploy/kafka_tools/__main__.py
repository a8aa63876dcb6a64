"""`python -m kraft.deploy.kafka_tools kafka-topics --list …`: become the `kraft` command that does the same."""

from __future__ import annotations

import os
import sys

from kraft.deploy.kafka_tools.options import ToolError
from kraft.deploy.kafka_tools.tools import kraft_words


def main() -> None:
    """Replace this process by kraft; exit with 1 and a message for what it has no counterpart of."""
    tool, *arguments = sys.argv[1:]
    try:
        words = kraft_words(tool, arguments)
    except ToolError as problem:
        sys.exit(f"{tool}: {problem}")
    os.execvp("kraft", ["kraft", *words])


main()
