"""A file system of one file, of zeros, whose answers can be held back: as on a server that is out of reach.

Usage: slow-disk.py DIRECTORY SIZE; needs root. The file is DIRECTORY/file. Each line of its input is "hold KIND...", of
"attributes", "reads" and "closes", or "go", which gives all answers, or "step", which gives those that are held so far; it prints "ok" then,
and at first. A held request is printed as its kind. At the end of its input the file system is gone.
"""
import ctypes
import errno
import os
import select
import struct
import sys

ROOT, FILE = 1, 2
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 42
KINDS = {GETATTR: "attributes", READ: "reads", FLUSH: "closes"}
DIRECT_IO = 1
directory, size = sys.argv[1], int(sys.argv[2])


def attributes(node):
    mode, length = (0o40755, 0) if node == ROOT else (0o100644, size)
    return struct.pack("<6Q10I", node, length, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def respond(opcode, node, body):
    """The response, or a number of an error."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 1 << 16, 0, 12, 10, 1 << 16, 1, 16, 0, *[0] * 8)
    if opcode == LOOKUP:
        if body != b"file\0":
            return errno.ENOENT
        return struct.pack("<4Q2I", FILE, 0, 1000, 0, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<Q2I", 1, DIRECT_IO, 0)
    if opcode == READ:
        _, offset, count = struct.unpack_from("<2QI", body)
        return bytes(max(0, min(count, size - offset)))
    if opcode in (FLUSH, RELEASE):
        return b""
    return errno.ENOSYS


def answer(request):
    opcode, unique, node, body = request
    response = respond(opcode, node, body)
    error = response if isinstance(response, int) else 0
    data = b"" if error else response
    os.write(device, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % device
if libc.mount(b"slow-disk", directory.encode(), b"fuse", 6, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
held, waiting = set(), []
say("ok")
while True:
    readable = select.select([device, sys.stdin], [], [])[0]
    if device in readable:
        packet = os.read(device, 1 << 20)
        _, opcode, unique, node = struct.unpack_from("<2I2Q", packet)
        request = (opcode, unique, node, packet[40:])
        if KINDS.get(opcode) in held:
            waiting.append(request)
            say(KINDS[opcode])
        elif opcode not in (FORGET, BATCH_FORGET):
            answer(request)
    if sys.stdin in readable:
        words = sys.stdin.readline().split()
        if not words:
            libc.umount2(directory.encode(), 2)
            break
        if words[0] != "step":
            held = set(words[1:])
        if words[0] != "hold":
            while waiting:
                answer(waiting.pop(0))
        say("ok")
