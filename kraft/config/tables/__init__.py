"""Pure: the rows of the configuration table, one module per chapter. May import kraft.config.key and .validators."""
