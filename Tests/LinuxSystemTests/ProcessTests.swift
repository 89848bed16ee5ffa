import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct ProcessTests {
    @Test func aHandleSeesTheEnd() throws {
        let child = try Child.echo()
        let handle = try child.handle()
        let hadExited = handle.hasExited
        #expect(!hadExited)
        try handle.signal(SIGKILL)
        #expect(Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).contains(.readable))
        let hasExited = handle.hasExited
        #expect(hasExited)
        #expect(ProcFS.state(child.pid) == "Z")
        child.reap()
        let stillHasExited = handle.hasExited
        #expect(stillHasExited)
        let error = #expect(throws: SystemError.self) { try handle.signal(SIGKILL) }
        #expect(error?.code == ESRCH)
        #expect(ProcFS.state(child.pid) == nil)
    }

    @Test func statistics() throws {
        let child = try Child.echo()
        #expect(try child.answers())
        #expect(eventually { ProcFS.state(child.pid) == "S" })
        let statistics = try #require(ProcFS.statistics(child.pid))
        #expect(statistics.parent == getpid())
        #expect(statistics.threads == 1)
        #expect(statistics.startTime > 0)
        #expect(ProcFS.startTime(child.pid) == statistics.startTime)
        #expect(ProcFS.uid(child.pid) == getuid())
        #expect(ProcFS.tracerPID(child.pid) == nil)
        #expect(ProcFS.name(child.pid) == "cat")
        #expect(try #require(ProcFS.residentBytes(child.pid)) > 100_000)
        #expect(try #require(ProcFS.openDescriptors(child.pid)) >= 2)
        #expect(ProcFS.threadIdentifiers(child.pid) == [child.pid])
    }

    @Test func ancestorsEndWithTheFirstProcess() throws {
        let child = try Child.echo()
        var visited: [pid_t] = []
        let nothing: Int? = ProcFS.firstOfAncestry(of: child.pid, generations: .max) {
            visited.append($0)
            return nil
        }
        #expect(nothing == nil)
        #expect(visited.prefix(2) == [child.pid, getpid()])
        #expect(ProcFS.firstOfAncestry(of: child.pid) { $0 == getpid() ? "found" : nil } == "found")
        let limited: Int? = ProcFS.firstOfAncestry(of: child.pid, generations: 1) { $0 == getpid() ? 1 : nil }
        #expect(limited == nil)
    }

    /// The name may resemble the fields after it.
    @Test func namesDoNotConfuse() throws {
        let directory = try TemporaryDirectory()
        let program = directory.file(") Z 1 (x")
        #expect(symlink("/bin/cat", program) == 0)
        let child = try Child(program)
        #expect(try child.answers())
        #expect(ProcFS.name(child.pid) == ") Z 1 (x")
        #expect(ProcFS.statistics(child.pid)?.parent == getpid())
    }

    @Test func fileLocksAreCounted() throws {
        let directory = try TemporaryDirectory()
        let child = try Child(
            "/bin/sh", "-c", "exec 8>/dev/null 9>'\(directory.file("lock"))' && flock -n 9 && exec cat")
        #expect(try child.answers())
        #expect(ProcFS.fileLocksHeld(child.pid) == 1)
        #expect(ProcFS.fileLocksHeld(child.pid, limit: 1) == 0)
        #expect(ProcFS.fileLocksHeld(pid_t.max) == nil)
    }

    /// Their text is longer than what is read of it.
    @Test func manyFileLocksAreNoticed() throws {
        let directory = try TemporaryDirectory()
        let code = """
            import fcntl, os, sys
            file = open(sys.argv[1], "w")
            others = [os.dup(file.fileno()) for number in range(3)]
            for offset in range(0, 400, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, offset)
            sys.stdout.write(sys.stdin.readline())
            sys.stdout.flush()
            sys.stdin.read()
            """
        let child = try Child("/usr/bin/python3", "-c", code, directory.file("lock"))
        try child.send("?\n")
        #expect(try child.hear() == "?\n")
        // Of one of the four descriptors.
        let held = try #require(ProcFS.fileLocksHeld(child.pid))
        #expect(held > 20 && held < 100)
    }

    @Test func descendantsAreLimited() throws {
        // They end with this shell, or with the tests.
        let code = "for i in 1 2 3; do cat <&3 >/dev/null & done; echo all; wait"
        let program = try Child("/bin/sh", "-c", "exec 3<&0; " + code)
        #expect(try program.hear() == "all\n")
        func descendants(limit: Int, threadLimit: Int) -> Int? {
            ProcFS.descendants(of: program.pid, generations: 16, limit: limit, threadLimit: threadLimit)?
                .count
        }
        #expect(ProcFS.descendants(of: program.pid).count == 3)
        #expect(descendants(limit: 3, threadLimit: 4) == 3)
        #expect(descendants(limit: 2, threadLimit: 4) == nil)
        #expect(descendants(limit: 3, threadLimit: 3) == nil)
        #expect(ProcFS.descendants(of: getpid(), generations: 0, limit: 0, threadLimit: 0) == [])
        // This process has other threads.
        #expect(ProcFS.descendants(of: getpid(), generations: 1, limit: .max, threadLimit: 1) == nil)
    }

    @Test("Of a process with many children no more are read than are permitted")
    func manyChildren() throws {
        let code = """
            import os, sys
            for _ in range(3000):
                if os.fork() == 0: os._exit(0)
            print("all", flush=True)
            sys.stdin.read()
            """
        let program = try Child("/usr/bin/python3", "-c", code)
        #expect(try program.hear() == "all\n")
        func time(_ limit: Int) -> Int64 {
            let times = (0..<5).map { _ in
                let start = ThreadClock.now()
                let found = ProcFS.descendants(
                    of: program.pid, generations: 1, limit: limit, threadLimit: .max)
                #expect(found?.count == (limit == .max ? 3_000 : nil))
                return ThreadClock.now() - start
            }
            return times.min() ?? 0
        }
        #expect(4 * time(100) < time(.max))
        #expect(ProcFS.children(ofFirstThreadOf: program.pid, limit: 2_999) == nil)
        #expect(ProcFS.children(ofFirstThreadOf: program.pid, limit: 3_000)?.count == 3_000)
    }

    @Test func anEndedProcessHasNoFacts() {
        let nobody = pid_t.max
        #expect(ProcFS.statistics(nobody) == nil)
        #expect(ProcFS.uid(nobody) == nil)
        #expect(ProcFS.residentBytes(nobody) == nil)
        #expect(ProcFS.openDescriptors(nobody) == nil)
        #expect(ProcFS.threadIdentifiers(nobody) == [])
    }

    /// The program's name may be anything, parentheses and line ends too.
    @Test(arguments: ["cat", "a b", ") R 1", "((", "\n) S 2 ("]) func theNameIsPassedOver(name: String) {
        let rest = " T 42 1 1 0 -1 4194560 134 0 0 0 0 0 0 0 20 0 3 0 987654 2560000 200 18446744073709551615"
        let statistics = ProcFS.statistics(in: Array("7 (\(name))\(rest)\n".utf8))
        #expect(statistics?.state == "T")
        #expect(statistics?.parent == 42)
        #expect(statistics?.isExiting == false)
        #expect(statistics?.threads == 3)
        #expect(statistics?.startTime == 987_654)
    }

    @Test(arguments: [(4_194_560, false), (4_194_564, true), (4, true)])
    func anExitingProcessIsDetected(flags: Int, isExiting: Bool) {
        let text = "7 (cat) Z 42 1 1 0 -1 \(flags) 134 0 0 0 0 0 0 0 20 0 3 0 987654 2560000 200 1"
        #expect(ProcFS.statistics(in: Array(text.utf8))?.isExiting == isExiting)
    }

    @Test(arguments: ["", "7 (cat", "7 (cat)", "7 (cat) T", "7 (cat) T 42 1 1 0", "7 (cat) T x 1"])
    func malformedStatisticsGiveNil(text: String) {
        #expect(ProcFS.statistics(in: Array(text.utf8)) == nil)
    }

    @Test func locksAreParsedAmongOtherLines() {
        let information = """
            pos:\t0
            flags:\t0100002
            lock:\t1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF
            lock:\t2: FLOCK  ADVISORY  WRITE 42 fd:00:2531448 0 EOF
            lock:\t3: OFDLCK ADVISORY  READ -1 00:06:1028 0 EOF
            lock:\t4: LEASE  ACTIVE    READ 42 fd:00:1 0 EOF
            locked:\tPOSIX POSIX POSIX

            """
        #expect(ProcFS.locks(in: Array(information.utf8)) == 3)
        #expect(ProcFS.locks(in: []) == 0)
        #expect(ProcFS.locks(in: Array("lock:\t2: FLOCK".utf8)) == 1)
        #expect(ProcFS.locks(in: Array("lock:".utf8)) == 0)
    }
}
