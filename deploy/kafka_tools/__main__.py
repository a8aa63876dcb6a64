"""`python -m kraft.deploy.kafka_tools kafka-topics --list …`: run the `kraft` command that does the same."""

from __future__ import annotations

import os
import sys

from kraft.deploy.kafka_tools.options import ToolError
from kraft.deploy.kafka_tools.tools import kraft_words


def main() -> None:
    """Replace this process by kraft. If kraft has no counterpart of an option, exit with 1 and a message."""
    tool, *arguments = sys.argv[1:]
    try:
        words = kraft_words(tool, arguments)
    except ToolError as problem:
        sys.exit(f"{tool}: {problem}")
    os.execvp("kraft", ["kraft", *words])


main()
