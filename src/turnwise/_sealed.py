"""The seal: what the client carries for us, and can neither read, change, lend nor keep too long.

    token = "s1." + base64url( key id (4) | nonce (24) | ciphertext and tag )

XAES-256-GCM (C2SP) under a ring of keys: the first mints, all verify, and the key id picks one, so that nothing is
ever decrypted by trial. Its nonce is long enough to be random for ever: the first half derives an AES-GCM key, the
second is that key's nonce. A process draws one first half for many tokens and so derives its key once.

Inside is JSON: claims that bind the token to one call, and the ledger. The room does not know what a ledger is,
and it has no clock. Why a token was refused is in the exception, for the log; the wire gets one frozen sentence.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic_core import SchemaSerializer, SchemaValidator
from pydantic_core.core_schema import bytes_schema

from ._json import decode, encode_slowly
from ._messages import Call
from .errors import InvalidRequestState

PREFIX = "s1."
CLAIMS = ("audience", "method", "target", "arguments", "principal")
TOKENS_PER_PREFIX = 1 << 20
OPENERS_KEPT = 1024
_KEY_BYTES = 32
_EXACT = b"\n"
"""Before a payload with whole numbers that only the slower decoder keeps whole."""
_to_base64 = SchemaSerializer(bytes_schema(), {"ser_json_bytes": "base64"}).to_python
_from_base64: Callable[[str], bytes] = SchemaValidator(bytes_schema(), {"val_json_bytes": "base64"}).validate_strings  # type: ignore[assignment] # its str
"""The alphabet for URLs, in a fifth of the time that the standard library takes."""
_HEAD = 4 + 24
_TAG = 16


class StateCodec(Protocol):
    """Your own cryptography: `unseal` raises InvalidRequestState for anything that `seal` did not make."""

    def seal(self, payload: bytes) -> str:
        """Protect the payload."""
        ...

    def unseal(self, token: str) -> bytes:
        """Give the payload back, or raise InvalidRequestState."""
        ...


class XAES:
    """XAES-256-GCM over one key. https://c2sp.org/XAES-256-GCM"""

    def __init__(self, key: bytes) -> None:
        self._block = Cipher(algorithms.AES(key), modes.ECB())
        zero = int.from_bytes(self._encrypt(bytes(16)))
        doubled = (zero << 1) ^ (0x87 if zero >> 127 else 0)
        self._k1 = (doubled & ((1 << 128) - 1)).to_bytes(16)

    def derive(self, prefix: bytes) -> AESGCM:
        """The AES-GCM cipher for all nonces that begin with these 12 bytes."""
        blocks = (b"\x00" + bytes([n]) + b"X\x00" + prefix for n in (1, 2))
        masked = b"".join(bytes(a ^ b for a, b in zip(block, self._k1, strict=True)) for block in blocks)
        return AESGCM(self._encrypt(masked))

    def _encrypt(self, data: bytes) -> bytes:
        encryptor = self._block.encryptor()
        return encryptor.update(data) + encryptor.finalize()


class _Key:
    """One key of the ring: its id, and the ciphers derived from it that are worth keeping."""

    def __init__(self, secret: bytes) -> None:
        key = HKDF(SHA256(), 32, salt=None, info=b"turnwise/state/v1|purpose=requestState").derive(secret)
        self.id = hashlib.sha256(b"kid|" + key).digest()[:4]
        self.bound = PREFIX.encode() + self.id + b"requestState"
        self._xaes = XAES(key)
        self._openers: dict[bytes, AESGCM] = {}
        self._minted = TOKENS_PER_PREFIX
        self._prefix = b""
        self._minter: AESGCM | None = None

    def encrypt(self, payload: bytes) -> bytes:
        if self._minter is None or self._minted >= TOKENS_PER_PREFIX:
            self._prefix, self._minted = os.urandom(12), 0
            self._minter = self._xaes.derive(self._prefix)
        self._minted += 1
        suffix = os.urandom(12)
        return self.id + self._prefix + suffix + self._minter.encrypt(suffix, payload, self.bound)

    def decrypt(self, sealed: bytes) -> bytes:
        prefix, suffix = sealed[4:16], sealed[16:28]
        known = self._openers.get(prefix)
        opener = known or self._xaes.derive(prefix)
        payload = opener.decrypt(suffix, sealed[28:], self.bound)
        if known is None:  # Kept only now: a forged token must not push out a good one.
            if len(self._openers) >= OPENERS_KEPT:
                self._openers.pop(next(iter(self._openers)))
            self._openers[prefix] = opener
        return payload


