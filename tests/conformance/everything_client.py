"""The client that the official conformance suite starts: `python everything_client.py URL`.

The suite serves URL for one scenario, named in the environment, and judges what arrives there; it takes an exit
code other than 0 for a failure. OAuth is not Turnwise's own: `Client(auth=...)` takes any `httpx2.Auth`, here those
of the official SDK, and where that has none, a few lines of this file.
"""

import asyncio
import base64
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import jwt
import mcp_types as types
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from turnwise import AuthorizationFailed, Client, UnexpectedStatus

Told = Mapping[str, Any]
"""What the suite tells a client beside the URL: credentials, calls to make."""
Run = Callable[[str, Told], Awaitable[None]]

DEADLINE_SECONDS = 25
CALLBACK = "http://localhost:3000/callback"
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"
SAMPLES: Told = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}


# Tools, prompts, resources


def fill(schema: Told) -> dict[str, Any]:
    """Values for an object schema: its defaults, or else a sample of the type."""
    members = schema.get("properties", {})
    return {name: member.get("default", SAMPLES.get(member.get("type"))) for name, member in members.items()}


async def accept(asking: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """A user who fills in every form."""
    assert isinstance(params, types.ElicitRequestFormParams)
    return types.ElicitResult(action="accept", content=fill(params.requested_schema))


async def sample(asking: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """A model of few words."""
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="x"), model="none")


async def list_roots(asking: Any) -> types.ListRootsResult:
    """A client without folders."""
    return types.ListRootsResult(roots=[])


async def list_tools(url: str, told: Told) -> None:
    """Connect and list: all there is to do where the suite watches for what must not happen."""
    async with Client(url) as client:
        await client.list_tools()


def calling(name: str, arguments: Told | None = None) -> Run:
    """Scenarios of one plain call."""

    async def call(url: str, told: Told) -> None:
        async with Client(url, elicitation_callback=accept) as client:
            await client.list_tools()
            await client.call_tool(name, dict(arguments or {}))

    return call


async def declare_everything(url: str, told: Told) -> None:
    """Every request says what the client is and can; the first is turned away for its version, and sent again."""
    client = Client(url, elicitation_callback=accept, sampling_callback=sample, list_roots_callback=list_roots)
    async with client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def visit_everything(url: str, told: Told) -> None:
    """Use all there is, so that the headers of every method are seen."""
    async with Client(url) as client:
        for tool in [tool async for tool in client.iter_tools()]:
            await client.call_tool(tool.name)
        for resource in [resource async for resource in client.iter_resources()]:
            await client.read_resource(resource.uri)
        for prompt in [prompt async for prompt in client.iter_prompts()]:
            await client.get_prompt(prompt.name)


async def call_as_told(url: str, told: Told) -> None:
    """The suite's own arguments, which the client mirrors into headers where a tool's schema asks for it."""
    async with Client(url) as client:
        await client.list_tools()
        for call in told["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_whatever_is_listed(url: str, told: Told) -> None:
    """Tools with a malformed `x-mcp-header` are not listed, and so not called."""
    async with Client(url) as client:
        for tool in [tool async for tool in client.iter_tools()]:
            await client.call_tool(tool.name, fill(tool.input_schema))


async def answer_questions(url: str, told: Told) -> None:
    """Two calls of two rounds, one of a single round between them, and a result that does not name its type."""
    async with Client(url, elicitation_callback=accept) as client:
        await client.list_tools()
        for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
            result = await client.call_tool(f"test_mrtr_{name}")
            assert result.content, f"{name} gave no content"


async def echo_schema(url: str, told: Told) -> None:
    """Send a tool's schema back as it was received."""
    async with Client(url) as client:
        tools = {tool.name: tool async for tool in client.iter_tools()}
        await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


# Authorization by the official SDK's providers


class Memory:
    """Keeps tokens and registration for the length of a scenario; the SDK's `TokenStorage`."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """A user who agrees at once: the authorization server's redirect is read, not followed."""

    landed: AuthorizationCodeResult

    async def visit(self, url: str) -> None:
        async with httpx2.AsyncClient() as http:
            response = await http.get(url, follow_redirects=False)
        self.landed = AuthorizationCodeResult(**dict(parse_qsl(urlsplit(response.headers["location"]).query)))

    async def callback(self) -> AuthorizationCodeResult:
        return self.landed


async def use_server(url: str, auth: httpx2.Auth) -> None:
    """What every scenario of authorization wants done: list the tools, call the first."""
    async with Client(url, auth=auth) as client:
        await client.call_tool((await client.list_tools()).tools[0].name)


def code_provider(url: str, told: Told) -> OAuthClientProvider:
    """The authorization code flow, registered beforehand if the suite says so."""
    known = None
    if "client_id" in told:
        known = OAuthClientInformationFull(
            client_id=told["client_id"],
            client_secret=told["client_secret"],
            issuer=told.get("issuer"),
            token_endpoint_auth_method="client_secret_basic",
        )
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="turnwise-conformance", redirect_uris=[AnyUrl(CALLBACK)]),
        Memory(known),
        browser.visit,
        browser.callback,
        METADATA_DOCUMENT,
    )


