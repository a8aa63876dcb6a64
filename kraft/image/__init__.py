"""Pure: metadata as an immutable value, the event types, replay, and dump to events. May import kraft.wire."""
