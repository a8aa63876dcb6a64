"""Pure: bytes to values and back. Framing, the connection state machine, record batches, compression, the internal RPC
messages and the glue to kio. May import nothing of kraft but kraft.wire and kraft.seam."""
