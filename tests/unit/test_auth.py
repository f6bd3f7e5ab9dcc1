"""Bearer tokens at the door: what is admitted, how the rest is refused, and what a JWT must prove."""

import asyncio
import base64
import hashlib
import hmac
import importlib
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import example, given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from turnwise._jwt import FRESH, HUNT_EVERY, TRUSTED, JWTVerifier
from turnwise.auth import (
    MAX_TOKEN,
    RETRY_AFTER,
    AccessToken,
    AuthSettings,
    Gate,
    Refusal,
    metadata_path,
    protected_resource_metadata,
)
from turnwise.errors import VerifierUnavailable

HERE = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
NOW = 1_800_000_000.0


def settings(**changes: Any) -> AuthSettings:
    return AuthSettings(**{"issuer_url": ISSUER, "resource_server_url": HERE} | changes)


class KnownTokens:
    """A verifier that knows some tokens by heart, and remembers what it was asked."""

    def __init__(self, *known: AccessToken) -> None:
        self.known = {token.token: token for token in known}
        self.asked: list[str] = []

    async def verify_token(self, token: str) -> AccessToken | None:
        self.asked.append(token)
        return self.known.get(token)


class Raising:
    """A verifier that raises what it is told to."""

    def __init__(self, make: Callable[[str], Exception]) -> None:
        self.make = make

    async def verify_token(self, token: str) -> AccessToken | None:
        raise self.make(token)


ALICE = AccessToken(
    "tok-alice", "app", ["read"], expires_at=int(NOW) + 60, resource=HERE, subject="alice", issuer=ISSUER
)


def admit(*values: bytes, verifier: Any = None, now: float = NOW, **changes: Any) -> AccessToken | Refusal:
    gate = Gate(verifier or KnownTokens(ALICE), settings(**changes))
    return asyncio.run(gate.admit(values, now))


def refused(outcome: AccessToken | Refusal | None) -> Refusal:
    assert isinstance(outcome, Refusal)
    return outcome


def challenge(refusal: Refusal) -> dict[str, str]:
    assert refusal.challenge is not None
    scheme, _, rest = refusal.challenge.partition(" ")
    assert scheme == "Bearer"
    assert re.fullmatch(r'(\w+="[^"\\]*")(, \w+="[^"\\]*")*', rest)
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


# Tokens


def test_a_token_never_shows_in_its_repr() -> None:
    assert "tok-alice" not in repr(ALICE)
    assert "alice" in repr(ALICE)


def test_an_access_token_is_frozen_hashable_and_keeps_scopes_as_a_tuple() -> None:
    token = replace(ALICE, claims={"iss": ISSUER})
    assert token.scopes == ("read",)
    assert len({token, token}) == 1
    with pytest.raises(FrozenInstanceError):
        token.client_id = "other"  # type: ignore[misc]


def test_one_text_is_not_taken_for_a_list_of_scopes() -> None:
    with pytest.raises(ValueError, match="not one string"):
        AccessToken("t", "app", "read write")


def test_a_refreshed_token_has_the_principal_of_the_one_it_replaces() -> None:
    refreshed = replace(ALICE, token="tok-2", expires_at=None, scopes=("read", "write"))
    assert refreshed.principal == ALICE.principal


@pytest.mark.parametrize(
    "other",
    [
        replace(ALICE, subject="bob"),
        replace(ALICE, subject=None),
        replace(ALICE, client_id="other"),
        replace(ALICE, issuer="https://evil.example"),
        replace(ALICE, issuer=None),
        replace(ALICE, client_id='app","https://login.example.com', issuer=None),
    ],
)
def test_another_user_client_or_issuer_is_another_principal(other: AccessToken) -> None:
    assert other.principal != ALICE.principal


def test_the_issuer_of_a_principal_may_come_from_the_claims() -> None:
    assert replace(ALICE, issuer=None, claims={"iss": ISSUER}).principal == ALICE.principal
    assert json.loads(ALICE.principal) == ["app", ISSUER, "alice"]


# Settings


