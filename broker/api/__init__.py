"""Synchronous: one small handler module per Kafka API family: validates, calls a core, answers. May import the rooms of
kraft.broker below it, and everything below kraft.broker."""
