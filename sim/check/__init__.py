"""Pure: ledgers and invariants over what the world observed. May import kraft.wire and kraft.image.

A code such as K6 is a row of docs/invariants.md.
"""
