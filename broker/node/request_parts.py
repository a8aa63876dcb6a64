"""Create and connect the handlers of one broker and the dispatcher that calls them.

This module only assembles: it decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kraft.broker.api.context import HandlerContext
from kraft.broker.api.fetch.handle_fetch import FetchHandler
from kraft.broker.api.fetch.pending_fetch import FetchPorts
from kraft.broker.api.forwarding import Forwarder
from kraft.broker.api.produce.handle_produce import ProduceHandler
from kraft.broker.api.produce.pending_produce import ProducePorts
from kraft.broker.api.table import HandlerParts, make_handlers
from kraft.broker.coordinator.transactional_commits import TransactionalCommits
from kraft.broker.node.continuations import Continuations
from kraft.broker.node.dispatch import Dispatcher
from kraft.broker.node.request_partitions import request_partitions
from kraft.broker.serving.connection_limits import ConnectionLimits
from kraft.config.tables.replication import RACK_AWARE_SELECTOR
from kraft.control.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker
    from kraft.broker.node.leader_check import LeaderCheck
    from kraft.image import MetadataImage
    from kraft.node.reply_faults import ReplyFaults
    from kraft.wire.server import ServerLimits


def make_dispatcher(
    broker: Broker,
    newest_image: Callable[[], MetadataImage],
    leader_check: LeaderCheck,
    limits: ServerLimits,
    faults: ReplyFaults | None,
) -> Dispatcher:
    """Return the dispatcher of a broker whose other parts exist already. With `faults`, each request passes the fault
    rules before it is handled."""
    config, clock = broker.config, broker.seam.clock
    continuations = Continuations(clock, broker.start_task, broker.requests)
    connection_limits = ConnectionLimits(config, clock, broker.log_limit, broker.start_task)
    broker.dynamic_configs.on_change(connection_limits.configure)
    context = _context(broker, newest_image, leader_check, continuations)
    parts = HandlerParts(
        context,
        _produce_handler(context, broker),
        _fetch_handler(context, broker),
        Forwarder(broker.gates, newest_image, broker.controller.forward, continuations.answer_later),
        broker.incarnation_id,
        SUPPORTED_FEATURES,
    )
    dispatcher = Dispatcher(
        config,
        make_handlers(parts),
        continuations,
        connection_limits,
        memory=broker.gates.memory,
        requests=broker.requests,
        log_limit=broker.log_limit,
        limits=limits,
    )
    dispatcher.connection_closed = broker.shares.connection_closed
    if faults is not None:
        named = partial(request_partitions, newest_image, broker.replicas.fetch_sessions)
        dispatcher.entry = faults.wrap(dispatcher.handle, named)
    return dispatcher


def _context(
    broker: Broker, newest_image: Callable[[], MetadataImage], leader_check: LeaderCheck, continuations: Continuations
) -> HandlerContext:
    replicas = broker.replicas
    return HandlerContext(
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        config=broker.config,
        loop=replicas.loop,
        gates=broker.gates,
        log_limit=broker.log_limit,
        dynamic_configs=broker.dynamic_configs,
        newest_image=newest_image,
        departed=broker.departed,
        find=replicas.find,
        locate=replicas.locate,
        directories=replicas.directories,
        failures=replicas.failures,
        damaged_logs=replicas.damaged_logs,
        moves=replicas.moves,
        write_log_starts_of=replicas.checkpoints.write_log_starts_of,
        groups=broker.groups,
        transactions=broker.transactions,
        share_coordinators=broker.share_coordinators,
        ask_share_coordinator=broker.share_persister.ask,
        end_offsets=broker.end_offsets,
        shares=broker.shares,
        marker_writer=broker.marker_writer,
        transactional_commits=TransactionalCommits(
            replicas.loop, broker.groups, broker.enrolment.ask, _verifies_transactions(broker)
        ),
        metadata_topic=broker.metadata_topic,
        producer_ids=broker.producer_ids,
        create_topics=broker.auto_topics.create,
        check_leaders=leader_check.check,
        finish=continuations.finish,
        continue_in_steps=continuations.continue_in_steps,
        answer_later=continuations.answer_later,
    )


def _verifies_transactions(broker: Broker) -> Callable[[], bool]:
    return partial(broker.dynamic_configs.boolean, "transaction.partition.verification.enable")


def _produce_handler(context: HandlerContext, broker: Broker) -> ProduceHandler:
    replicas = broker.replicas
    return ProduceHandler(
        ProducePorts(
            loop=replicas.loop,
            gates=broker.gates,
            find=replicas.find,
            locate=replicas.locate,
            newest_image=context.newest_image,
            disk_failed=replicas.failures.disk_failed,
            budget_may_be_full=replicas.budget.may_be_full,
            finish=context.finish,
            enrol=broker.enrolment.ask,
            verifies_transactions=_verifies_transactions(broker),
        )
    )


def _fetch_handler(context: HandlerContext, broker: Broker) -> FetchHandler:
    replicas, config = broker.replicas, broker.config
    ports = FetchPorts(
        loop=replicas.loop,
        gates=broker.gates,
        sessions=replicas.fetch_sessions,
        metadata_topic=broker.metadata_topic,
        woken=replicas.woken,
        leader_quota=replicas.leader_quota,
        find=replicas.find,
        locate=replicas.locate,
        newest_image=context.newest_image,
        await_role=replicas.fetches_awaiting_roles.wait,
        disk_failed_at=replicas.failures.disk_failed_at,
        records_read=replicas.repeated_read_checks.bytes_sent,
        finish=context.finish,
        continue_in_steps=context.continue_in_steps,
        answer_later=context.answer_later,
    )
    return FetchHandler(
        ports,
        bytes_max=config.integer("fetch.max.bytes"),
        selects_by_rack=config.string("replica.selector.class") == RACK_AWARE_SELECTOR,
    )
