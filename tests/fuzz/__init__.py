"""Programs that try whatever bytes there may be."""
