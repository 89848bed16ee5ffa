"""Takes a program through its sleeps."""

import random, time, traceback


class Unavailable(Exception):
    """A program that cannot be run here."""


def percentile(values, share):
    """In microseconds; None without values."""
    ordered = sorted(values)
    return round(1e6 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]) if ordered else None


class Record:
    """The row of a program in the table."""

    def __init__(self, name):
        self.name = name
        self.reason = ""
        self.asleep_share = None
        self.sleeps = self.wakes = self.avoided = self.requests = self.lost = 0
        self.complaints = []
        self.asleep, self.awake = [], []
        self.memory_kib = None
        self.timers = "exact"
        self.is_installed = True

    def json(self):
        return {
            "name": self.name,
            "installed": self.is_installed,
            "timers": self.timers,
            "asleep_share": self.asleep_share,
            "sleeps": self.sleeps,
            "wakes": self.wakes,
            "avoided": self.avoided,
            "requests": self.requests,
            "lost": self.lost,
            "noticed": len(self.complaints),
            "asleep_p50_us": percentile(self.asleep, 0.5),
            "asleep_p99_us": percentile(self.asleep, 0.99),
            "awake_p50_us": percentile(self.awake, 0.5),
            "awake_p99_us": percentile(self.awake, 0.99),
            "memory_kib": self.memory_kib,
            "complaints": self.complaints[:10],
            "reason": self.reason,
        }


class Measurement:
    """One program, from its start to its end."""

    def __init__(self, program, sleeps, quiet, idle):
        self.program = program
        self.sleeps = sleeps
        self.quiet = quiet
        self.idle = idle
        self.record = Record(program.name)
        self.record.timers = program.timers
        self.random = random.Random(program.name)

    def take(self):
        """Returns the record."""
        program, record = self.program, self.record
        try:
            program.start()
            self._rounds()
            if self.quiet:
                self._be_quiet()
            record.memory_kib = program.run.memory_kib()
            shown = program.run.show() or {}
            counters = shown.get("counters", {})
            record.sleeps = counters.get("suspensions", 0)
            record.wakes = counters.get("wakes", 0)
            record.avoided = (shown.get("offload") or {}).get("wakes_avoided", 0)
        except Unavailable as error:
            record.is_installed = False
            record.reason = str(error)
        except Exception as error:
            record.reason = f"failed: {error!r}"
            record.complaints.append("".join(traceback.format_exception(error)))
        finally:
            record.complaints += program.end()
        return record

    def _rounds(self):
        run = self.program.run
        for number in range(self.sleeps):
            if not run.falls_asleep(self.program.patience):
                shown = run.show() or {}
                self.record.reason = f"{shown.get('state')}: {shown.get('state_detail')}"
                for _ in range(self.sleeps - number):
                    self._request(self.record.awake)
                return
            # After a shorter sleep it is left awake for longer.
            time.sleep(self.idle * self.random.uniform(1.05, 1.5))
            was_asleep = run.is_asleep
            self._request(self.record.asleep if was_asleep else None)
            # The answer may be here before the news that it is awake.
            if was_asleep and not run.wakes_up(5):
                self.record.complaints.append(f"request {self.record.requests} has not woken it")
            self._request(self.record.awake)

    def _request(self, times):
        self.record.requests += 1
        try:
            taken = self.program.request()
            if times is not None:
                times.append(taken)
        except (OSError, EOFError, AssertionError) as error:
            self.record.lost += 1
            self.record.complaints.append(f"request {self.record.requests}: {error!r}")
            self.program.recover()

    def _be_quiet(self):
        """Nothing comes for it: how long does it sleep?"""
        run = self.program.run
        run.falls_asleep(self.program.patience)
        before, began = run.show(), time.monotonic()
        time.sleep(self.quiet)
        after, ended = run.show(), time.monotonic()
        slept = after["counters"]["asleep_ns"] - before["counters"]["asleep_ns"]
        self.record.asleep_share = round(min(1, slept / 1e9 / (ended - began)), 3)
