"""Synchronous: one small handler module per Kafka API family: validates, calls a core, answers. May import everything
below kraft.broker and its siblings."""
