"""A mail server that keeps what it is given: as much of SMTP (RFC 5321) as one sender speaks."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Mailbox:
    port: int
    recipients: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    # Refused, as one whose account is gone.
    refused: set[str] = field(default_factory=set)


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 mailbox")
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].upper()
                if verb == "QUIT":
                    self.say("221 bye")
                    return
                self.say(self.answer(verb, line))

        def answer(self, verb: str, line: str) -> str:
            if verb == "RCPT":
                address = line.partition("<")[2].partition(">")[0]
                if address in kept.refused:
                    return "550 nobody of this name"
                kept.recipients.append(address)
            if verb == "DATA":
                self.say("354 go on")
                kept.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")))
            return "250 ok"

        def say(self, words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        server.daemon_threads = True
        kept = Mailbox(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