@pytest.mark.parametrize("name", ["issuer_url", "resource_server_url", "resource_documentation"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp.example.com",
        "/mcp",
        "ftp://mcp.example.com",
        "http://mcp.example.com",
        "http://localhost.example.com",
        "https://",
        "https://me:secret@mcp.example.com",
        "https://mcp.example.com#part",
        "https://mcp.example.com/#",
        "https://mcp.example.com:99999",
        "https://[::1",
        "https://mcp.example.com/a b",
        'https://mcp.example.com/"',
        "https://mcp.example.com/\r\nX: y",
        "https://mcp.example.com/é",
    ],
)
def test_a_url_that_cannot_be_published_is_refused_at_construction(name: str, url: str) -> None:
    with pytest.raises(ValueError, match=name):
        settings(**{name: url})


@pytest.mark.parametrize("name", ["issuer_url", "resource_server_url"])
def test_identifiers_have_no_query(name: str) -> None:
    with pytest.raises(ValueError, match="query"):
        settings(**{name: "https://example.com/?a=1"})


@pytest.mark.parametrize("url", ["http://localhost:8000/mcp", "http://127.0.0.1", "http://[::1]:8000/mcp"])
def test_plain_http_is_for_this_machine_only(url: str) -> None:
    assert settings(resource_server_url=url, issuer_url=url).resource_server_url == url


def test_an_authorization_server_must_be_named() -> None:
    with pytest.raises(ValueError, match="authorization server"):
        AuthSettings(resource_server_url=HERE)


def test_several_authorization_servers_are_listed_once_each_and_in_order() -> None:
    two = settings(authorization_servers=["https://b.example", ISSUER])
    assert two.authorization_servers == (ISSUER, "https://b.example")
    assert AuthSettings(resource_server_url=HERE, authorization_servers=[ISSUER]).issuer_url == ISSUER


@pytest.mark.parametrize("scopes", [["a b"], [""], ['"'], ["a\\b"], ["é"], ["offline_access"], "read"])
@pytest.mark.parametrize("name", ["required_scopes", "scopes_supported"])
def test_text_that_is_no_scope_to_require_is_refused_at_construction(name: str, scopes: Any) -> None:
    with pytest.raises(ValueError, match=name):
        settings(**{name: scopes})


# The document at the well-known path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://mcp.example.com", "/.well-known/oauth-protected-resource"),
        ("https://mcp.example.com/", "/.well-known/oauth-protected-resource"),
        ("https://example.com/public/mcp", "/.well-known/oauth-protected-resource/public/mcp"),
        ("https://example.com/mcp/", "/.well-known/oauth-protected-resource/mcp/"),
    ],
)
def test_the_well_known_part_stands_before_the_path_of_the_resource(url: str, path: str) -> None:
    assert metadata_path(url) == path


def test_the_document_names_the_resource_as_it_was_written() -> None:
    assert protected_resource_metadata(settings(resource_server_url="https://MCP.example.com/")) == {
        "resource": "https://MCP.example.com/",
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
    }


def test_the_document_tells_scopes_name_and_documentation() -> None:
    told = protected_resource_metadata(
        settings(
            required_scopes=["read"],
            resource_name="Weather",
            resource_documentation="https://example.com/docs?v=1",
        )
    )
    assert told["scopes_supported"] == ["read"]
    assert told["resource_name"] == "Weather"
    assert told["resource_documentation"] == "https://example.com/docs?v=1"


def test_supported_scopes_may_differ_from_required_ones() -> None:
    told = protected_resource_metadata(settings(required_scopes=["read"], scopes_supported=["read", "write"]))
    assert told["scopes_supported"] == ["read", "write"]
    assert "scopes_supported" not in protected_resource_metadata(
        settings(required_scopes=["read"], scopes_supported=[])
    )


# The gate


@pytest.mark.parametrize("value", [b"Bearer tok-alice", b"bearer tok-alice", b"BEARER   tok-alice \t"])
def test_a_valid_token_is_admitted(value: bytes) -> None:
    assert admit(value) is ALICE


@pytest.mark.parametrize("values", [(), (b"",), (b"Basic dTpw",), (b"Negotiate " + b"x" * 20_000,)])
def test_without_a_bearer_token_the_challenge_has_no_error_code(values: Sequence[bytes]) -> None:
    refusal = refused(admit(*values, required_scopes=["read", "write"]))
    assert (refusal.status, refusal.error) == (401, None)
    assert challenge(refusal) == {"scope": "read write", "resource_metadata": METADATA}


