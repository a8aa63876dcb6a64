"""Pure: consensus. step(input, now) -> Ready. May import kraft.wire and kraft.seam's value types."""
