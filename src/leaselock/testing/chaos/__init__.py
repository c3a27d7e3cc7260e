"""Real processes on a real store, killed, frozen and cut off by lot; the proof is their history.

Law: the lots come from a seed. Workers record what they were told, and everything that is said of
a storm is read from those files by `checker`, whose rules are tested with planted violations.
"""
