"""The protocol `document`: locks in any store that can compare and set one value."""
