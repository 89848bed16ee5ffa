"""The memory of many servers of the Model Context Protocol that wait for their next request."""

import concurrent.futures, contextlib, glob, os, subprocess, time

from catalog.stdio import ContextServer
from measure import percentile
from stage import eventually

CONTROL = "/sys/class/zram-control"


@contextlib.contextmanager
def swap(mebibytes=4_096):
    """The machine's swap; if there is none, one of compressed memory (zram) for the time of the measurement."""
    with open("/proc/swaps") as file:
        has_swap = len(file.readlines()) > 1
    if has_swap or not os.path.exists(CONTROL):
        yield
        return
    with open(f"{CONTROL}/hot_add") as file:
        number = file.read().strip()
    device = f"/dev/zram{number}"
    is_on = False
    try:
        with open(f"/sys/block/zram{number}/disksize", "w") as file:
            file.write(f"{mebibytes}M")
        if not os.path.exists(device):
            major, minor = open(f"/sys/block/zram{number}/dev").read().split(":")
            os.mknod(device, 0o660 | 0o060000, os.makedev(int(major), int(minor)))
        subprocess.run(["mkswap", device], check=True, capture_output=True)
        subprocess.run(["swapon", device], check=True)
        is_on = True
        yield
    finally:
        if is_on:
            subprocess.run(["swapoff", device], check=True)
        with open(f"/sys/block/zram{number}/reset", "w") as file:
            file.write("1")
        with open(f"{CONTROL}/hot_remove", "w") as file:
            file.write(number)


def swap_kib():
    """The memory that all compressed swaps take, with the allocator's own."""
    total = 0
    for file in glob.glob("/sys/block/zram*/mm_stat"):
        with open(file) as text:
            total += int(text.read().split()[2])
    return total // 1024


class Several(ContextServer):
    """One of several servers."""

    number_of_all = 0

    def __init__(self, supervisor, options):
        Several.number_of_all += 1
        self.name = f"mcp-server-{Several.number_of_all}"
        super().__init__(supervisor, options)


def measure(supervisor, count, idle, page_out):
    """Starts the servers, asks each something, and waits until their memory is written to swap."""
    options = ["--idle", f"{round(1_000 * idle)}ms", "--page-out", f"{round(1_000 * page_out)}ms"]
    programs = [Several(supervisor, options) for _ in range(count)]
    lost, times, complaints = 0, [], []
    swap_before = swap_kib()
    try:
        began = time.monotonic()

        def start(program):
            program.start()
            program.request()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(start, programs))
        processes = [program.run.processes() for program in programs]
        before = sum(program.run.memory_kib() for program in programs)
        if time.monotonic() - began > page_out:
            raise RuntimeError("the servers have started too slowly: the first ones have been written already")
        is_asleep = all(program.run.falls_asleep(60) for program in programs)
        last = [None]

        def is_settled():
            now = sum(program.run.memory_kib() for program in programs)
            settled = now == last[0] and now < before
            last[0] = now
            return settled

        time.sleep(page_out + 1)
        eventually(is_settled, 60, 1)
        after, swap = last[0], swap_kib() - swap_before
        for program in programs:
            try:
                times.append(program.request())
            except (OSError, EOFError, AssertionError) as error:
                lost += 1
                complaints.append(f"{program.name}: {error!r}")
    finally:
        for program in programs:
            complaints += program.end()
    return {
        "servers": count,
        "processes": sum(len(found) for found in processes),
        "asleep": is_asleep,
        "resident_before_kib": before,
        "resident_after_kib": after,
        "swap_memory_kib": swap,
        "first_answer_p50_us": percentile(times, 0.5),
        "first_answer_p99_us": percentile(times, 0.99),
        "lost": lost,
        "noticed": len(complaints),
        "complaints": complaints[:10],
    }
