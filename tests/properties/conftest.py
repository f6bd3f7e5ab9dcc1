"""How hard the properties are tried: the same few examples in every test run, many new ones with TURNWISE_FUZZ=1, and
so many with any larger number.
"""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
_WANTED = int(os.environ.get("TURNWISE_FUZZ") or 0)
_MANY = _WANTED if _WANTED > 1 else 5_000

settings.register_profile("house", max_examples=60, derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("fuzz", max_examples=_MANY, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile("fuzz" if _WANTED else "house")
