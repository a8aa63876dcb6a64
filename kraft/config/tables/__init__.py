"""Pure: the definitions of all keys, one module per chapter. May import kraft.config.key and .validators."""
