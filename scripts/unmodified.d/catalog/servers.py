"""Servers."""

import glob, os, pwd, re, shutil, socket, subprocess

from program import PATIENCE, Lines, Program, Timed, free_port
from measure import Unavailable


class Redis(Program):
    name = "redis-server"
    packages = {"redis-server": "/usr/bin/redis-server"}
    # It looks at its keys ten times a second, and has none that expire.
    timers = "ignore"
    harmless = re.compile(r"Warning: no config file|WARNING.*(overcommit|TCP backlog)|oO0Oo")

    def command(self):
        self.port = free_port()
        self.idle = []
        return [
            "/usr/bin/redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory,
            "--save", "", "--daemonize", "no",
        ]

    def connect(self):
        """Twenty clients that are mostly idle."""
        for client in self.idle:
            client.close()
        self.idle = [Lines(self.port) for _ in range(20)]

    def request(self):
        client = self.idle.pop(0)
        self.idle.append(client)
        with Timed() as timed:
            client.send("INCR requests\r\n")
            assert client.line().startswith(":")
        return timed.seconds


class HTTP(Program):
    """A server that is asked for a file, in turns on a new connection and, if it keeps connections, on an old one."""

    keeps = True
    path_of_file = "/"

    def connect(self):
        self.kept = None
        self.turn = 0
        self.get(self.open())

    def open(self):
        return Lines(self.port)

    def get(self, client):
        client.send(f"GET {self.path_of_file} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status = client.line()
        assert " 200 " in status, status
        length = None
        while line := client.line():
            if line.lower().startswith("content-length:"):
                length = int(line.split(":")[1])
        body = client.file.read(length)
        assert len(body) == length, "the answer is too short"

    def request(self):
        self.turn += 1
        # A server may close a connection after a minute without requests; that is no loss.
        if self.keeps and self.turn % 2 == 0 and self.kept:
            with Timed() as timed:
                self.get(self.kept)
            return timed.seconds
        if self.kept:
            self.kept.close()
        with Timed() as timed:
            self.kept = self.open()
            self.get(self.kept)
        return timed.seconds


class Nginx(HTTP):
    name = "nginx"
    packages = {"nginx-light": "/usr/sbin/nginx"}

    def command(self):
        self.port = free_port()
        self.write("index.html", "hello\n")
        os.chmod(self.directory, 0o755)
        configuration = self.write(
            "nginx.conf",
            f"""
            daemon off; worker_processes 4; pid {self.path('pid')}; error_log stderr warn;
            events {{ worker_connections 256; }}
            http {{
                access_log off; root {self.directory};
                client_body_temp_path {self.path('body')}; proxy_temp_path {self.path('proxy')};
                fastcgi_temp_path {self.path('fastcgi')}; uwsgi_temp_path {self.path('uwsgi')};
                scgi_temp_path {self.path('scgi')};
                server {{ listen 127.0.0.1:{self.port}; }}
            }}
            """,
        )
        return ["/usr/sbin/nginx", "-c", configuration, "-p", self.directory]


class PythonHTTP(HTTP):
    name = "http.server"
    # Twice a second it asks itself whether it is to end.
    timers = "ignore"
    keeps = False

    def command(self):
        self.port = free_port()
        self.write("index.html", "hello\n")
        return [
            "/usr/bin/python3", "-m", "http.server", str(self.port), "--bind", "127.0.0.1", "--directory",
            self.directory,
        ]


class Postgres(Program):
    name = "postgresql"
    packages = {"postgresql": "/usr/share/postgresql-common/pg_wrapper"}
    # Its background writer looks around five times a second until it has been through the cache, in two minutes.
    patience = 200
    complaint = re.compile(r"ERROR|FATAL|PANIC|WARNING|could not|unexpected")
    harmless = re.compile(r"is starting up")

    def prepare(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        if not found:
            raise Unavailable("postgresql is not installed")
        self.programs = os.path.dirname(found[-1])
        self.port = free_port()
        user = pwd.getpwnam("postgres")
        os.chown(self.directory, user.pw_uid, user.pw_gid)
        self.as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        subprocess.run(
            [*self.as_user, f"{self.programs}/initdb", "-D", self.path("data"), "-A", "trust", "-N"],
            check=True, capture_output=True, cwd="/",
        )

    def command(self):
        return [
            *self.as_user, f"{self.programs}/postgres", "-D", self.path("data"), "-p", str(self.port), "-k", "",
            "-c", "listen_addresses=127.0.0.1",
        ]

    psql = None

    def connect(self):
        """An idle psql."""
        if self.psql:
            self.psql.kill()
            self.psql.wait()
        self.psql = self.help(
            f"{self.programs}/psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-AtX",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd="/",
        )
        self.number = 0
        try:
            self.request()
        except BrokenPipeError as error:
            raise ConnectionError("psql has ended") from error

    def request(self):
        self.number += 1
        with Timed() as timed:
            self.psql.stdin.write(f"SELECT {self.number} + 0;\n")
            answer = self.psql.stdout.readline().strip()
        if not answer:
            raise EOFError("psql has ended")
        assert answer == str(self.number), answer
        return timed.seconds

    def end(self):
        if self.psql:
            self.psql.stdin.close()
            self.psql.wait()
        return super().end()


class Ssh(Program):
    name = "sshd"
    packages = {"openssh-server": "/usr/sbin/sshd", "openssh-client": "/usr/bin/ssh"}
    complaint = re.compile(r"error|fatal|timeout|closed|reset|disconnect", re.I)
    # Attempts before it listens, and the end of the session.
    harmless = re.compile(r"Connection (closed|reset) by .*\[preauth\]|Received signal|disconnected by user|Disconnected from user")

    def command(self):
        self.port = free_port()
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ["host", "user"]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True)
        shutil.copy(self.path("user.pub"), self.path("authorized"))
        configuration = self.write(
            "sshd_config",
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.path('host')}\nUsePAM no\n"
            f"PidFile none\nStrictModes no\nAuthorizedKeysFile {self.path('authorized')}\n"
            "PermitRootLogin prohibit-password\nPrintMotd no\n",
        )
        return ["/usr/sbin/sshd", "-D", "-e", "-f", configuration]

    session = None

    def connect(self):
        """A session with a shell."""
        if self.session:
            self.session.kill()
            self.session.wait()
        self.session = self.help(
            "ssh", "-F", "none", "-T", "-p", str(self.port), "-i", self.path("user"), "-o",
            "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "root@127.0.0.1",
            "exec /bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        self.number = 0
        try:
            self.request()
        except BrokenPipeError as error:
            raise ConnectionError("ssh has ended") from error

    def request(self):
        self.number += 1
        with Timed() as timed:
            self.session.stdin.write(f"echo answer {self.number}\n")
            answer = self.session.stdout.readline().strip()
        if not answer:
            raise EOFError("the session has ended")
        assert answer == f"answer {self.number}", answer
        return timed.seconds

    def end(self):
        if self.session:
            self.session.stdin.close()
            self.session.wait()
        return super().end()
