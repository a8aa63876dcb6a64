"""Options that every tool has: where the cluster is and how to speak to it."""

from __future__ import annotations

from kraft.deploy.kafka_tools.options import Options, ToolError


def connection_words(options: Options, *, may_be_controllers: bool = False) -> list[str]:
    """Brokers, or controllers where they can answer, and the file of client settings."""
    if not options.has("--bootstrap-controller"):
        words = ["--bootstrap", options.required("--bootstrap-server", "--broker-list")]
    elif may_be_controllers:
        words = ["--bootstrap-controller", options.required("--bootstrap-controller")]
    else:
        raise ToolError("--bootstrap-controller: name brokers with --bootstrap-server")
    for file in options.values("--command-config", "--consumer.config", "--producer.config"):
        words += ["--command-config", file]
    for pair in options.values("--command-property", "--consumer-property", "--producer-property"):
        words += ["-X", pair]
    return words


def single_action(options: Options, *actions: str) -> str:
    """Take the one action of a command line that names exactly one of these."""
    found = [action for action in actions if options.flag(action)]
    if len(found) != 1:
        raise ToolError(f"expected exactly one of {', '.join(actions)}")
    return found[0]
