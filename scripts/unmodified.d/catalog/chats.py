"""Chat and message clients."""

import fcntl, os, pty, queue, re, socket, struct, subprocess, termios, threading

from program import PATIENCE, Lines, Program, Timed, free_port, listens
from stage import eventually


class Chat(Program):
    """A chat client at ngircd, which another client asks for an echo (CTCP PING)."""

    NICK = "sleeper"
    # The server's pings are answered while it sleeps.
    profile = "irc"
    number = 0

    def prepare(self):
        self.server = free_port()
        configuration = self.write(
            "ngircd.conf",
            f"[Global]\nName = irc.example.net\nInfo = test\nListen = 127.0.0.1\nPorts = {self.server}\n"
            "AdminEMail = admin@example.net\nServerUID = nobody\nServerGID = nogroup\n"
            "[Limits]\nMaxConnectionsIP = 0\nMaxPenaltyTime = 0\nPingTimeout = 40\nPongTimeout = 20\n"
            "[Options]\nDNS = no\nIdent = no\nPAM = no\nSyslogFacility = local5\n",
        )
        self.help("/usr/sbin/ngircd", "-n", "-f", configuration)
        eventually(lambda: listens(self.server))
        self.caller = Lines(self.server)
        self.caller.send("NICK caller\r\nUSER caller 0 * :caller\r\n")
        self.caller.expect(r" 001 ")
        # The server's pings to the caller are answered at once, and not with the next request.
        self.answers = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        self.caller.socket.settimeout(None)
        try:
            while True:
                line = self.caller.line()
                if line.startswith("PING"):
                    self.caller.send(f"PONG{line[4:]}\r\n")
                else:
                    self.answers.put(line)
        except (OSError, EOFError, ValueError):
            pass

    def answer(self, expression):
        """The next line that matches."""
        try:
            while True:
                line = self.answers.get(timeout=PATIENCE)
                if re.search(expression, line):
                    return line
        except queue.Empty:
            raise TimeoutError(f"no {expression}") from None

    def connect(self):
        self.caller.send(f"ISON {self.NICK}\r\n")
        if self.NICK not in self.answer(r" 303 ").split(":")[-1]:
            raise ConnectionError(f"{self.NICK} is not at the server")

    def request(self):
        self.number += 1
        with Timed() as timed:
            self.caller.send(f"PRIVMSG {self.NICK} :\x01PING {self.number}\x01\r\n")
            self.answer(f"NOTICE caller :\x01PING {self.number}\x01")
        return timed.seconds

    def end(self):
        try:
            self.connect()
            return super().end()
        except (OSError, AttributeError) as error:
            return [f"{error}", *super().end()]


class Irssi(Chat):
    """On a terminal, where messages appear. Its answers to other clients would wait for a timer of its own."""

    name = "irssi"
    packages = {"irssi": "/usr/bin/irssi", "ngircd": "/usr/sbin/ngircd"}
    # It looks at the lag of its servers every second.
    timers = "ignore"
    complaint = re.compile(r"connection lost|disconnected|timed? ?out|unable|reconnect", re.I)

    def streams(self):
        self.screen = b""
        self.written = threading.Condition()
        self.terminal, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        threading.Thread(target=self.read, daemon=True).start()
        return {"stdin": other, "stdout": other, "stderr": other}

    def request(self):
        self.number += 1
        word = f"word-{self.number}-"
        with self.written:
            self.screen = b""
        with Timed() as timed:
            self.caller.send(f"PRIVMSG {self.NICK} :{word}\r\n")
            with self.written:
                if not self.written.wait_for(lambda: word.encode() in self.screen, PATIENCE):
                    raise TimeoutError(f"{word} has not appeared")
        return timed.seconds

    def read(self):
        """Its screen, as a log."""
        with open(self.path("log"), "wb", buffering=0) as log:
            try:
                while data := os.read(self.terminal, 65_536):
                    log.write(data)
                    with self.written:
                        self.screen += data
                        self.written.notify_all()
            except OSError:
                pass

    def command(self):
        os.mkdir(self.path("home"))
        # Messages appear in the window that is shown.
        self.write("home/config", 'settings = { "fe-common/core" = { autocreate_query_level = "NONE"; }; };\n')
        return [
            "/usr/bin/env", "TERM=xterm", "/usr/bin/irssi", f"--home={self.path('home')}", "--noconnect", "-n",
            self.NICK, "-c", "127.0.0.1", "-p", str(self.server),
        ]


class Weechat(Chat):
    """Without a terminal."""

    name = "weechat-headless"
    packages = {"weechat-headless": "/usr/bin/weechat-headless", "ngircd": "/usr/sbin/ngircd"}
    # It looks at its clock and at its buffers every second.
    timers = "ignore"
    complaint = re.compile(r"disconnected|timed? ?out|reconnecting|error", re.I)

    def command(self):
        return [
            "/usr/bin/weechat-headless", "--stdout", "-d", self.path("home"), "-r",
            f"/set irc.server_default.nicks {self.NICK}", "-r",
            "/set irc.server_default.anti_flood_prio_low 0", "-r",
            f"/server add test 127.0.0.1/{self.server} -notls -autoconnect", "-r", "/connect test",
        ]


class MosquittoSub(Program):
    """At Mosquitto, on a topic that another client publishes to. Its lines are the answers."""

    name = "mosquitto_sub"
    packages = {"mosquitto-clients": "/usr/bin/mosquitto_sub", "mosquitto": "/usr/sbin/mosquitto"}
    # It looks at its keep-alive every second, and its pings are sent for it.
    timers = "ignore"
    profile = "mqtt"
    number = 0

    def prepare(self):
        self.server = free_port()
        configuration = self.write(
            "mosquitto.conf", f"listener {self.server} 127.0.0.1\nallow_anonymous true\nlog_dest stderr\n"
        )
        self.help("/usr/sbin/mosquitto", "-c", configuration)
        eventually(lambda: listens(self.server))
        self.publisher = socket.create_connection(("127.0.0.1", self.server), PATIENCE)
        self.publisher.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # CONNECT, MQTT 3.1.1, a clean session, no keep-alive.
        self.publisher.sendall(self.packet(0x10, self.string("MQTT") + b"\x04\x02\0\0" + self.string("publisher")))
        assert self.publisher.recv(4) == b"\x20\x02\0\0"

    @staticmethod
    def string(text):
        return struct.pack(">H", len(text)) + text.encode()

    @staticmethod
    def packet(kind, content):
        return bytes([kind, len(content)]) + content

    def command(self):
        return [
            "/usr/bin/mosquitto_sub", "-h", "127.0.0.1", "-p", str(self.server), "-t", "words", "-q", "1", "-k", "60"
        ]

    def streams(self):
        return {**super().streams(), "stdout": subprocess.PIPE}

    def connect(self):
        """Once it has subscribed, a word comes through."""
        lines = self.lines = queue.Queue()

        def read():
            for line in self.run.process.stdout:
                lines.put(line.decode().strip())

        if self.number == 0:
            threading.Thread(target=read, daemon=True).start()
            self.all = lines
        self.lines = self.all
        self.say(1)

    def say(self, patience=PATIENCE):
        self.number += 1
        word = f"word {self.number}"
        self.publisher.sendall(self.packet(0x30, self.string("words") + word.encode()))
        try:
            while self.lines.get(timeout=patience) != word:
                pass
        except queue.Empty:
            raise TimeoutError(f"{word} has not come") from None

    def request(self):
        with Timed() as timed:
            self.say()
        return timed.seconds
