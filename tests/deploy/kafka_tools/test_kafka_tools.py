"""Kafka's tools by their names: each command line becomes the equivalent kraft command, or an error."""

from __future__ import annotations

import shlex

import pytest

from kraft.deploy.kafka_tools.options import ToolError
from kraft.deploy.kafka_tools.tools import kraft_words
from tests.stages.kraft_command import Command

CLUSTER = "--bootstrap-server a:1"
OURS = "--bootstrap a:1"


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            f"kafka-topics --create --topic t --partitions 3 --replication-factor=2 --config a=1 {CLUSTER}",
            f"topics create t --partitions 3 --replication-factor 2 --config a=1 {OURS}",
        ),
        (f"kafka-topics.sh --list --exclude-internal {CLUSTER}", f"topics list --no-internal {OURS}"),
        (f"kafka-topics --list --topic o.* {CLUSTER}", f"topics list '^(?:o.*)$' {OURS}"),
        (f"kafka-topics --describe {CLUSTER}", f"topics describe {OURS}"),
        (
            f"kafka-topics --describe --topic t --under-replicated-partitions {CLUSTER}",
            f"topics describe t --under-replicated {OURS}",
        ),
        (f"kafka-topics --alter --topic t --partitions 9 {CLUSTER}", f"topics alter t --partitions 9 {OURS}"),
        (f"kafka-topics --delete --topic t --if-exists {CLUSTER}", f"topics delete t --yes --if-exists {OURS}"),
        (
            f"kafka-configs --alter --entity-type topics --entity-name t --add-config a=1,b=[2,3] --delete-config c,d "
            f"{CLUSTER}",
            f"configs alter --topic t --set a=1 --set b=2,3 --delete c --delete d {OURS}",
        ),
        (f"kafka-configs --describe --broker 4 --all {CLUSTER}", f"configs describe --broker 4 {OURS}"),
        (
            f"kafka-configs --describe --entity-type brokers --entity-default {CLUSTER}",
            f"configs describe --broker all --changed {OURS}",
        ),
        (
            f"kafka-configs --describe --entity-type broker-loggers --entity-name 1 {CLUSTER}",
            f"configs describe --loggers 1 --changed {OURS}",
        ),
        (
            "kafka-configs --alter --broker-logger 101 --add-config kraft.quorum=DEBUG --bootstrap-controller c:1",
            "configs alter --loggers 101 --set kraft.quorum=DEBUG --bootstrap-controller c:1",
        ),
        (f"kafka-consumer-groups --list {CLUSTER} --state", f"groups list {OURS}"),
        (f"kafka-consumer-groups --list --state Empty {CLUSTER}", f"groups list --state Empty {OURS}"),
        (f"kafka-consumer-groups --describe --all-groups {CLUSTER}", f"groups describe {OURS}"),
        (
            f"kafka-consumer-groups --describe --group g --members --verbose --timeout 2500 {CLUSTER}",
            f"groups members g {OURS} --timeout 2.5",
        ),
        (
            f"kafka-consumer-groups --reset-offsets --group g --topic t --shift-by -3 --execute {CLUSTER}",
            f"groups reset-offsets g --topic t --shift-by -3 --execute {OURS}",
        ),
        (f"kafka-consumer-groups --delete --group g --group h {CLUSTER}", f"groups delete g h {OURS}"),
        (f"kafka-transactions {CLUSTER} list", f"transactions list {OURS}"),
        (
            f"kafka-transactions {CLUSTER} list --duration-filter 5000 --transactional-id-pattern p.*",
            f"transactions list --pattern p.* --longer-than 5000ms {OURS}",
        ),
        (f"kafka-transactions {CLUSTER} list --duration-filter -1", f"transactions list {OURS}"),
        (f"kafka-transactions {CLUSTER} describe --transactional-id p", f"transactions describe p {OURS}"),
        (
            f"kafka-transactions.sh {CLUSTER} describe-producers --topic t --partition 1 --broker-id 2",
            f"transactions describe-producers t:1 --broker 2 {OURS}",
        ),
        (
            f"kafka-transactions {CLUSTER} find-hanging --broker-id 2 --max-transaction-timeout 5",
            f"transactions find-hanging --broker 2 --older-than 5m {OURS}",
        ),
        (
            f"kafka-transactions {CLUSTER} find-hanging --topic t --partition 1",
            f"transactions find-hanging t:1 {OURS}",
        ),
        (
            f"kafka-transactions {CLUSTER} abort --topic t --partition 1 --start-offset 9",
            f"transactions abort t:1 --start-offset 9 --yes {OURS}",
        ),
        (
            f"kafka-transactions {CLUSTER} abort --topic t --partition 1 --start-offset 9 --producer-id 4",
            f"transactions abort t:1 --start-offset 9 --yes {OURS}",
        ),
        (
            f"kafka-transactions {CLUSTER} forceTerminateTransaction --transactionalId p",
            f"transactions force-terminate p --yes {OURS}",
        ),
        (
            "kafka-console-producer --topic t --property parse.key=true --property key.separator=: "
            "--producer-property linger.ms=5 --broker-list a:1",
            f"produce t --key-separator : {OURS} -X linger.ms=5",
        ),
        (
            f"kafka-console-producer --topic t --compression-codec {CLUSTER}",
            f"produce t --compression gzip {OURS}",
        ),
        (
            f"kafka-console-consumer --topic t --from-beginning --max-messages 2 {CLUSTER}",
            rf"consume t --offset earliest --follow --count 2 --format '%s\n' {OURS}",
        ),
        (
            f"kafka-console-consumer --topic t --partition 1 --offset 7 --timeout-ms 500 --property print.key=true "
            f"--property key.separator=% {CLUSTER}",
            rf"consume t --offset 7 --partition 1 --format '%k%%%s\n' {OURS}",
        ),
        (
            f"kafka-console-consumer --topic t --group g --from-beginning --isolation-level read_committed {CLUSTER}",
            rf"consume t --offset earliest --group g --isolation read_committed --format '%s\n' {OURS}",
        ),
    ],
)
def test_a_command_line_of_kafkas_tool_becomes_the_kraft_command_that_does_the_same(line: str, ours: str) -> None:
    tool, *arguments = shlex.split(line)
    assert kraft_words(tool, arguments) == shlex.split(ours)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kafka-topics --list", "--bootstrap-server is missing"),
        (f"kafka-topics --list --create {CLUSTER}", "exactly one of --create"),
        (f"kafka-topics --describe --topics-with-overrides {CLUSTER}", "--topics-with-overrides: no counterpart here"),
        (f"kafka-topics --describe --topic o.* {CLUSTER}", "name one topic"),
        (f"kafka-topics --create {CLUSTER} --topic", "--topic needs a value"),
        (f"kafka-topics stray {CLUSTER}", "unexpected argument 'stray'"),
        (f"kafka-configs --describe --entity-type users {CLUSTER}", "--entity-type users: only topics"),
        (f"kafka-configs --alter --topic t {CLUSTER}", "--alter needs --add-config"),
        (f"kafka-consumer-groups --describe {CLUSTER}", "--describe needs --group"),
        (f"kafka-console-consumer --topic t --timeout-ms 5 {CLUSTER}", "--timeout-ms is only possible with"),
        (f"kafka-console-producer --topic t --property parse.headers=true {CLUSTER}", "parse.headers: no counterpart"),
        (f"kafka-transactions {CLUSTER}", "expected exactly one of list"),
        (f"kafka-transactions {CLUSTER} find-hanging --partition 1", "--partition needs --topic"),
        (
            f"kafka-transactions {CLUSTER} abort --topic t --partition 1 --producer-id 4",
            "find-hanging shows it. The producer's id",
        ),
        (f"kafka-transactions {CLUSTER} abort --topic t --partition 1", "--start-offset is missing; find-hanging"),
        ("kafka-dump-log --files a", "use: kraft log --help"),
        ("kafka-acls --list", "unknown tool"),
    ],
)
def test_a_kafka_tool_command_line_without_a_counterpart_is_refused_with_an_alternative(
    line: str, message: str
) -> None:
    tool, *arguments = shlex.split(line)
    with pytest.raises(ToolError, match="(?s)" + message.replace("(", r"\(")):
        kraft_words(tool, arguments)


