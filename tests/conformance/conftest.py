"""The brokers under test are shared by the files of this folder: a real one is started once."""

from tests.conformance.brokers_under_test import broker_under_test

__all__ = ["broker_under_test"]
