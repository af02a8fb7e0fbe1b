"""What happened, as a table; interning and padding (host side)."""
