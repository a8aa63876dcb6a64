"""Pure: the active controller's decisions. decide(image, context, command) -> Decision. May import kraft.image,
kraft.config and kraft.wire.
"""

from kraft.control.commands import (
    ActivateController,
    AdminRequest,
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    ElectLeaderless,
    FenceBrokers,
    FenceCause,
    FenceTarget,
    RebalanceLeaders,
    RegisterBrokerCommand,
    RegisterControllerCommand,
    ShutDownBroker,
)
from kraft.control.decide import decide
from kraft.control.decision import (
    BrokerSession,
    Context,
    Decision,
    FollowUp,
    Requester,
    ShutdownOffset,
)

__all__ = [
    "ActivateController",
    "AdminRequest",
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerSession",
    "Context",
    "Decision",
    "ElectLeaderless",
    "FenceBrokers",
    "FenceCause",
    "FenceTarget",
    "FollowUp",
    "RebalanceLeaders",
    "RegisterBrokerCommand",
    "RegisterControllerCommand",
    "Requester",
    "ShutDownBroker",
    "ShutdownOffset",
    "decide",
]
