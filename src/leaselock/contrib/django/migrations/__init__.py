"""The migrations of `leaselock.contrib.django`."""