@pytest.mark.parametrize(
    "values",
    [
        (b"Bearer tok-alice", b"Bearer tok-alice"),
        (b"Bearer tok-alice", b"Basic dTpw"),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer\ttok-alice",),
        (b"Bearer tok-alice, Bearer tok-alice",),
        (b"Bearer tok alice",),
        (b"Bearer tok-alice\x00",),
        (b"Bearer tok-alice\r\nX: y",),
        (b"Bearer tok-alice\n",),
        (b"Bearer t\xc3\xb6k",),
        (b'Bearer "tok-alice"',),
        (b"Bearer " + b"x" * (MAX_TOKEN + 1),),
    ],
)
def test_a_malformed_header_is_a_bad_request_and_reaches_no_verifier(values: Sequence[bytes]) -> None:
    verifier = KnownTokens(ALICE)
    refusal = refused(admit(*values, verifier=verifier))
    assert (refusal.status, refusal.error) == (400, "invalid_request")
    assert challenge(refusal)["error"] == "invalid_request"
    assert challenge(refusal)["resource_metadata"] == METADATA
    assert verifier.asked == []


def test_the_longest_token_still_reaches_the_verifier() -> None:
    verifier = KnownTokens()
    admit(b"Bearer " + b"x" * MAX_TOKEN, verifier=verifier)
    assert verifier.asked == ["x" * MAX_TOKEN]


def test_an_unknown_token_is_invalid() -> None:
    refusal = refused(admit(b"Bearer other"))
    assert (refusal.status, refusal.error) == (401, "invalid_token")
    assert challenge(refusal) == {
        "error": "invalid_token",
        "error_description": refusal.description,
        "resource_metadata": METADATA,
    }
    assert refusal.headers == [(b"www-authenticate", str(refusal.challenge).encode())]


def test_a_token_is_refused_from_the_second_it_expires_even_if_its_verifier_let_it_pass() -> None:
    assert admit(b"Bearer tok-alice", now=NOW + 59.9) is ALICE
    assert refused(admit(b"Bearer tok-alice", now=NOW + 60)).error == "invalid_token"


def test_a_token_that_never_expires_is_not_refused_for_its_age() -> None:
    eternal = replace(ALICE, expires_at=None)
    assert admit(b"Bearer tok-alice", verifier=KnownTokens(eternal), now=9e12) is eternal


@pytest.mark.parametrize(
    "resource",
    [
        None,
        "",
        "https://other.example.com/mcp",
        "https://mcp.example.com",
        "https://mcp.example.com/mcp/admin",
        "https://mcp.example.com/MCP",
        "https://mcp.example.com/mcp?x=1",
        "https://mcp.example.com/mcp#x",
        "https://me@mcp.example.com/mcp",
        "https://mcp.example.com/m\ncp",
        "http://mcp.example.com/mcp",
        "https://[",
        "api://mcp",
    ],
)
def test_a_token_for_another_resource_or_for_none_is_refused(resource: str | None) -> None:
    verifier = KnownTokens(replace(ALICE, resource=resource))
    refusal = refused(admit(b"Bearer tok-alice", verifier=verifier))
    assert (refusal.status, refusal.error) == (401, "invalid_token")


@pytest.mark.parametrize(
    "resource",
    ["HTTPS://MCP.Example.com/mcp", "https://mcp.example.com:443/mcp", "https://mcp.example.com/mcp/"],
)
def test_spellings_of_one_resource_are_one_resource(resource: str) -> None:
    token = replace(ALICE, resource=resource)
    assert admit(b"Bearer tok-alice", verifier=KnownTokens(token)) is token


@pytest.mark.parametrize("resource", [None, "api://mcp"])
def test_the_resource_goes_unchecked_only_where_the_settings_say_so(resource: str | None) -> None:
    token = replace(ALICE, resource=resource)
    assert admit(b"Bearer tok-alice", verifier=KnownTokens(token), validate_token_resource=False) is token


