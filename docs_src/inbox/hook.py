import base64
import hmac
import time
from collections.abc import Mapping

TOLERANCE = 300


def is_from_the_inbox(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Whether a request was signed by the inbox, lately; `secret` is `whsec_` and base64."""
    stamp, given = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > TOLERANCE:
        return False
    signed = f"{headers.get('webhook-id')}.{stamp}.".encode() + body
    mark = base64.b64encode(hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, "sha256")).decode()
    return any(hmac.compare_digest(f"v1,{mark}".encode(), one.encode()) for one in given.split())
