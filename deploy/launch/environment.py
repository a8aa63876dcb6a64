"""Properties from the environment, by the rule of Kafka's image: `KAFKA_LOG_DIRS` is `log.dirs`.

The prefix is cut once and the rest is in lower case; then `___` is a dash, `__` an underscore, `_` a dot. `KRAFT_…` is
the same for keys that begin with `kraft.`. Variables that are for the JVM or for the scripts of the image are no
properties. `python -m kraft.deploy.launch.environment` prints the properties as a file. Source: the documentation of
the apache/kafka image.
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
"""Not properties. Kafka's image makes a key `jmx.port` of KAFKA_JMX_PORT, which no node knows. The command line reads
KRAFT_BOOTSTRAP_SERVER."""

_RUNS = MappingProxyType({1: ".", 2: "_", 3: "-"})
_UNDERSCORES = re.compile("_{1,3}")


def property_name(variable: str) -> str | None:
    """The key that a variable sets; None for a variable that sets none."""
    if not variable.startswith((PREFIX, OWN_PREFIX)) or variable in (PREFIX, OWN_PREFIX) or variable in EXCLUDED:
        return None
    return _UNDERSCORES.sub(lambda run: _RUNS[len(run[0])], variable.removeprefix(PREFIX).lower())


def environment_settings(environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Variable, key and value of each property that these variables set, by the variable's name."""
    named = ((name, property_name(name)) for name in sorted(environment))
    return [(name, key, environment[name]) for name, key in named if key is not None]


def environment_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that these variables set, by key."""
    return {key: value for _, key, value in environment_settings(environment)}


def main() -> None:
    """Print the properties that this process's environment sets."""
    import os
    import sys

    from kraft.config.properties import render_properties

    sys.stdout.write(render_properties(environment_properties(os.environ)))


if __name__ == "__main__":
    main()
