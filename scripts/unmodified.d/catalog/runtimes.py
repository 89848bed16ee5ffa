"""Programs of our own on the runtimes of languages: each answers lines on TCP, and has timers that say when they are late."""

import os, re, shutil, socket, subprocess

from measure import Unavailable
from program import PATIENCE, Lines, Program, Timed, free_port

# A timer of a sleeping program may not be later than that; the processor may be busy for some of it.
LATEST_MS = 250


class Echo(Program):
    """Answers each line with the same line. Says `late N` of each timer, in milliseconds."""

    source = ""
    number = 0

    def connect(self):
        self.client = Lines(self.port)
        self.request()

    def request(self):
        self.number += 1
        with Timed() as timed:
            self.client.send(f"line {self.number}\n")
            answer = self.client.line()
        assert answer == f"line {self.number}", answer
        return timed.seconds

    def complaints(self):
        late = [int(word) for word in re.findall(r"^late (\d+)$", self.log(), re.M)]
        return super().complaints() + [f"a timer was {word} ms late" for word in late if word > LATEST_MS]


class Asyncio(Echo):
    name = "asyncio"
    source = """
import asyncio, sys, time

async def tick():
    while True:
        due = time.monotonic() + 7
        await asyncio.sleep(7)
        print("late", int(1000 * (time.monotonic() - due)), flush=True)

async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(tick(), server.serve_forever())

asyncio.run(main())
"""

    def command(self):
        self.port = free_port()
        return ["/usr/bin/python3", self.write("program.py", self.source), str(self.port)]


class Threads(Asyncio):
    name = "threads"
    source = """
import socketserver, sys, threading, time

def late(due):
    print("late", int(1000 * (time.monotonic() - due)), flush=True)

def sleep():
    while True:
        due = time.monotonic() + 8
        time.sleep(8)
        late(due)

def wait():
    while True:
        due = time.monotonic() + 11
        threading.Event().wait(11)
        late(due)

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

for function in [sleep, wait]:
    threading.Thread(target=function, daemon=True).start()
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever(poll_interval=None)
"""


class Go(Echo):
    name = "go"
    packages = {"golang-go": "/usr/bin/go"}
    source = """package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"time"
)

func tick() {
	for {
		due := time.Now().Add(7 * time.Second)
		time.Sleep(7 * time.Second)
		fmt.Println("late", time.Since(due).Milliseconds())
	}
}

func serve(connection net.Conn) {
	lines := bufio.NewReader(connection)
	for {
		line, err := lines.ReadBytes('\\n')
		if err != nil {
			connection.Close()
			return
		}
		connection.Write(line)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	go tick()
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go serve(connection)
	}
}
"""

    def command(self):
        self.port = free_port()
        self.write("program.go", self.source)
        environment = dict(os.environ, GOCACHE=self.path("cache"), GOFLAGS="-mod=mod", GO111MODULE="off")
        subprocess.run(
            ["/usr/bin/go", "build", "-o", self.path("program"), self.path("program.go")], env=environment,
            check=True, capture_output=True,
        )
        return [self.path("program"), str(self.port)]


class Java(Echo):
    name = "java"
    packages = {"default-jdk-headless": "/usr/bin/javac"}
    # The machine's own threads look around twenty times a second and once a second.
    timers = "ignore"
    source = """
import java.io.*;
import java.net.*;

public class Program {
    static void serve(Socket socket) {
        try (socket) {
            var input = socket.getInputStream();
            var output = socket.getOutputStream();
            var buffer = new byte[1000];
            int count;
            while ((count = input.read(buffer)) > 0) output.write(buffer, 0, count);
        } catch (IOException error) {
            System.err.println("error " + error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getByName("127.0.0.1"));
        while (true) {
            var socket = server.accept();
            var thread = new Thread(() -> serve(socket));
            thread.setDaemon(true);
            thread.start();
        }
    }
}
"""

    def command(self):
        self.port = free_port()
        self.write("Program.java", self.source)
        subprocess.run(
            ["/usr/bin/javac", "-d", self.directory, self.path("Program.java")], check=True, capture_output=True
        )
        return ["/usr/bin/java", "-Xmx64m", "-cp", self.directory, "Program", str(self.port)]


class NodeWebSocket(Echo):
    """A WebSocket server on Node's own HTTP server."""

    name = "node"
    packages = {"nodejs": "/usr/bin/node"}
    source = """
const crypto = require("crypto"), http = require("http");
const server = http.createServer((_, answer) => answer.end("hello\\n"));

// Short text frames, each in one piece.
server.on("upgrade", (request, socket) => {
  const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const accept = crypto.createHash("sha1").update(key).digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
    + `Sec-WebSocket-Accept: ${accept}\\r\\n\\r\\n`);
  socket.setNoDelay(true);
  let data = Buffer.alloc(0);
  socket.on("data", (part) => {
    data = Buffer.concat([data, part]);
    while (data.length >= 6 && data.length >= 6 + (data[1] & 127)) {
      const length = data[1] & 127, text = Buffer.alloc(length);
      for (let index = 0; index < length; index++) text[index] = data[6 + index] ^ data[2 + index % 4];
      socket.write(Buffer.concat([Buffer.from([data[0], length]), text]));
      data = data.subarray(6 + length);
    }
  });
  socket.on("error", (error) => console.error("error", error));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
"""

    def command(self):
        self.port = free_port()
        return ["/usr/bin/node", self.write("server.js", self.source), str(self.port)]

    def connect(self):
        self.client = Lines(self.port)
        self.client.send(
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert self.client.line().startswith("HTTP/1.1 101")
        while self.client.line():
            pass
        self.request()

    def request(self):
        self.number += 1
        text = f"message {self.number}".encode()
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text))
        with Timed() as timed:
            self.client.socket.sendall(bytes([0x81, 0x80 | len(text)]) + mask + masked)
            answer = self.client.file.read(2 + len(text))
        if not answer:
            raise EOFError("the connection was closed")
        assert answer == bytes([0x81, len(text)]) + text, answer
        return timed.seconds
