"""Pure: a partition's leader and follower state: ISR, high watermark, epochs, pending changes. May import kraft.wire and kraft.image."""
