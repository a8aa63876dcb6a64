"""Pure: the invariants of a simulated run, computed from observations of the world and from records of what was
written, committed and acknowledged. May import kraft.wire and kraft.image.

Codes such as K6 are row numbers of docs/invariants.md.
"""