class KeyRing:
    """The codec in use unless you bring your own: `keys[0]` mints, every key verifies."""

    def __init__(self, keys: Sequence[bytes | bytearray | str]) -> None:
        self.replace(keys)

    def replace(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys; all or none of them are taken. A key that stays keeps what was derived from it."""
        if isinstance(keys, str | bytes | bytearray):
            raise TypeError("keys is a list of keys, not one key")
        secrets = [_secret(key) for key in keys]
        if not secrets:
            raise ValueError("a key ring needs at least one key")
        for secret in secrets:
            if len(secret) < _KEY_BYTES:
                raise ValueError(
                    f"a key has at least {_KEY_BYTES} bytes, not {len(secret)}: make one with secrets.token_urlsafe(32)"
                )
        known: dict[bytes, _Key] = getattr(self, "_keys", {})
        ring = [known.get(key.id, key) for key in map(_Key, secrets)]
        self._minter = ring[0]
        self._keys: dict[bytes, _Key] = {key.id: key for key in ring}

    @property
    def ids(self) -> list[str]:
        """By what the keys are known in tokens. Ids are no secret."""
        return [key.hex() for key in self._keys]

    def seal(self, payload: bytes) -> str:
        """Encrypt under the first key."""
        sealed: str = _to_base64(self._minter.encrypt(payload), mode="json")
        return PREFIX + sealed.rstrip("=")

    def unseal(self, token: str) -> bytes:
        """Decrypt under the key that the token names."""
        raw = _decode(token)
        key = self._keys.get(raw[:4])
        if key is None:
            raise InvalidRequestState(
                "sealed under a key this process does not have: share keys= or --keys-file between instances", "key"
            )
        try:
            return key.decrypt(raw)
        except InvalidTag:
            raise InvalidRequestState("the token was changed", "changed") from None


def _secret(key: Any) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes | bytearray):
        return bytes(key)
    raise TypeError(f"a key is bytes or text, not {type(key).__name__}")


def _decode(token: str) -> bytes:
    if not token.startswith(PREFIX):
        raise InvalidRequestState("not a token of this format")
    text = token[len(PREFIX) :]
    try:
        raw = _from_base64(text)
    except ValueError:
        raise InvalidRequestState("not base64url") from None
    if len(raw) < _HEAD + _TAG:
        raise InvalidRequestState("cut short")
    if "=" in text or "+" in text or "/" in text:  # One token, one spelling.
        raise InvalidRequestState("respelled")
    return raw


def authenticated_principal(context: Any) -> str | None:
    """The client, issuer and subject of the access token, where there is one."""
    access = context.access_token
    return None if access is None else str(access.principal)


_provided: Sequence[bytes | bytearray | str] | None = None


def provide_keys(keys: Sequence[bytes | bytearray | str]) -> None:
    """Keys for servers that are made from now on and bring none: for who starts servers, before they are imported."""
    global _provided  # noqa: PLW0603 - what a process is started with is global
    _provided = keys


class Bearer(NamedTuple):
    """Who carries a token, and for which server."""

    principal: str | None
    server: str


class RequestStateSecurity:
    """How `requestState` is protected. Exactly one of `keys` and `codec`.

    `ttl` is how long a question may wait for its answer, in seconds. `bind_principal` is given the call's context and
    says who is calling: unless you know better, the client, issuer and subject of the access token. `audience` defaults
    to the server's name; give several services the same one only if they are to accept each other's tokens.
    """

    def __init__(
        self,
        *,
        keys: Sequence[bytes | bytearray | str] | None = None,
        codec: StateCodec | None = None,
        ttl: float = 3600.0,
        bind_principal: Callable[[Any], str | None] | None = authenticated_principal,
        audience: str | None = None,
    ) -> None:
        if (keys is None) == (codec is None):
            raise ValueError("RequestStateSecurity takes exactly one of keys= and codec=; .ephemeral(ttl=) draws a key")
        if not (math.isfinite(ttl) and ttl > 0):
            raise ValueError(f"ttl must be a positive number of seconds, not {ttl!r}")
        self.codec: StateCodec = codec if codec is not None else KeyRing(keys or ())
        self.ttl = ttl
        self.bind_principal = bind_principal
        self.audience = audience
        self.is_process_local = False
        self.is_inherited = False

    @classmethod
    def ephemeral(cls, *, ttl: float = 3600.0, audience: str | None = None) -> "RequestStateSecurity":
        """A key drawn now and held by this process alone: for stdio, or exactly one HTTP worker."""
        security = cls(keys=[os.urandom(_KEY_BYTES)], ttl=ttl, audience=audience)
        security.is_process_local = True
        return security

    @classmethod
    def inherited(cls) -> "RequestStateSecurity":
        """Keys that whoever started this process has provided, or else one of its own."""
        if _provided is None:
            return cls.ephemeral()
        security = cls(keys=_provided)
        security.is_inherited = True
        return security

    @property
    def key_ids(self) -> list[str]:
        """By what the keys are known in tokens, the one that mints first; no secret. A codec of your own has none."""
        return self.codec.ids if isinstance(self.codec, KeyRing) else []

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys, as a rotation does: `keys[0]` mints from now on, every key verifies."""
        if not isinstance(self.codec, KeyRing):
            raise TypeError("this server has a codec of its own, which looks after its keys")
        if self.is_process_local:  # What guards its effects is in this process's memory, too.
            raise TypeError("this server was made for one process alone: give it keys when it is made")
        self.codec.replace(keys)

    def seal(self, call: Call, bearer: "Bearer", ledger: Any, lineage: bytes, ttl: float | None = None) -> str:
        """A token for the next round of this very call, made by this server for this caller."""
        expires = math.ceil(call.post.now + (self.ttl if ttl is None else ttl))
        claims = [expires, *self._claims(call, *bearer, lineage)]
        body = {"c": claims, "l": lineage.hex(), "g": ledger}
        try:
            payload = orjson.dumps(body)
        except TypeError:
            payload = _EXACT + encode_slowly(body)
        # Spaces to whole groups of three bytes, in which base64 has neither padding nor spare bits.
        return self.codec.seal(payload + b"  "[: -(len(payload) + _HEAD + _TAG) % 3])

    def unseal(self, call: Call, bearer: "Bearer", token: str) -> tuple[bytes, Any, bool]:
        """The lineage and the ledger that a token carries, once every claim holds for this call; and whether it is
        over its time.
        """
        payload = self.opened(token)
        try:
            body = decode(payload) if payload.startswith(_EXACT) else orjson.loads(payload)
            (expires, *claims), lineage, ledger = body["c"], bytes.fromhex(body["l"]), body["g"]
            is_expired = not call.post.now < expires
        except (ValueError, KeyError, TypeError, IndexError):
            raise InvalidRequestState("the payload has another format") from None
        due = self._claims(call, *bearer, lineage)
        if claims != due:
            wrong = [name for name, was, now in zip(CLAIMS, claims, due, strict=False) if was != now]
            words = f"minted for another call: not the same {', '.join(wrong) or 'claims'}"
            raise InvalidRequestState(words, "claims")
        return lineage, ledger, is_expired

    def opened(self, token: str) -> bytes:
        """What a token has inside; InvalidRequestState where it is none of ours."""
        try:
            return self.codec.unseal(token)
        except InvalidRequestState:
            raise
        except Exception as error:  # A codec of your own: whatever it raises, the client learns nothing from it.
            raise InvalidRequestState(f"the codec raised {type(error).__name__}", "codec") from None

    def _claims(self, call: Call, principal: str | None, server: str, lineage: bytes) -> list[str | None]:
        """What a token is good for, besides its time."""
        try:
            arguments = orjson.dumps(call.arguments, None, orjson.OPT_SORT_KEYS)
        except TypeError:
            arguments = encode_slowly(call.arguments, sort_keys=True)
        bearer = None if principal is None else digest(lineage + principal.encode())
        return [self.audience or server, call.method, call.target, digest(arguments), bearer]


def digest(data: bytes) -> str:
    """128 bits of BLAKE2b, as text."""
    return blake2b(data, digest_size=16).hexdigest()


def check_security(security: Any) -> None:
    """TypeError unless it is what a server takes."""
    if security is not None and not isinstance(security, RequestStateSecurity):
        raise TypeError("request_state_security is a RequestStateSecurity(keys=[...])")