def test_missing_scopes_are_all_told_in_one_challenge() -> None:
    refusal = refused(admit(b"Bearer tok-alice", required_scopes=["read", "write", "admin"]))
    assert (refusal.status, refusal.error) == (403, "insufficient_scope")
    assert challenge(refusal)["scope"] == "read write admin"
    assert challenge(refusal)["error"] == "insufficient_scope"
    assert challenge(refusal)["resource_metadata"] == METADATA


def test_a_broader_scope_grants_the_narrower_ones_that_it_implies() -> None:
    implied = {"admin": ["write"], "write": ["read"], "read": ["admin"]}
    admitted = admit(b"Bearer tok-alice", required_scopes=["write"], implied_scopes=implied)
    assert admitted is ALICE
    assert refused(admit(b"Bearer tok-alice", required_scopes=["write"])).status == 403


def test_one_operation_may_require_more_than_the_server_does() -> None:
    gate = Gate(KnownTokens(), settings(required_scopes=["read"]))
    assert gate.require(ALICE, "read") is None
    assert challenge(refused(gate.require(ALICE, "write")))["scope"] == "read write"


def test_an_expired_token_is_not_told_about_scopes_first() -> None:
    assert refused(admit(b"Bearer tok-alice", now=NOW + 99, required_scopes=["admin"])).status == 401


def test_a_verifier_that_cannot_know_is_no_fault_of_the_client() -> None:
    verifier = Raising(lambda _: VerifierUnavailable("introspection is down", retry_after=7))
    refusal = refused(admit(b"Bearer tok-alice", verifier=verifier))
    assert (refusal.status, refusal.error, refusal.challenge) == (503, None, None)
    assert refusal.headers == [(b"retry-after", b"7")]


@pytest.mark.parametrize("token", ["tok-alice", "a+b/c=="])
def test_a_verifier_that_raises_is_logged_without_the_token(token: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(text: str) -> Exception:
        error = RuntimeError(f"cannot reach https://idp/introspect?token={text}")
        error.__cause__ = KeyError(text)
        return error

    refusal = refused(admit(b"Bearer " + token.encode(), verifier=Raising(fail)))
    assert refusal.status == 503
    assert refusal.retry_after == RETRY_AFTER
    assert "RuntimeError: cannot reach https://idp/introspect?token=[token]" in caplog.text
    assert token not in caplog.text


def test_a_percent_encoded_token_is_not_logged_either(caplog: pytest.LogCaptureFixture) -> None:
    verifier = Raising(lambda _: VerifierUnavailable("GET /introspect?token=a%2Bb%2Fc%3D%3D failed"))
    admit(b"Bearer a+b/c==", verifier=verifier)
    assert "token=[token] failed" in caplog.text


def test_a_verifier_that_returns_something_else_admits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        async def verify_token(self, token: str) -> Any:
            return {"client_id": "app"}

    assert refused(admit(b"Bearer tok-alice", verifier=Wrong())).status == 503
    assert "verify_token returned dict" in caplog.text


def test_being_cancelled_is_not_taken_for_a_failing_verifier() -> None:
    class Hanging:
        async def verify_token(self, token: str) -> AccessToken | None:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        admit(b"Bearer tok-alice", verifier=Hanging())


@given(st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=40).map(b"Bearer ".__add__)), max_size=3))
@example([b"Bearer tok-alice"])
@example([b"Bearer other"])
def test_any_bytes_are_admitted_or_refused_with_a_well_formed_challenge(values: list[bytes]) -> None:
    verifier = KnownTokens(ALICE)
    outcome = admit(*values, verifier=verifier)
    assert all(re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token) for token in verifier.asked)
    if isinstance(outcome, Refusal):
        assert outcome.status in (400, 401)
        assert challenge(outcome)["resource_metadata"] == METADATA


# JSON Web Tokens


RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def rsa_jwk(kid: str | None = "rsa", key: rsa.RSAPrivateKey = RSA_KEY, **more: Any) -> dict[str, Any]:
    jwk = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | more
    return jwk if kid is None else jwk | {"kid": kid}


def ec_jwk() -> dict[str, Any]:
    return ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True) | {"kid": "ec"}


def ed_jwk() -> dict[str, Any]:
    return OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True) | {"kid": "ed"}


