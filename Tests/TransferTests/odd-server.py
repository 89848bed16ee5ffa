#!/usr/bin/env python3
"""A web server with the faults of real ones, for tests: it cuts connections and lies about lengths, ranges and versions.

It prints its port. The path names the fault, the query its measure. Bodies are made from a seed, so that a test knows
their SHA-256: /digest?seed=S&size=N tells it. /stats tells the bytes of bodies that were sent, /log the requests.
"""
import hashlib
import http.server
import json
import random
import socketserver
import threading
import time
import urllib.parse

lock = threading.Lock()
requests = []
sent = 0
counts = {}
uploads = {}


def body(seed, size):
    return random.Random(seed).randbytes(size)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def begin(self):
        url = urllib.parse.urlparse(self.path)
        self.fault = url.path.strip("/").split("/")[0]
        self.query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        with lock:
            counts[self.path] = counts.get(self.path, 0) + 1
            self.count = counts[self.path]
            requests.append({
                "method": self.command, "path": self.path, "range": self.headers.get("Range"),
                "if_range": self.headers.get("If-Range"), "if_none_match": self.headers.get("If-None-Match")})

    def number(self, name, default=0):
        return int(self.query.get(name, default))

    def reply(self, status, data=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.write(data)

    def write(self, data):
        global sent
        self.wfile.write(data)
        with lock:
            sent += len(data)

    def cut(self):
        self.wfile.flush()
        self.close_connection = True

    def first(self):
        """The first byte that is asked for, if the condition holds; None: the whole."""
        value = self.headers.get("Range")
        if value is None or not value.startswith("bytes="):
            return None
        if self.headers.get("If-Range") not in (None, self.tag) and self.fault != "careless":
            return None
        return int(value[6:].split("-")[0])

    def do_GET(self):
        self.begin()
        try:
            getattr(self, "get_" + self.fault.replace("-", "_"))()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # Information for tests.

    def get_stats(self):
        self.reply(200, json.dumps({"sent": sent}).encode())

    def get_log(self):
        self.reply(200, json.dumps(requests).encode())

    def get_digest(self):
        self.reply(200, hashlib.sha256(body(self.query["seed"], self.number("size"))).hexdigest().encode())

    def get_uploaded(self):
        self.reply(200, json.dumps(uploads.get(self.query["name"], [])).encode())

    # Bodies.

    def serve(self, data, tag, most=None, promised=None, delay=None):
        """The representation, or the range of it that is asked for; at most so many bytes, and then the connection ends."""
        self.tag = tag
        first = self.first()
        total = promised or len(data)
        if first is not None and first >= total:
            return self.reply(416, b"", Content_Range=f"bytes */{total}", ETag=tag)
        self.send_response(200 if first is None else 206)
        if tag:
            self.send_header("ETag", tag)
        if first is not None:
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
        self.send_header("Content-Length", str(total - (first or 0)))
        self.end_headers()
        rest = data[first or 0:]
        if most is not None and most < len(rest):
            rest = rest[:most]
        position = 0
        while position < len(rest):
            self.write(rest[position:position + 65536])
            position += 65536
            if delay:
                time.sleep(delay)
        if len(rest) < total - (first or 0):
            self.cut()

    def data(self, version=""):
        return body(self.query["seed"] + version, self.number("size"))

    def get_good(self):
        self.serve(self.data(), '"good"')

    def get_slow(self):
        self.serve(self.data(), '"slow"', delay=self.number("ms", 20) / 1000)

    def get_cut(self):
        """Each connection ends after so many bytes."""
        self.serve(self.data(), '"cut"', most=self.number("after"))

    def get_weak(self):
        """As /cut for the first requests, without a strong validator."""
        most = self.number("after") if self.count <= self.number("times", 1) else None
        self.serve(self.data(), 'W/"weak"', most=most)

    def get_short(self):
        """Promises more than there is."""
        self.serve(self.data(), '"short"', promised=self.number("size") + 100)

    def get_long(self):
        """The range has another length than the whole promised."""
        if self.headers.get("Range") is None:
            return self.serve(self.data(), '"long"', most=self.number("after"))
        data = self.data() + b"more"
        self.serve(data, '"long"')

    def get_wrong_range(self):
        """The first connection is cut, and ranges begin elsewhere."""
        data, self.tag = self.data(), '"wrong"'
        first = self.first()
        if first is None:
            return self.serve(data, self.tag, most=self.number("after") if self.count == 1 else None)
        self.reply(206, data, Content_Range=f"bytes 0-{len(data) - 1}/{len(data)}", ETag=self.tag)

    def get_changing(self):
        """Another version after the first request, which is cut."""
        version = "1" if self.count == 1 else "2"
        self.serve(self.data(version), f'"{version}"', most=self.number("after") if self.count == 1 else None)

    def get_careless(self):
        """As /changing, but it does not look at If-Range."""
        self.get_changing()

    def get_chunked(self):
        """No length; the first connection is cut."""
        data = self.data()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        is_cut = self.count <= self.number("times", 1)
        end = len(data) // 2 if is_cut else len(data)
        for position in range(0, end, 65536):
            piece = data[position:min(position + 65536, end)]
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            time.sleep(self.number("ms", 0) / 1000)
        if is_cut:
            return self.cut()
        self.wfile.write(b"0\r\n\r\n")

    def get_invalid(self):
        """The first responses are cut, and their lengths are invalid in one way or another."""
        if self.count > self.number("times", 1):
            return self.serve(self.data(), '"invalid"')
        fields = {
            "large": b"Content-Length: 99999999999999999999\r\n",
            "two": b"Content-Length: 20000\r\nContent-Length: 10000\r\n",
            "space": b"Content-Length : 20000\r\n"}[self.query["how"]]
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + fields + b"\r\n" + self.data()[:10_000])
        self.cut()

    def get_issue(self):
        """Has not changed for some requests after the first one."""
        prefix = "W/" if "weak" in self.query else ""
        if 1 < self.count <= 1 + self.number("same") and self.headers.get("If-None-Match") == prefix + '"1"':
            return self.reply(304)
        tag = "1" if self.count == 1 else "2"
        self.serve(self.data(tag), f'{prefix}"{tag}"')

    def get_redirect(self):
        self.reply(302, b"moved", Location=self.query["to"])

    def get_garbage(self):
        """The first responses are not of HTTP."""
        if self.count > self.number("times", 1):
            return self.serve(self.data(), '"garbage"')
        self.wfile.write(b"220 mail.example.org ESMTP\r\n" * 10)
        self.cut()

    def get_busy(self):
        if self.count <= self.number("times", 1):
            return self.reply(503, b"busy", Retry_After="1")
        self.serve(self.data(), '"busy"')

    def get_secret(self):
        if self.headers.get("Authorization") != "Bearer open":
            return self.reply(401, b"closed", WWW_Authenticate="Bearer")
        self.serve(self.data(), '"secret"')

    def get_missing(self):
        self.reply(404, b"missing" * 1000)

    # Uploads.

    def upload(self):
        self.begin()
        length = int(self.headers.get("Content-Length", 0))
        if self.fault == "drop" and self.count <= self.number("times", 1):
            self.rfile.read(min(length, self.number("after")))
            return self.cut()
        data = self.rfile.read(length)
        if len(data) < length:
            # The client has died.
            return self.cut()
        digest = hashlib.sha256(data).hexdigest()
        if self.fault == "see-other":
            return self.reply(303, b"elsewhere", Location=self.query["to"])
        if self.fault == "endless":
            self.send_response(200)
            self.send_header("Content-Length", str((1 << 63) - 1))
            self.end_headers()
            self.wfile.write(b"begins")
            return self.cut()
        with lock:
            uploads.setdefault(self.query["name"], []).append(digest)
        self.reply(201, digest.encode() + bytes(self.number("pad")))

    do_PUT = upload
    do_POST = upload
    do_PATCH = upload


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Clients end connections, which is no error here."""


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