async def authorize_by_code(url: str, told: Told) -> None:
    """The user agrees, and the server is used."""
    await use_server(url, code_provider(url, told))


async def refuse(url: str, told: Told) -> None:
    """A flow that the client must break off: what it found does not fit together, or no scope is ever enough."""
    try:
        await use_server(url, code_provider(url, told))
    except (AuthorizationFailed, UnexpectedStatus) as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
    else:
        raise AssertionError("the flow should have been refused")


async def token_issuer(url: str) -> dict[str, Any]:
    """The metadata of the server's authorization server, which these clients are set up with rather than told."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    async with httpx2.AsyncClient() as http:
        resource = (await http.get(f"{origin}/.well-known/oauth-protected-resource{parts.path}")).json()
        issuer = resource["authorization_servers"][0]
        metadata: dict[str, Any] = (await http.get(f"{issuer}/.well-known/oauth-authorization-server")).json()
    return metadata


async def authorize_by_secret(url: str, told: Told) -> None:
    """Client credentials, with a secret."""
    issuer = (await token_issuer(url))["issuer"]
    auth = ClientCredentialsOAuthProvider(url, Memory(), told["client_id"], told["client_secret"], issuer=issuer)
    await use_server(url, auth)


async def authorize_by_key(url: str, told: Told) -> None:
    """Client credentials, with a signed assertion."""
    name = told["client_id"]
    signing = SignedJWTParameters(
        issuer=name, subject=name, signing_key=told["private_key_pem"], signing_algorithm=told["signing_algorithm"]
    )
    issuer = (await token_issuer(url))["issuer"]
    auth = PrivateKeyJWTOAuthProvider(url, Memory(), name, signing.create_assertion_provider(), issuer=issuer)
    await use_server(url, auth)


async def authorize_by_enterprise(url: str, told: Told) -> None:
    """The user's identity at the enterprise is exchanged for a grant, and that for a token."""

    async def exchange(audience: str, resource: str) -> str:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": told["idp_id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": told["idp_client_id"],
        }
        async with httpx2.AsyncClient() as http:
            granted = (await http.post(told["idp_token_endpoint"], data=form)).raise_for_status()
        return str(granted.json()["access_token"])

    auth = IdentityAssertionOAuthProvider(
        url,
        Memory(),
        told["client_id"],
        told["client_secret"],
        issuer=(await token_issuer(url))["issuer"],
        assertion_provider=exchange,
        token_endpoint_auth_method="client_secret_basic",
    )
    await use_server(url, auth)


# Authorization that the SDK has no provider for


