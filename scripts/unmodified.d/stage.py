"""A supervisor of its own, and the programs that run under it."""

import json, os, re, shutil, signal, subprocess, tempfile, threading, time


def eventually(condition, seconds=20, pause=0.02):
    """Waits until the condition holds; returns its value, or the last one."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)


def tied(*command):
    """The command, ended by the kernel if this script is killed before it can end it."""
    return ["setpriv", "--pdeathsig", "TERM", "--", *command]


class Supervisor:
    """A private nightbelld, and the states of its clients as it reports them."""

    def __init__(self, programs):
        self.programs = programs
        self.directory = tempfile.mkdtemp(prefix="nightbell-unmodified-")
        # Some of the programs give up their rights and still have files here.
        os.chmod(self.directory, 0o755)
        self.socket = self.path("socket")
        self.states = {}
        self.changed = threading.Condition()
        self.log = open(self.path("nightbelld.log"), "w")
        self.daemon = subprocess.Popen(
            tied(
                self.program("nightbelld"), "--runtime-directory", self.path("run"), "--socket", self.socket,
                "--set", "monitor=off",
            ),
            stdout=self.log, stderr=self.log, start_new_session=True,
        )
        if not eventually(lambda: os.path.exists(self.socket)):
            raise RuntimeError(f"nightbelld does not start: {self.text()}")
        self.watch = subprocess.Popen(
            tied(self.program("nightbell"), "watch", "--socket", self.socket, "--json"),
            stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True,
        )
        threading.Thread(target=self._follow, daemon=True).start()

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def program(self, name):
        return os.path.join(self.programs, name)

    def text(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def _follow(self):
        events = open(self.path("events"), "w")
        for line in self.watch.stdout:
            events.write(line)
            event = json.loads(line)
            if event["kind"] == "state":
                with self.changed:
                    self.states[event["identifier"]] = event["state"]
                    self.changed.notify_all()

    def is_asleep(self, identifier):
        with self.changed:
            return self.states.get(identifier) == "suspended"

    def reaches(self, identifier, is_asleep, seconds):
        """Whether a client falls asleep, or wakes up, in that time."""
        with self.changed:
            return self.changed.wait_for(
                lambda: (self.states.get(identifier) == "suspended") == is_asleep, seconds
            )

    def show(self, identifier):
        result = subprocess.run(
            [self.program("nightbell"), "show", identifier, "--socket", self.socket, "--json"],
            capture_output=True, text=True,
        )
        return json.loads(result.stdout) if result.returncode == 0 else None

    def end(self):
        for process in [self.watch, self.daemon]:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


class Run:
    """A program under `nightbell run --unmodified`."""

    def __init__(self, supervisor, identifier, command, options, **streams):
        self.supervisor = supervisor
        self.identifier = identifier
        self.process = subprocess.Popen(
            tied(
                supervisor.program("nightbell"), "run", "--unmodified", "--socket", supervisor.socket,
                "--identifier", identifier, *options, "--", *command,
            ),
            start_new_session=True, **streams,
        )

    def falls_asleep(self, seconds):
        return self.supervisor.reaches(self.identifier, True, seconds)

    def wakes_up(self, seconds):
        return self.supervisor.reaches(self.identifier, False, seconds)

    @property
    def is_asleep(self):
        return self.supervisor.is_asleep(self.identifier)

    def show(self):
        return self.supervisor.show(self.identifier)

    def processes(self):
        """All processes of its cgroup."""
        shown = self.show()
        own = shown and _cgroup(shown["process_id"])
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _cgroup(pid) == own] if own else []

    def memory_kib(self):
        """The resident memory of all of its processes; shared pages in equal parts."""
        return sum(_pss(pid) for pid in self.processes())

    def end(self, seconds=20):
        """Returns whether it ended when it was asked to."""
        processes = self.processes()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(seconds)
            has_ended = True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            has_ended = False
        for pid in processes:
            # A server's sessions may outlive it.
            try:
                os.kill(pid, signal.SIGKILL)
                has_ended = False if pid == processes[0] else has_ended
            except ProcessLookupError:
                pass
        return has_ended


def _cgroup(pid):
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return next((line for line in file if line.startswith("0::")), None)
    except OSError:
        return None


def _pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1])
    except (OSError, TypeError):
        return 0
