"""Who everybody is: names of users, their bearer tokens, and the marker that a flow carries everywhere."""

import hashlib

ISSUER = "https://login.example.com"


def bearer(user: str) -> str:
    """The token of a user."""
    return f"{user}.{hashlib.sha256(f'a secret of the soak test, {user}'.encode()).hexdigest()[:24]}"


def user_of(token: str) -> str | None:
    """Whose token this is; None where it is nobody's."""
    user = token.partition(".")[0]
    return user if token == bearer(user) else None


def marker(user: str, number: int) -> str:
    """What one flow is known by; its user's name is in it."""
    return f"{user}-order-{number}"
