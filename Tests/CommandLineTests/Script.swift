/// Python programs that know nothing of Nightbell. Each says when it is ready.
enum Script {
    static let imports = "import os, select, signal, socket, sys, threading, time\n"
    static let ready = "print('ready', flush=True)\n"

    /// An echo server on a TCP port, which it prints, with an epoll set.
    static let echo =
        imports + """
            server = socket.create_server(("127.0.0.1", 0))
            events = select.epoll()
            events.register(server, select.EPOLLIN)
            clients = {}
            signal.signal(signal.SIGUSR1, lambda *_: print("got USR1", flush=True))
            print("port", server.getsockname()[1], flush=True)
            while True:
                for number, _ in events.poll():
                    if number == server.fileno():
                        client, _ = server.accept()
                        clients[client.fileno()] = client
                        events.register(client, select.EPOLLIN)
                        continue
                    data = clients[number].recv(1000)
                    if data:
                        clients[number].sendall(data)
                    else:
                        events.unregister(number)
                        clients.pop(number).close()
            """

    /// The same for one client at a time, in blocking calls.
    static let accepting =
        imports + """
            server = socket.create_server(("127.0.0.1", 0))
            print("port", server.getsockname()[1], flush=True)
            while True:
                client, _ = server.accept()
                while data := client.recv(1000): client.sendall(data)
                client.close()
            """

    /// A client of a server of lines on the port in its last argument. It prints each line, answers `PING` in
    /// a way of its own, and waits in the way of its first argument.
    static let lineClient =
        imports + """
            way = sys.argv[1]
            server = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
            other = socket.create_server(("127.0.0.1", 0))
            read, write = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
            if way != "recv": server.setblocking(False)
            if way == "poll":
                events = select.poll()
                for member in server, other: events.register(member, select.POLLIN)
            elif way != "recv":
                events = select.epoll()
                for member in server, other: events.register(member, write if way == "edges" else read)
                if way == "twice":
                    duplicate = server.dup()
                    events.register(duplicate, read)
                if way == "once": events.modify(other, read | select.EPOLLONESHOT)
            print("other", other.getsockname()[1], flush=True)
            rest = b""
            while True:
                if way != "recv":
                    if other.fileno() in [number for number, _ in events.poll()]:
                        other.accept()
                        print("accepted", flush=True)
                while True:
                    try: data = server.recv(1000)
                    except BlockingIOError: break
                    if not data:
                        print("end", flush=True)
                        sys.exit(3)
                    *lines, rest = (rest + data).split(b"\\r\\n")
                    for line in lines:
                        print("got", line.decode(), flush=True)
                        if line.startswith(b"PING"): server.sendall(b"PONG from the program\\r\\n")
            """

    /// Answers each line of its input, and ends with it.
    static let lines =
        imports + ready + """
            for line in sys.stdin.buffer:
                print("answer", line.decode().strip(), flush=True)
            print("end of input", flush=True)
            sys.exit(5)
            """

    /// Two threads with timers that print how late they were, in milliseconds: a sleep, and a wait for a
    /// futex.
    static let timers =
        imports + """
            def late(name, begin, wait):
                print(name, int(1000 * (time.monotonic() - begin - wait)), flush=True)
            def waiting():
                while True:
                    begin = time.monotonic()
                    threading.Event().wait(1.7)
                    late("futex", begin, 1.7)
            threading.Thread(target=waiting, daemon=True).start()
            while True:
                begin = time.monotonic()
                time.sleep(1.9)
                late("sleep", begin, 1.9)
            """

    /// A handler of a signal, which needs a call of the first thread to be interrupted, and other threads
    /// that wait.
    static let threads =
        imports + """
            signal.signal(signal.SIGUSR1, lambda *_: print("got USR1", flush=True))
            for _ in range(8):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
            print("ready", flush=True)
            sys.stdin.buffer.readline()
            """

    /// Looks around ten times a second, and answers on a TCP port, which it prints.
    static let ticks =
        imports + """
            server = socket.create_server(("127.0.0.1", 0))
            print("port", server.getsockname()[1], flush=True)
            clients = []
            while True:
                for ready in select.select([server] + clients, [], [], 0.1)[0]:
                    if ready == server:
                        clients.append(server.accept()[0])
                    else:
                        ready.sendall(ready.recv(1000))
            """

    /// Answers each line, and waits in `select` for three seconds meanwhile, which the kernel prolongs by
    /// each freeze.
    static let prolonged =
        imports + """
            def waiting():
                begin = time.monotonic()
                select.select([], [], [], 3)
                print("late by", int(1000 * (time.monotonic() - begin - 3)), "ms", flush=True)
            threading.Thread(target=waiting, daemon=True).start()
            print("ready", flush=True)
            for line in sys.stdin.buffer:
                print("answer", line.decode().strip(), flush=True)
            """

    /// Waits for all of eight bytes, and then writes more to its child than that has room for.
    static let halves =
        imports + """
            (reading, writing) = os.pipe()
            stdin = socket.socket(fileno=0)
            print("ready", flush=True)
            select.select([stdin], [], [])
            print("got", len(stdin.recv(8, socket.MSG_WAITALL)), flush=True)
            if os.fork() == 0:
                os.read(0, 1)
                os.close(writing)
                while os.read(reading, 100000): pass
                os._exit(0)
            print("wrote", os.write(writing, bytes(200000)), flush=True)
            """

    /// A parent that waits for its child, which answers lines.
    static let family =
        imports + """
            child = os.fork()
            if child == 0:
                print("ready", flush=True)
                for line in sys.stdin.buffer:
                    print("child answers", line.decode().strip(), flush=True)
                os._exit(7)
            print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            sys.exit(8)
            """

    /// A child that computes for ever after the first line on the standard input of both.
    static let busyChild =
        imports + """
            child = os.fork()
            if child == 0:
                sys.stdin.readline()
                print("computes", flush=True)
                while True: pass
            print("child", child, flush=True)
            os.waitpid(child, 0)
            """
}
