"""The proxy of the tests is the library's own, which users' tests may have as well."""

from holdfast.testing.proxy import ACTIONS, Fault, Proxy

__all__ = ["ACTIONS", "Fault", "Proxy"]
