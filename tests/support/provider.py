"""A small OpenID Connect provider over real HTTP: it lets in whoever it is told to, and signs an id token of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CLIENT = "draftproof"


class Provider:
    """``claims``: what the next id token says, over the usual; ``key``: what it is signed with."""

    def __init__(self, issuer: str) -> None:
        self.issuer, self.key = issuer, KEY
        self.claims: dict[str, Any] = {}
        self.asked: list[dict[str, str]] = []

    def configuration(self) -> dict[str, Any]:
        ends = {"authorization": "authorize", "token": "token"}
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in ends.items()},
        }

    def jwks(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return {"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]}

    def token(self) -> dict[str, Any]:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "auth_time": now, "sub": "4711"}
        signed = jwt.encode(usual | self.claims, self.key, algorithm="RS256", headers={"kid": "one"})
        return {"access_token": "an access token", "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def authorize(self, query: str) -> str:
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        self.asked.append(asked)
        return f"{asked['redirect_uri']}?{urlencode({'code': 'a code', 'state': asked['state']})}"

    def visit(self, address: str) -> str:
        """What a browser does that is sent there: where it is sent back to, without the host."""
        try:
            build_opener(Stay).open(address, timeout=5)
        except HTTPError as sent:
            back = urlsplit(sent.headers["Location"])
            return f"{back.path}?{back.query}"
        raise AssertionError("the provider sent nobody back")


class Stay(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


@contextmanager
def running_provider() -> Iterator[Provider]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path)
            if path.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(path.query))
                self.end_headers()
            else:
                self.answer(provider.jwks() if path.path == "/jwks" else provider.configuration())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(provider.token())

        def answer(self, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
