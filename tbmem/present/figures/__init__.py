"""PNG files (matplotlib, imported lazily)."""
