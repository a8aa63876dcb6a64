"""Pure: ledgers and invariants over what the world observed. May import kraft.wire and kraft.image."""
