"""Pure: histories of what clients asked and were answered, and how they are judged."""
