"""Pure: the invariants of a simulated run, and the ledgers that they need, computed from observations of the world. May
import kraft.wire and kraft.image.

Codes such as K6 are row numbers of docs/invariants.md.
"""
