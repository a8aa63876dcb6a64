"""Pure: the leader's and the follower's state of a partition: ISR, high watermark, epochs, pending changes.

May import kraft.image and kraft.wire.

- `leader`: the leader's side: progress of followers, ISR, high watermark;
- `isr`: the in-sync set and its pending change;
- `follower`: the decision about the leader's fetch response;
- `role`: the action that a partition's new state requires of this broker;
- `selector`: the replica from which a consumer should read.
"""
