"""What the tests of users, and our own, may use; the locks themselves import nothing of it."""
