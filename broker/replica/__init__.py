"""Pure: the leader's and the follower's state of a partition: ISR, high watermark, epochs, pending changes. May import
kraft.image and kraft.wire.

- `leader`: the leader's side: progress of followers, ISR, high watermark;
- `isr`: the in-sync set and its pending change;
- `follower`: how to act on the leader's fetch response;
- `role`: what a partition's new state requires of this broker;
- `selector`: which replica a consumer should read from.
"""
