"""How hard the properties are tried: the same few examples in every test run, many new ones with TURNWISE_FUZZ=1."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("house", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("fuzz", max_examples=5_000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("TURNWISE_FUZZ") == "1" else "house")
