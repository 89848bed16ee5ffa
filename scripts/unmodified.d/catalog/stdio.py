"""Servers on their standard input and output."""

import json, os, re, select, shutil, subprocess, time

import packages
from program import PATIENCE, Program, Timed
from measure import Unavailable


class Stdio(Program):
    """JSON-RPC on pipes."""

    number = 0
    buffer = b""

    def streams(self):
        return {**super().streams(), "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def frame(self, text):
        """A message on the wire."""
        raise NotImplementedError

    def message(self):
        """Takes a whole message from the buffer; None while there is none."""
        raise NotImplementedError

    def send(self, method, parameters, number=None):
        content = {"jsonrpc": "2.0", "method": method, "params": parameters}
        if number is not None:
            content["id"] = number
        self.run.process.stdin.write(self.frame(json.dumps(content)))
        self.run.process.stdin.flush()

    def call(self, method, parameters, patience=PATIENCE):
        """The result."""
        self.number += 1
        self.send(method, parameters, self.number)
        end = time.monotonic() + patience
        output = self.run.process.stdout.fileno()
        while True:
            while (message := self.message()) is not None:
                if message.get("id") == self.number and "method" not in message:
                    assert "result" in message, message
                    return message["result"]
            if not select.select([output], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no answer to {method}")
            data = os.read(output, 65_536)
            if not data:
                raise EOFError("its output has ended")
            self.buffer += data

    def recover(self):
        """There is only one connection."""


class ContextServer(Stdio):
    """A server of the Model Context Protocol, on PyPI's `mcp`."""

    name = "mcp-server"

    SOURCE = """
try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server import MCPServer as Server

server = Server("parrot")

@server.tool()
def say(text: str) -> str:
    return text

server.run()
"""

    def frame(self, text):
        return text.encode() + b"\n"

    def message(self):
        line, separator, rest = self.buffer.partition(b"\n")
        if not separator:
            return None
        self.buffer = rest
        return json.loads(line)

    def command(self):
        try:
            python = packages.python(environment(), "mcp")
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"PyPI's mcp is not installed: {error}") from error
        return [python, self.write("server.py", self.SOURCE)]

    def connect(self):
        self.call(
            "initialize",
            {
                "protocolVersion": "2024-11-05", "capabilities": {},
                "clientInfo": {"name": "nightbell", "version": "1"},
            },
            60,
        )
        self.send("notifications/initialized", {})

    def request(self):
        with Timed() as timed:
            result = self.call("tools/call", {"name": "say", "arguments": {"text": f"word {self.number}"}})
        assert result["content"][0]["text"].startswith("word "), result
        return timed.seconds


def environment():
    """The directory of the virtual environment, which is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "nightbell-unmodified")


class Clangd(Stdio):
    name = "clangd"
    SOURCE = "#include <stddef.h>\nint first(void) { return 1; }\nsize_t second(void) { return first(); }\n"
    # Its log has no errors unless they are marked.
    complaint = re.compile(r"^E\[")
    harmless = re.compile(r"Got signal, shutting down")

    def frame(self, text):
        data = text.encode()
        return b"Content-Length: %d\r\n\r\n%b" % (len(data), data)

    def message(self):
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return None
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        return json.loads(rest[:length])

    def command(self):
        program = shutil.which("clangd")
        if not program:
            raise Unavailable("clangd is not installed")
        return [program, "--background-index=false", "--log=error"]

    def connect(self):
        self.call("initialize", {"processId": None, "rootUri": f"file://{self.directory}", "capabilities": {}}, 60)
        self.send("initialized", {})
        file = self.write("program.c", self.SOURCE)
        self.uri = f"file://{file}"
        self.send(
            "textDocument/didOpen",
            {"textDocument": {"uri": self.uri, "languageId": "c", "version": 1, "text": self.SOURCE}},
        )
        self.call("textDocument/hover", self.position(), 60)

    def position(self):
        return {"textDocument": {"uri": self.uri}, "position": {"line": 2, "character": 33}}

    def request(self):
        with Timed() as timed:
            result = self.call("textDocument/hover", self.position())
        assert "first" in json.dumps(result), result
        return timed.seconds
