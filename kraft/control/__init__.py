"""Pure: the active controller's decisions. decide(image, context, command) -> Decision. May import kraft.image, kraft.config and kraft.wire."""