async def authorize_by_workload(url: str, told: Told) -> None:
    """A workload's own assertion is its grant (RFC 7523); the token then goes into a plain header."""
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": told["valid_jwt"],
        "client_id": told["client_id"],
        "resource": url,
    }
    endpoint = (await token_issuer(url))["token_endpoint"]
    async with httpx2.AsyncClient() as http:
        granted = (await http.post(endpoint, data=form)).raise_for_status().json()
    async with Client(url, headers={"Authorization": f"Bearer {granted['access_token']}"}) as client:
        await client.list_tools()
        await client.call_tool("test-tool")


class Proving(httpx2.Auth):
    """Binds the tokens of another authorization to a key (DPoP, RFC 9449).

    Every request for a token, and every request that shows one, carries a fresh proof that the client has the key.
    """

    def __init__(self, inner: httpx2.Auth) -> None:
        self.inner = inner
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.nonces: dict[httpx2.URL, str] = {}

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with aclosing(self.inner.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                response = yield self.proven(outgoing)
                if nonce := response.headers.get("DPoP-Nonce"):
                    self.nonces[outgoing.url] = nonce
                    response = yield self.proven(outgoing)
                if outgoing is not request:
                    response = self.plain(response, await response.aread())
                try:
                    outgoing = await flow.asend(response)
                except StopAsyncIteration:
                    return

    def proven(self, request: httpx2.Request) -> httpx2.Request:
        """The request, with a proof where one belongs."""
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        if not token and b"grant_type=" not in request.content:
            return request
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(),
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if request.url in self.nonces:
            claims["nonce"] = self.nonces[request.url]
        if token:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            request.headers["Authorization"] = f"DPoP {token}"
        head = {"typ": "dpop+jwt", "jwk": self.public}
        request.headers["DPoP"] = jwt.encode(claims, self.key, algorithm="ES256", headers=head)
        return request

    def plain(self, response: httpx2.Response, body: bytes) -> httpx2.Response:
        """The response as the inner authorization knows it, which has heard of bearer tokens only."""
        told = {"token_type": None, **json.loads(body)} if response.is_success else {"token_type": None}
        if told["token_type"] != "DPoP":
            return response
        return httpx2.Response(response.status_code, json={**told, "token_type": "Bearer"}, request=response.request)


async def authorize_with_proof(url: str, told: Told) -> None:
    """The authorization code flow, with tokens that are of no use to a thief."""
    await use_server(url, Proving(code_provider(url, told)))


# The table


SCENARIOS: Mapping[str, Run] = {
    "initialize": list_tools,
    "tools_call": calling("add_numbers", {"a": 5, "b": 3}),
    "request-metadata": declare_everything,
    "sep-2322-client-request-state": answer_questions,
    "elicitation-sep1034-client-defaults": calling("test_client_elicitation_defaults"),
    "sse-retry": calling("test_reconnection"),
    "http-standard-headers": visit_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_whatever_is_listed,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "auth/scope-retry-limit": refuse,
    "auth/resource-mismatch": refuse,
    "auth/metadata-issuer-mismatch": refuse,
    "auth/iss-supported-missing": refuse,
    "auth/iss-wrong-issuer": refuse,
    "auth/iss-unexpected": refuse,
    "auth/iss-normalized": refuse,
    "auth/client-credentials-basic": authorize_by_secret,
    "auth/client-credentials-jwt": authorize_by_key,
    "auth/enterprise-managed-authorization": authorize_by_enterprise,
    "auth/wif-jwt-bearer": authorize_by_workload,
    "auth/dpop": authorize_with_proof,
    "auth/dpop-nonce": authorize_with_proof,
}


async def main() -> None:
    """Run the scenario that the environment names; those of authorization are by code unless the table says else."""
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    told = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    run = SCENARIOS.get(name) or (authorize_by_code if name.startswith("auth/") else None)
    if run is None:
        raise SystemExit(f"no such scenario here: {name}")
    async with asyncio.timeout(DEADLINE_SECONDS):
        await run(sys.argv[1], told)


if __name__ == "__main__":
    asyncio.run(main())
