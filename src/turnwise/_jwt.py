"""A verifier of JWT access tokens, and the keys it trusts.

This room knows JSON Web Tokens and JSON Web Key Sets, and neither requests nor replies. It is the
only one that needs PyJWT (the extra `turnwise[jwt]`), so nothing else imports it.
"""

import asyncio
import http.client
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from turnwise.auth import RETRY_AFTER, AccessToken, checked_url, strings
from turnwise.errors import VerifierUnavailable

try:
    import jwt
except ImportError as missing:
    raise ImportError("JWTVerifier needs PyJWT, which comes with the extra turnwise[jwt]") from missing

logger = logging.getLogger("turnwise.auth")

# Algorithms whose tokens a public key can check and not make. HMAC is missing on purpose, since
# whoever can check an HMAC can forge it, and so is "none".
ASYMMETRIC = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA")
)

FRESH = 300  # seconds after which fetched keys are fetched again
TRUSTED = 3600  # seconds for which fetched keys are believed while their host is down
HUNT_EVERY = 60  # seconds between two fetches made for the sake of an unknown key id
FETCH_TIMEOUT = 5

KeySet = Mapping[tuple[str | None, str], jwt.PyJWK]


class Keys(Protocol):
    """Where keys come from."""

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key with this id that serves this algorithm."""
        ...


class JWTVerifier:
    """Verifies JWT access tokens with the public keys of their issuer.

    Keys come from `jwks_url`, fetched when needed, or from `jwks`, a JWKS document. A token must
    carry `iss` (exactly `issuer`), `aud` (at least one of `audience`), `exp`, and a client id in
    the first of `client_id_claims` that it has. Scopes are read from the first of `scope_claims`,
    a list or a text with spaces. `leeway`, in seconds, forgives clocks that disagree. The audience
    that matched becomes `AccessToken.resource`.

    Any other token gives None, with the reason in the log. While keys cannot be fetched, a token
    that none of the known keys can judge raises `VerifierUnavailable`.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_url: str | None = None,
        jwks: Mapping[str, Any] | None = None,
        algorithms: Sequence[str] = ("RS256", "PS256", "ES256", "ES384", "EdDSA"),
        leeway: float = 0,
        client_id_claims: Sequence[str] = ("client_id", "azp"),
        scope_claims: Sequence[str] = ("scope", "scp"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._algorithms = strings("algorithms", algorithms)
        if not self._algorithms or not ASYMMETRIC.issuperset(self._algorithms):
            raise ValueError(f"algorithms are some of {', '.join(sorted(ASYMMETRIC))}; not {algorithms!r}")
        self._issuer = issuer
        self._audience = (audience,) if isinstance(audience, str) else strings("audience", audience)
        if not issuer or not self._audience or not all(self._audience):
            raise ValueError("JWTVerifier needs an issuer and an audience")
        if not 0 <= leeway < math.inf:
            raise ValueError(f"leeway must be a number of seconds, not {leeway!r}")
        self._leeway = leeway
        self._client_id_claims = strings("client_id_claims", client_id_claims)
        self._scope_claims = strings("scope_claims", scope_claims)
        self._keys: Keys
        if jwks_url is not None and jwks is None:
            self._keys = FetchedKeys(checked_url("jwks_url", jwks_url), self._algorithms, clock)
        elif jwks is not None and jwks_url is None:
            self._keys = FixedKeys(jwks, self._algorithms)
        else:
            raise ValueError("JWTVerifier takes exactly one of jwks_url= and jwks=")

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token with its claims, or None if it is not valid here."""
        try:
            claims = await self._claims(token)
        except jwt.PyJWTError as error:
            logger.info("token refused: %r", error)
            return None
        client_id = _first(claims, self._client_id_claims)
        if not isinstance(client_id, str) or not client_id:
            logger.info("token refused: it has no client id in %s", " or ".join(self._client_id_claims))
            return None
        audiences = [claims["aud"]] if isinstance(claims["aud"], str) else claims["aud"]
        return AccessToken(
            token=token,
            client_id=client_id,
            scopes=_scopes(_first(claims, self._scope_claims)),
            expires_at=int(claims["exp"]) + math.ceil(self._leeway),
            resource=next(ours for ours in self._audience if ours in audiences),
            subject=claims.get("sub"),
            issuer=self._issuer,
            claims=claims,
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        if not token.isascii():
            raise jwt.DecodeError("not ASCII")
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise jwt.InvalidAlgorithmError(f"alg {algorithm!r:.40} is not accepted")
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise jwt.InvalidKeyError(f"no {algorithm} key has the id {kid!r:.80}")
        return jwt.decode(
            token,
            key,
            algorithms=self._algorithms,
            issuer=self._issuer,
            audience=self._audience,
            leeway=self._leeway,
            options={
                "require": ["iss", "aud", "exp"],
                # Only `exp` and `nbf` say when a token is valid; `iat` tells its age, and a clock
                # that runs a second ahead is no reason to refuse.
                "verify_iat": False,
                "enforce_minimum_key_length": True,
            },
        )


class FixedKeys:
    """Keys known in advance."""

    def __init__(self, jwks: Mapping[str, Any], algorithms: Sequence[str]) -> None:
        self._known = read_keys(jwks, algorithms)

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key with this id that serves this algorithm."""
        return _pick(self._known, kid, algorithm)


class FetchedKeys:
    """Keys behind a URL: fetched in a thread, one fetch at a time, and never at a stranger's pace.

    A token's key id is read before its signature can be checked, so anybody can name an unknown
    one. Keys rotate, so such a token may cause a fetch, but only once in `HUNT_EVERY` seconds.
    While the host is down, it is tried once in `RETRY_AFTER` seconds.
    """

    def __init__(self, url: str, algorithms: Sequence[str], clock: Callable[[], float]) -> None:
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_TIMEOUT)
        self._algorithms = algorithms
        self._clock = clock
        self._known: KeySet = {}
        self._is_down = True
        self._due = self._next_hunt = self._trusted_until = -math.inf
        self._fetch: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key with this id that serves this algorithm, fetched if need be and if it is time."""
        now = self._clock()
        if now >= self._due:
            await self._refresh()
        elif _pick(self._known, kid, algorithm) is None:
            if self._is_fetching():
                await self._refresh()
            elif not self._is_down and now >= self._next_hunt:
                self._next_hunt = now + HUNT_EVERY
                await self._refresh()
        key = _pick(self._known, kid, algorithm)
        if key is None and self._is_down:
            raise VerifierUnavailable(f"no keys from {self._client.uri}")
        return key

    def _is_fetching(self) -> bool:
        return self._fetch is not None and not self._fetch.done()

    async def _refresh(self) -> None:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.create_task(self._replace_known())
        # Others may wait for the same fetch: one caller's hanging up must not end it.
        await asyncio.shield(self._fetch)

    async def _replace_known(self) -> None:
        self._is_down, self._due = True, self._clock() + RETRY_AFTER
        try:
            document = await asyncio.to_thread(self._client.fetch_data)
            self._known = read_keys(document, self._algorithms)
        except (jwt.PyJWTError, OSError, ValueError, http.client.HTTPException) as error:
            logger.warning("no keys from %s: %r", self._client.uri, error)
            if self._clock() >= self._trusted_until:
                self._known = {}
        else:
            self._is_down, self._due = False, self._clock() + FRESH
            self._trusted_until = self._clock() + TRUSTED


def read_keys(jwks: Mapping[str, Any], algorithms: Sequence[str]) -> KeySet:
    """The signing keys of a JWKS document, by key id and by the algorithm each serves.

    A key that names its own `alg` serves only that; any other serves each algorithm that fits its
    type. Keys that serve none are skipped: a document may hold keys for other uses.
    """
    found: dict[tuple[str | None, str], jwt.PyJWK] = {}
    entries = jwks.get("keys")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        kid = entry.get("kid")
        for algorithm in algorithms:
            if entry.get("alg", algorithm) == algorithm and isinstance(kid, str | None):
                with suppress(jwt.PyJWTError):
                    found[kid, algorithm] = jwt.PyJWK(entry, algorithm)
    if not found:
        raise ValueError(f"the JWKS has no signing key for {', '.join(algorithms)}")
    return found


def _pick(known: KeySet, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
    if kid is not None:
        return known.get((kid, algorithm))
    # RFC 7515 makes `kid` optional. Without it, the key is clear only if there is just one.
    fitting = [key for (_, served), key in known.items() if served == algorithm]
    return fitting[0] if len(fitting) == 1 else None


def _first(claims: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((claims[name] for name in names if claims.get(name) is not None), None)


def _scopes(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [scope for scope in claim if isinstance(scope, str)] if isinstance(claim, list) else []
