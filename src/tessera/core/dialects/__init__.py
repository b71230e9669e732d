"""How does each API say what it asks? One API shape a file: body bytes in, Draft out."""