JWKS = {"keys": [rsa_jwk(), ec_jwk(), ed_jwk()]}


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims, changed; a change to None leaves the claim out."""
    good = {
        "iss": ISSUER,
        "aud": HERE,
        "exp": int(time.time()) + 600,
        "sub": "alice",
        "client_id": "app",
        "scope": "read write",
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def sign(
    key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", headers: Any = None, **changes: Any
) -> str:
    named = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers=named | (headers or {}))


def verifier(**changes: Any) -> JWTVerifier:
    source = {} if "jwks_url" in changes else {"jwks": JWKS}
    return JWTVerifier(**{"issuer": ISSUER, "audience": HERE} | source | changes)


def verify(token: str, **changes: Any) -> AccessToken | None:
    return asyncio.run(verifier(**changes).verify_token(token))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_signed_token_is_read_into_an_access_token() -> None:
    token = sign()
    read = verify(token)
    assert read is not None
    assert read.token == token
    assert read.client_id == "app"
    assert read.scopes == ("read", "write")
    assert (read.subject, read.issuer, read.resource) == ("alice", ISSUER, HERE)
    assert read.claims is not None
    assert read.expires_at == read.claims["exp"]


def test_the_gate_admits_what_the_jwt_verifier_vouches_for() -> None:
    outcome = admit(b"Bearer " + sign().encode(), verifier=verifier(), now=time.time())
    assert isinstance(outcome, AccessToken)
    assert outcome.subject == "alice"


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (RSA_KEY, "PS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
)
def test_rsa_elliptic_and_edwards_signatures_are_understood(key: Any, algorithm: str, kid: str) -> None:
    assert verify(sign(key, algorithm, kid)) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": None},
        {"iss": "https://evil.example"},
        {"iss": ISSUER + "/"},
        {"aud": None},
        {"aud": "https://other.example"},
        {"aud": ["https://other.example"]},
        {"aud": []},
        {"aud": HERE + "/admin"},
        {"exp": None},
        {"exp": int(time.time()) - 1},
        {"exp": "soon"},
        {"nbf": int(time.time()) + 600},
        {"client_id": None},
        {"client_id": ""},
        {"client_id": 7},
    ],
)
def test_a_token_that_lacks_or_fails_a_claim_is_invalid(changes: dict[str, Any]) -> None:
    assert verify(sign(**changes)) is None


def test_a_subject_that_is_no_text_is_invalid() -> None:
    assert verify(jwt.PyJWS().encode(json.dumps(claims(sub=7)).encode(), RSA_KEY, "RS256", {"kid": "rsa"})) is None


def test_a_token_without_a_subject_stands_for_its_client() -> None:
    read = verify(sign(sub=None))
    assert read is not None
    assert json.loads(read.principal) == ["app", ISSUER, None]


def test_a_clock_that_runs_ahead_at_the_issuer_does_no_harm() -> None:
    assert verify(sign(iat=int(time.time()) + 5)) is not None


def test_leeway_reaches_through_the_verifier_and_the_gate() -> None:
    token = sign(exp=int(time.time()) - 20)
    assert verify(token, leeway=10) is None
    outcome = admit(b"Bearer " + token.encode(), verifier=verifier(leeway=60), now=time.time())
    assert isinstance(outcome, AccessToken)


def test_the_audience_that_matched_becomes_the_resource() -> None:
    read = verify(sign(aud=[HERE, "x"]), audience=["https://mcp.example.com", HERE])
    assert read is not None
    assert read.resource == HERE
    one = verify(sign(aud=HERE), audience=["https://mcp.example.com", HERE])
    assert one is not None
    assert one.resource == HERE


@pytest.mark.parametrize(
    ("changes", "client"),
    [
        ({"azp": "other"}, "app"),
        ({"client_id": None, "azp": "other"}, "other"),
    ],
)
def test_client_id_claims_are_tried_in_order(changes: dict[str, Any], client: str) -> None:
    read = verify(sign(**changes))
    assert read is not None
    assert read.client_id == client


def test_the_client_id_claim_can_be_named() -> None:
    read = verify(sign(cid="okta-app"), client_id_claims=["cid"])
    assert read is not None
    assert read.client_id == "okta-app"


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [
        ({"scope": "a  b"}, ("a", "b")),
        ({"scope": ["a", "b"]}, ("a", "b")),
        ({"scope": None, "scp": ["a"]}, ("a",)),
        ({"scope": None, "scp": "a b"}, ("a", "b")),
        ({"scope": None}, ()),
        ({"scope": {"a": 1}}, ()),
        ({"scope": ["a", 7]}, ("a",)),
    ],
)
def test_scopes_come_as_text_or_as_a_list(changes: dict[str, Any], scopes: tuple[str, ...]) -> None:
    read = verify(sign(**changes))
    assert read is not None
    assert read.scopes == scopes


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], ["RS256", "HS512"], ["rs256"], [], "RS256"])
def test_algorithms_that_anybody_could_forge_cannot_be_asked_for(algorithms: Any) -> None:
    with pytest.raises(ValueError, match="algorithms"):
        verifier(algorithms=algorithms)


def test_an_unsigned_token_is_invalid() -> None:
    for alg in ("none", "None", "NONE"):
        head = b64(json.dumps({"alg": alg, "kid": "rsa"}).encode())
        assert verify(f"{head}.{b64(json.dumps(claims()).encode())}.") is None


def test_a_public_key_cannot_be_used_as_a_shared_secret() -> None:
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = ".".join(b64(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "rsa"}, claims()))
    assert verify(f"{body}.{b64(hmac.new(pem, body.encode(), hashlib.sha256).digest())}") is None


def test_a_shared_secret_in_the_key_set_verifies_nothing() -> None:
    secret = {"kty": "oct", "kid": "shared", "k": b64(b"s" * 32), "alg": "HS256"}
    token = sign(b"s" * 32, "HS256", "shared")
    assert verify(token, jwks={"keys": [secret, rsa_jwk()]}) is None
    with pytest.raises(ValueError, match="no signing key"):
        verifier(jwks={"keys": [secret]})


def test_a_stranger_s_signature_under_a_known_key_id_is_invalid() -> None:
    assert verify(sign(STRANGER)) is None


def test_a_changed_payload_is_invalid() -> None:
    head, _, signature = sign().split(".")
    forged = b64(json.dumps(claims(sub="root")).encode())
    assert verify(f"{head}.{forged}.{signature}") is None


def test_a_token_may_not_choose_a_key_of_another_type() -> None:
    assert verify(sign(EC_KEY, "ES256", "rsa")) is None
    assert verify(sign(RSA_KEY, "RS256", "ec")) is None


def test_a_key_that_names_its_algorithm_serves_no_other() -> None:
    bound = {"keys": [rsa_jwk(alg="RS256")]}
    assert verify(sign(), jwks=bound) is not None
    assert verify(sign(algorithm="PS256"), jwks=bound) is None


def test_an_algorithm_outside_the_list_is_invalid_however_well_signed() -> None:
    assert verify(sign(), algorithms=["ES256"]) is None


def test_keys_for_encryption_do_not_sign() -> None:
    assert verify(sign(kid="enc"), jwks={"keys": [rsa_jwk("enc", use="enc"), ec_jwk()]}) is None


def test_a_short_rsa_key_is_not_trusted() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = sign(short)
    assert verify(token, jwks={"keys": [rsa_jwk(key=short)]}) is None


def test_without_a_key_id_the_key_must_be_the_only_one() -> None:
    assert verify(sign(kid=None), jwks={"keys": [rsa_jwk(None)]}) is not None
    assert verify(sign(kid=None), jwks={"keys": [rsa_jwk("a"), rsa_jwk("b", STRANGER)]}) is None


def test_a_critical_header_that_nobody_understands_is_invalid() -> None:
    assert verify(sign(headers={"crit": ["exp2"], "exp2": 1})) is None


def test_keys_named_inside_the_token_are_ignored() -> None:
    headers = {
        "jwk": rsa_jwk("x", STRANGER),
        "jku": "https://evil.example/jwks",
        "x5u": "https://evil.example",
    }
    assert verify(sign(STRANGER, headers=headers)) is None


@given(st.one_of(st.text(max_size=80), st.lists(st.binary(max_size=40).map(b64), max_size=4).map(".".join)))
@example(b64(b"[" * 12_000) + ".e30.")
@example(b64(b'{"alg":["RS256"],"kid":{}}') + ".e30.")
@example(b64(b'{"alg":"RS256","kid":7}') + ".e30.")
@example(b64(b'{"alg":"RS256","kid":"rsa"}') + "." + b64(b"[" * 12_000) + ".AAAA")
@example(b64(b'{"alg":"ES256","kid":"ec"}') + ".e30.AAAA")
@example(b64(b"\xff\xfe") + ".e30.")
@example("\ud800.\ud800.")
def test_any_text_is_an_invalid_token_and_never_an_error(text: str) -> None:
    assert verify(text) is None


def test_the_reason_is_logged_and_the_token_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = sign(aud="https://other.example")
    assert verify(token) is None
    assert "InvalidAudienceError" in caplog.text
    assert not any(part in caplog.text for part in token.split("."))


def test_a_key_id_cannot_write_lines_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert verify(sign(kid="x\nroot logged in " + "y" * 500)) is None
    assert "\nroot" not in caplog.text
    assert "y" * 100 not in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"jwks_url": ISSUER + "/jwks", "jwks": JWKS},
        {"jwks": None},
        {"jwks": {}},
        {"jwks": {"keys": "none"}},
        {"jwks": {"keys": [7, {"kty": "RSA"}, {"kid": 7}]}},
        {"jwks_url": "http://login.example.com/jwks"},
        {"jwks_url": "file:///etc/passwd"},
        {"issuer": ""},
        {"audience": ""},
        {"audience": []},
        {"leeway": -1},
        {"leeway": float("nan")},
        {"client_id_claims": "cid"},
    ],
)
def test_a_verifier_that_could_not_verify_is_refused_at_construction(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        verifier(**changes)


def test_without_pyjwt_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "turnwise._jwt")
    with pytest.raises(ImportError, match=r"turnwise\[jwt\]"):
        importlib.import_module("turnwise._jwt")


# Keys behind a URL


@dataclass
class Host:
    """A JWKS host on this machine: what it serves, how often it was asked, and whether it makes one wait."""

    keys: list[dict[str, Any]]
    status: int = 200
    body: bytes | None = None
    hits: int = 0
    asked: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    now: float = 0.0

    def clock(self) -> float:
        return self.now

    def verifier(self) -> JWTVerifier:
        return verifier(jwks_url=self.url, clock=self.clock)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    serving = Host([rsa_jwk()])
    serving.open.set()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            serving.hits += 1
            serving.asked.set()
            serving.open.wait(10)
            body = serving.body if serving.body is not None else json.dumps({"keys": serving.keys}).encode()
            self.send_response(serving.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        serving.url = f"http://127.0.0.1:{server.server_port}/jwks"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.open.set()
        server.shutdown()
        thread.join()


def test_keys_are_fetched_at_the_first_token_and_then_kept(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        assert host.hits == 0
        for _ in range(5):
            assert await verifier.verify_token(sign()) is not None
        assert host.hits == 1
        host.now += FRESH
        assert await verifier.verify_token(sign()) is not None
        assert host.hits == 2

    asyncio.run(scenario())


def test_a_rotated_key_is_found_by_one_more_fetch(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        assert await verifier.verify_token(sign()) is not None
        host.keys = [rsa_jwk("new", STRANGER)]
        assert await verifier.verify_token(sign(STRANGER, kid="new")) is not None
        assert await verifier.verify_token(sign()) is None
        assert host.hits == 2

    asyncio.run(scenario())


def test_a_flood_of_unknown_key_ids_costs_the_host_one_fetch_a_minute(host: Host) -> None:
    async def flood(verifier: JWTVerifier, name: str) -> None:
        tokens = [sign(STRANGER, kid=f"{name}-{n}") for n in range(50)]
        assert set(await asyncio.gather(*map(verifier.verify_token, tokens))) == {None}
        for token in tokens:
            assert await verifier.verify_token(token) is None

    async def scenario() -> None:
        verifier = host.verifier()
        assert await verifier.verify_token(sign()) is not None
        await flood(verifier, "a")
        assert host.hits == 2
        host.now += HUNT_EVERY - 1
        await flood(verifier, "b")
        assert host.hits == 2
        host.now += 1
        await flood(verifier, "c")
        assert host.hits == 3
        assert await verifier.verify_token(sign()) is not None

    asyncio.run(scenario())


def test_a_burst_after_a_rotation_waits_for_the_one_fetch_under_way(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        assert await verifier.verify_token(sign()) is not None
        host.keys = [rsa_jwk("new", STRANGER)]
        token = sign(STRANGER, kid="new")
        assert None not in await asyncio.gather(*(verifier.verify_token(token) for _ in range(20)))
        assert host.hits == 2

    asyncio.run(scenario())


def test_while_keys_are_fetched_the_loop_goes_on_and_known_keys_serve(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        assert await verifier.verify_token(sign()) is not None
        host.open.clear()
        host.asked.clear()
        waiting = asyncio.create_task(verifier.verify_token(sign(STRANGER, kid="unknown")))
        assert await asyncio.to_thread(host.asked.wait, 10)
        assert await verifier.verify_token(sign()) is not None
        assert not waiting.done()
        host.open.set()
        assert await waiting is None

    asyncio.run(scenario())


def test_a_caller_who_hangs_up_does_not_end_the_fetch_of_the_others(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        host.open.clear()
        first = asyncio.create_task(verifier.verify_token(sign()))
        assert await asyncio.to_thread(host.asked.wait, 10)
        second = asyncio.create_task(verifier.verify_token(sign()))
        first.cancel()
        host.open.set()
        assert await second is not None
        assert first.cancelled()
        assert host.hits == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (404, b"{}"),
        (302, b""),
        (200, b"not json"),
        (200, b"\xff\xfe\xfd"),
        (200, b"[]"),
        (200, b'{"keys": []}'),
        (200, b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}]}'),
    ],
)
def test_while_the_host_gives_no_keys_nobody_can_tell(host: Host, status: int, body: bytes) -> None:
    host.status, host.body = status, body

    async def scenario() -> None:
        verifier = host.verifier()
        for _ in range(5):
            with pytest.raises(VerifierUnavailable):
                await verifier.verify_token(sign())
        assert host.hits == 1
        host.status, host.body = 200, None
        host.now += RETRY_AFTER
        assert await verifier.verify_token(sign()) is not None
        assert host.hits == 2

    asyncio.run(scenario())


def test_a_host_that_refuses_connections_gives_503_with_retry_after(host: Host) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as gone:
        url = f"http://127.0.0.1:{gone.server_port}/jwks"
    refusal = refused(admit(b"Bearer " + sign().encode(), verifier=verifier(jwks_url=url), now=time.time()))
    assert (refusal.status, refusal.retry_after) == (503, RETRY_AFTER)


def test_known_keys_outlive_an_outage_for_an_hour_and_no_longer(host: Host) -> None:
    async def scenario() -> None:
        verifier = host.verifier()
        assert await verifier.verify_token(sign()) is not None
        host.status = 503
        host.now = TRUSTED - 1
        assert await verifier.verify_token(sign()) is not None
        with pytest.raises(VerifierUnavailable):
            await verifier.verify_token(sign(STRANGER, kid="unknown"))
        assert host.hits == 2
        host.now = TRUSTED + RETRY_AFTER
        with pytest.raises(VerifierUnavailable):
            await verifier.verify_token(sign())

    asyncio.run(scenario())


def test_one_verifier_may_serve_one_event_loop_after_another(host: Host) -> None:
    verifier = host.verifier()
    assert asyncio.run(verifier.verify_token(sign())) is not None
    host.now += FRESH
    assert asyncio.run(verifier.verify_token(sign())) is not None


def test_an_algorithm_that_is_not_accepted_costs_the_host_nothing(host: Host) -> None:
    assert asyncio.run(host.verifier().verify_token(sign(b"s" * 32, "HS256", "rsa"))) is None
    assert host.hits == 0


# The guide


def test_every_sample_of_the_guide_is_a_file_and_the_document_it_shows_is_the_one_served() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/guides/auth.md").read_text(encoding="utf-8")
    files = {path.read_text(encoding="utf-8") for path in (root / "docs_src/auth").glob("*.py")}
    assert set(re.findall(r"```python\n(.*?)```", page, re.DOTALL)) == files
    (document,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(document) == protected_resource_metadata(settings(required_scopes=["notes:read"]))
