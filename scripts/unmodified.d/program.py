"""The base of all programs."""

import os, re, signal, socket, subprocess, time

from measure import Unavailable
from stage import Run, eventually, tied

# An answer that takes longer is lost.
PATIENCE = 10


def free_port():
    """A port that is free for TCP and for UDP."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            try:
                datagrams.bind(server.getsockname())
                return server.getsockname()[1]
            except OSError:
                continue


class Lines:
    """A connection on which both sides send lines."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text.encode())

    def line(self):
        line = self.file.readline()
        if not line:
            raise EOFError("the connection was closed")
        return line.decode().rstrip("\r\n")

    def expect(self, expression):
        """The first line that matches, within the time of an answer."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            line = self.line()
            if re.search(expression, line):
                return line
        raise TimeoutError(f"no {expression}")

    def close(self):
        self.file.close()
        self.socket.close()


class Program:
    """A program as it is. Its standard output and error go to its log, unless it talks on them."""

    name = ""
    # The Debian packages that it needs, and a file of each.
    packages = {}
    timers = "exact"
    # What it speaks with its server, on the port that `prepare` leaves in `server`.
    profile = ""
    # If it has not slept after so many seconds, it does not sleep.
    patience = 40
    # A line of its log that says that it has noticed something.
    complaint = re.compile(r"error|fail|timed? ?out|lost|reset|warn|disconnect", re.I)
    # Lines of its log that mean nothing.
    harmless = re.compile(r"^$")

    def __init__(self, supervisor, options):
        self.supervisor = supervisor
        self.options = ["--timers", self.timers, *options]
        self.directory = supervisor.path(self.name)
        os.mkdir(self.directory)
        self.helpers = []
        self.run = None

    # What a program has of its own.

    def prepare(self):
        """Starts what it talks to."""

    def command(self):
        raise NotImplementedError

    def connect(self):
        """Connects to it; tried again until it is ready."""

    def request(self):
        """One exchange. Returns how long it took, in seconds; an error means that it was lost."""
        raise NotImplementedError

    def recover(self):
        """After a lost request."""
        try:
            self.connect()
        except OSError:
            pass

    def streams(self):
        log = open(self.path("log"), "ab")
        return {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}

    # The same for all.

    def start(self):
        for package, file in self.packages.items():
            if not os.path.exists(file):
                raise Unavailable(f"{package} is not installed")
        self.prepare()
        if self.profile:
            self.options += ["--profile", f"{self.profile}:{self.server}"]
        self.run = Run(self.supervisor, self.name, self.command(), self.options, **self.streams())

        def is_ready():
            if self.run.process.poll() is not None:
                raise RuntimeError(f"it has ended: {self.log()[-1_000:]}")
            try:
                self.connect()
                return True
            except (OSError, EOFError) as error:
                self.failure = error
                return False

        if not eventually(is_ready, 60, 0.2):
            raise RuntimeError(f"it is not ready: {self.failure!r}: {self.log()[-1_000:]}")

    def end(self):
        """Returns what it has complained about."""
        complaints = []
        if self.run:
            if self.run.process.poll() is not None:
                complaints.append(f"it has ended: {self.run.process.returncode}")
            elif not self.run.end():
                complaints.append("it did not end when it was asked to")
            complaints += self.complaints()
        for helper in reversed(self.helpers):
            helper.terminate()
            try:
                helper.wait(10)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()
        return complaints

    def complaints(self):
        return [
            line for line in self.log().splitlines()
            if self.complaint.search(line) and not self.harmless.search(line)
        ]

    def log(self):
        try:
            with open(self.path("log"), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def help(self, *command, **options):
        """Starts something that the program needs, awake."""
        log = open(self.path("helpers.log"), "ab")
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True, **options}
        helper = subprocess.Popen(tied(*command), **options)
        self.helpers.append(helper)
        return helper


class Timed:
    """How long something takes."""

    def __enter__(self):
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.began


def listens(port):
    """Whether a server accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False
