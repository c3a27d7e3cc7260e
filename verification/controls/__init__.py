"""Negative controls: known defects of other libraries and set-ups, which our harness must find."""
