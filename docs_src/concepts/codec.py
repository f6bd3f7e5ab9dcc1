import base64
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnwise import InvalidRequestState, MCPServer, RequestStateSecurity


class OwnCodec:
    """Protects what it is given. Give it a data key that your key service unwrapped at the start."""

    def __init__(self, data_key: bytes) -> None:
        self._cipher = AESGCM(data_key)

    def seal(self, payload: bytes) -> str:
        nonce = os.urandom(12)
        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, payload, None)).decode()

    def unseal(self, token: str) -> bytes:
        try:
            raw = base64.urlsafe_b64decode(token)
            return self._cipher.decrypt(raw[:12], raw[12:], None)
        except (ValueError, InvalidTag):
            raise InvalidRequestState from None


server = MCPServer("vault", request_state_security=RequestStateSecurity(codec=OwnCodec(os.urandom(32))))
