"""What we do: no I/O, no clock, no threads, no event loop."""
