# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a connection (security/handshake.hpp), written a second time: for tests that behave like a peer,
or not quite like one."""
import hashlib
import hmac
import os
import socket

MAGIC = b"PLXSEC01"
MODES = {"off": 0, "auth": 1, "tls": 2}
VERDICTS = {0: "welcome", 1: "other mode", 2: "other secret", 3: "no descriptor"}


def mac(key, name, *parts):
    return hmac.new(key, name.encode() + b"\0" + b"".join(parts), hashlib.sha256).digest()


def text_key(purpose, text):
    return mac(text.encode(), purpose)


class Caller:
    """A socket to `address` ("HOST:PORT") that goes through the handshake step by step."""

    def __init__(self, address, key, mode="auth", seconds=30):
        host, port = address.rsplit(":", 1)
        self.key, self.mode = key, bytes([MODES[mode]])
        self.socket = socket.create_connection((host, int(port)), timeout=seconds)
        self.nonce = os.urandom(32)
        self.sent = b""

    def send(self, data):
        self.sent += data
        self.socket.sendall(data)

    def hello(self):
        self.send(MAGIC + self.mode + bytes(7) + self.nonce + mac(self.key, "hello", self.mode, self.nonce))

    def answer(self):
        """The listener's verdict; its MAC must be right when it is a welcome."""
        self.answered = self.receive(80)
        verdict, number, nonce, proof = (self.answered[9:10], self.answered[12:16], self.answered[16:48],
                                         self.answered[48:])
        self.listener_nonce = nonce
        self.covered = (self.mode, self.nonce, verdict, number, nonce)
        text = VERDICTS[verdict[0]]
        if text == "welcome" and proof != mac(self.key, "answer", *self.covered):
            return "false proof"
        return text

    def proof(self):
        self.send(mac(self.key, "proof", *self.covered))

    def receive(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += more
        return data

    def is_cut_off(self):
        """Waits until the other side closes; what it still says is ignored."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()
