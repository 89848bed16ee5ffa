import EdgeTestSupport
import Glibc
import LinuxSystem
import ProcessWaits
import Testing

@Suite("Looks at real processes")
struct LookTests {
    /// A Python program. One with a loop has to end with the tests, even if these are killed: `has_parent()`.
    private func program(_ code: String) throws -> Child {
        let start = """
            import os, select, socket, sys, threading, time
            def has_parent(parent=os.getppid()): return os.getppid() == parent

            """
        return try Child("/usr/bin/python3", ["-c", start + code])
    }

    /// Looks until a thread of the process is in a call of this kind.
    private func look(_ child: borrowing Child, inCall kind: BlockedCall.Kind) throws -> ProcessLook {
        var found: ProcessLook?
        try #require(
            eventually {
                found = try? ProcessLook.take(child.pid)
                return found?.threads.contains { thread in
                    guard case .blocked(let call) = thread.state else { return false }
                    return call.kind == kind
                } ?? false
            })
        return try #require(found)
    }

    @Test("Epoll: the members of the set, and the timeout")
    func epoll() throws {
        let child = try program(
            """
            a, b = socket.socketpair(); r, w = os.pipe(); e = select.epoll()
            e.register(a, select.EPOLLIN); e.register(r, select.EPOLLIN)
            e.poll(1000)
            """)
        let look = try look(child, inCall: .epoll)
        let thread = try #require(look.threads.first)
        #expect(Set(thread.watched.compactMap { look.descriptors[$0] }) == [.socket, .pipe])
        #expect(thread.watched.count == 2)
        #expect(thread.timeout == .seconds(1_000))
    }

    @Test("Poll: the entries are read from the program's memory")
    func poll() throws {
        let child = try program(
            "a, b = socket.socketpair(); p = select.poll(); p.register(a, select.POLLIN); p.poll(700000)")
        let look = try look(child, inCall: .poll)
        let thread = try #require(look.threads.first)
        #expect(thread.watched.map { look.descriptors[$0] } == [.socket])
        #expect(thread.timeout == .seconds(700))
    }

    @Test("Select: the bits of its sets")
    func select() throws {
        let child = try program("a, b = socket.socketpair(); select.select([a, 0], [], [], 500)")
        let look = try look(child, inCall: .select)
        let thread = try #require(look.threads.first)
        #expect(thread.watched.map { look.descriptors[$0] } == [.socket, .socket])
        #expect(thread.watched.first == 0)
        #expect(try #require(thread.timeout) <= .seconds(500))
    }

    @Test("A program with threads that wait may sleep; each wait is told once")
    func maySleep() throws {
        let child = try program(
            """
            lock = threading.Lock(); lock.acquire()
            for _ in range(3): threading.Thread(target=lock.acquire, daemon=True).start()
            os.read(0, 1)
            """)
        try #require(
            eventually {
                guard let look = try? ProcessLook.take(child.pid) else { return false }
                let assessment = SleepAssessment(look, look, interval: .seconds(1))
                return assessment.maySleep
                    && assessment.waits.contains { $0.kind == .futex && $0.threads == 3 }
                    && assessment.waits.contains { $0.kind == .read && $0.descriptors == [.socket: 1] }
            })
    }

    @Test("A program that computes must stay awake")
    func runs() throws {
        let child = try program("while has_parent(): pass")
        try #require(
            eventually {
                guard let look = try? ProcessLook.take(child.pid) else { return false }
                return SleepAssessment(look, look, interval: .seconds(1)).obstacles == [.runs(child.pid)]
            })
    }

    @Test("A program that ticks is never idle for a second")
    func ticks() throws {
        let child = try program("while has_parent(): time.sleep(0.02)")
        let before = try look(child, inCall: .sleep)
        let start = RunningClock.now()
        func runs(_ look: ProcessLook) -> UInt64 { look.threads.first?.activity?.runs ?? 0 }
        var after = before
        try #require(
            eventually {
                if let look = try? ProcessLook.take(child.pid) { after = look }
                return runs(after) >= runs(before) + 20
            })
        let assessment = SleepAssessment(
            before, after, interval: .nanoseconds(RunningClock.now() - start))
        #expect(
            assessment.obstacles.contains {
                if case .neverIdle(let rate) = $0 { (2...200).contains(rate) } else { false }
            })
    }

    @Test("A stopped program, and a kernel thread")
    func others() throws {
        let child = try Child.echo()
        kill(child.pid, SIGSTOP)
        try #require(eventually { threads(of: child.pid, are: "T") })
        let stopped = try #require(try ProcessLook.take(child.pid))
        #expect(SleepAssessment(stopped, stopped, interval: .seconds(1)).obstacles == [.stopped])
        // kthreadd, unless a container hides it.
        guard ProcFS.name(2) == "kthreadd", let kernel = try ProcessLook.take(2) else { return }
        #expect(SleepAssessment(kernel, kernel, interval: .seconds(1)).obstacles == [.kernelThread])
    }

    @Test("A process that is gone is none")
    func gone() throws {
        #expect(try ProcessLook.take(pid_t.max) == nil)
    }
}
