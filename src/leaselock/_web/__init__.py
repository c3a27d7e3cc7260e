"""`leaselock web`: the locks of a store as a page, as JSON and for Prometheus.

It needs the extra `web`. Nothing else imports it.
"""
