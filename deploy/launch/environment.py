"""Read properties from environment variables, as in Kafka's image: `KAFKA_LOG_DIRS` sets `log.dirs`.

The prefix is removed once, and the remainder is put in lower case. Then `___` becomes a dash, `__` an underscore, and
`_` a dot. In the same way, `KRAFT_…` sets keys that begin with `kraft.`. Variables for the JVM or for the image's
scripts are ignored. `python -m kraft.deploy.launch.environment` prints the properties as a file.
Source: apache/kafka image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

PREFIX = "KAFKA_"
OWN_PREFIX = "KRAFT_"

EXCLUDED = frozenset(
    PREFIX + name
    for name in (
        "VERSION",
        "HEAP_OPTS",
        "LOG4J_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL",
        "JMX_HOSTNAME",
        "JMX_PORT",
    )
) | {OWN_PREFIX + "BOOTSTRAP_SERVER"}
"""Variables that set no property. For KAFKA_JMX_PORT, Kafka's image sets the key `jmx.port`, which no node has.
KRAFT_BOOTSTRAP_SERVER is read by the command line."""

_RUNS = MappingProxyType({1: ".", 2: "_", 3: "-"})
_UNDERSCORES = re.compile("_{1,3}")


def property_name(variable: str) -> str | None:
    """Return the key that a variable sets; None for a variable that sets no key."""
    if not variable.startswith((PREFIX, OWN_PREFIX)) or variable in (PREFIX, OWN_PREFIX) or variable in EXCLUDED:
        return None
    return _UNDERSCORES.sub(lambda run: _RUNS[len(run[0])], variable.removeprefix(PREFIX).lower())


def environment_settings(environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return variable, key and value of each property that these variables set, sorted by variable."""
    named = ((name, property_name(name)) for name in sorted(environment))
    return [(name, key, environment[name]) for name, key in named if key is not None]


def environment_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that these variables set, by key."""
    return {key: value for _, key, value in environment_settings(environment)}


def main() -> None:
    """Print the properties that the environment of this process sets."""
    import os
    import sys

    from kraft.config.properties import render_properties

    sys.stdout.write(render_properties(environment_properties(os.environ)))


if __name__ == "__main__":
    main()
