"""Translate the options that all tools have: the cluster's address and the client settings."""

from __future__ import annotations

from kraft.deploy.kafka_tools.options import Options, ToolError


def connection_words(options: Options, *, may_be_controllers: bool = False) -> list[str]:
    """Translate the options for the connection: the addresses of brokers, or of controllers if the command accepts
    these, and the client settings."""
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
    """Take the action from the options and return it. Exactly one of these actions must be given."""
    found = [action for action in actions if options.flag(action)]
    if len(found) != 1:
        raise ToolError(f"expected exactly one of {', '.join(actions)}")
    return found[0]
