"""Pure: a partition's leader and follower state: ISR, high watermark, epochs, pending changes. May import kraft.image.

`leader` is the leader's side (progress of followers, ISR, high watermark), `isr` the in-sync set and its pending
change, `follower` what an answer of the leader means, `role` what a partition's new state asks of this broker,
`selector` which replica a consumer should read from. May import kraft.wire too.
"""
