"""What a client does: no I/O, no clock, no threads, no event loop."""