def test_every_translated_kafka_tool_argument_is_known_to_kraft(kraft: Command) -> None:
    lines = (
        "kafka-topics --create --topic t --partitions 3 --replication-factor 2 --config a=1 --if-not-exists",
        "kafka-topics --describe --topic t --under-min-isr-partitions --at-min-isr-partitions --unavailable-partitions",
        "kafka-topics --delete --topic t --if-exists",
        "kafka-configs --alter --entity-type topics --entity-name t --add-config a=1 --delete-config b",
        "kafka-configs --describe --entity-type groups --entity-name g",
        "kafka-consumer-groups --list --state Empty --type consumer",
        "kafka-consumer-groups --delete-offsets --group g --topic t",
        "kafka-consumer-groups --reset-offsets --all-groups --all-topics --to-earliest --export --dry-run",
        "kafka-transactions list --duration-filter 5 --transactional-id-pattern p.*",
        "kafka-transactions describe --transactional-id p",
        "kafka-transactions describe-producers --topic t --partition 1 --broker-id 2",
        "kafka-transactions find-hanging --topic t --partition 1 --broker-id 2 --max-transaction-timeout 5",
        "kafka-transactions abort --topic t --partition 1 --start-offset 9",
        "kafka-transactions forceTerminateTransaction --transactionalId p",
        "kafka-console-producer --topic t --request-required-acks all --sync --property null.marker=N",
        "kafka-console-consumer --topic t --from-beginning --max-messages 1 --isolation-level read_committed",
    )
    for line in lines:
        tool, *arguments = shlex.split(f"{line} {CLUSTER}")
        words = kraft_words(tool, arguments)
        assert "Usage: kraft" in kraft.run(*words, "--help")
