from turnwise import RequestStateSecurity


def phase(number: int, old: str, new: str) -> RequestStateSecurity:
    """Roll each phase out everywhere before the next begins."""
    match number:
        case 1:
            return RequestStateSecurity(keys=[old, new])  # Everyone learns to verify the new key; the old one mints.
        case 2:
            return RequestStateSecurity(keys=[new, old])  # The new one mints; tokens of the old one are still good.
        case _:
            return RequestStateSecurity(keys=[new])  # One ttl later, no token of the old one is left.
