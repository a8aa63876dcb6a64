"""Pure: every configuration key that Kafka knows, with type, default, validator, effect and doc. May import kraft.wire."""
