import EdgeTestSupport
import Foundation
import Glibc
import Launching
import LinuxSystem
import Testing

@Suite("Launching programs")
struct LaunchTests {
    @Test("Arguments and environment arrive as given, and nothing else does")
    func exactly() throws {
        let arguments = try Launched.run(["/usr/bin/printf", "%s\\n", "a b", "", "*", "'\"$HOME"])
        #expect(arguments.output == "a b\n\n*\n'\"$HOME\n")
        setenv("NIGHTBELL_TEST_SECRET", "s3cr3t", 1)
        let environment = try Launched.run(["env"]) {
            $0.specification.environment = [
                "PATH": "/nonexistent:/usr/bin:/bin", "A": "b=c d", "LISTEN_FDS": "9",
            ]
            $0.additions = ["NIGHTBELL_SOCKET": "/s"]
        }
        let expected = ["A=b=c d", "NIGHTBELL_SOCKET=/s", "PATH=/nonexistent:/usr/bin:/bin"]
        #expect(environment.lines.sorted() == expected)
        #expect(environment.status == .exited(0))
    }

    @Test(
        "It has the given directory, limits and umask, and a session of its own")
    func surroundings() throws {
        let report = try Launched.shell("pwd; ulimit -n; ulimit -c; umask; cut -d' ' -f6 /proc/self/stat") {
            $0.specification.directory = "/usr/lib"
            $0.specification.limits = [
                ResourceLimit(.openFiles, soft: 77, hard: 77), ResourceLimit(.core, soft: 0, hard: 0),
            ]
            $0.specification.fileModeMask = 0o027
        }
        #expect(report.lines == ["/usr/lib", "77", "0", "0027", String(report.pid)])
    }

    @Test("Sockets arrive as in socket activation, followed by the connection")
    func sockets() throws {
        var first = try Pair(), second = try Pair(), control = try Pair()
        try first.say("one\n")
        try second.say("two\n")
        try control.say("three\n")
        let command = """
            echo "$$ $LISTEN_PID $LISTEN_FDS $LISTEN_FDNAMES"
            echo "$NIGHTBELL_CONNECTION_FD $NIGHTBELL_CONNECTION_PID"
            head -n 1 <&3; head -n 1 <&4; head -n 1 <&5
            ls -1 /proc/$$/fd
            """
        // One without close-on-exec, as a program that embeds us may have.
        let stray = dup(first.theirs)
        defer { close(stray) }
        let report = try Launched.shell(command) {
            $0.sockets = [
                .init(first.theirs, name: "sip: one"), .init(second.theirs, name: ""),
            ]
            $0.connection = control.theirs
        }
        let pid = String(report.pid)
        #expect(report.lines[0] == "\(pid) \(pid) 2 sip_ one:unknown")
        #expect(report.lines[1] == "5 \(pid)")
        #expect(report.lines[2...4] == ["one", "two", "three"])
        #expect(report.lines[5...].sorted() == ["0", "1", "2", "3", "4", "5"])
        first.close(); second.close(); control.close()
    }

    @Test("Sockets arrive in order, from any descriptor numbers")
    func placement() throws {
        // From 3 on in our own table, where they are in each other's way.
        var pairs: [Pair] = []
        for _ in 0..<40 { pairs.append(try Pair()) }
        for (index, pair) in pairs.enumerated() { try pair.say("\(index)\n") }
        let order = pairs.indices.sorted { pairs[$0].theirs > pairs[$1].theirs }
        let report = try Launched.run(["/bin/bash", "-c", "for n in {3..42}; do head -n 1 <&$n; done"]) {
            $0.sockets = order.map { .init(pairs[$0].theirs, name: "s") }
        }
        #expect(report.lines == order.map(String.init))
        for index in pairs.indices { pairs[index].close() }
    }

    @Test("No signal is blocked or ignored there, even if it is here")
    func signals() throws {
        let before = signal(SIGPIPE, SIG_IGN)
        defer { signal(SIGPIPE, before) }
        var set = sigset_t()
        sigaddset(&set, SIGTERM)
        var old = sigset_t()
        pthread_sigmask(SIG_BLOCK, &set, &old)
        defer { pthread_sigmask(SIG_SETMASK, &old, nil) }
        let report = try Launched.run(["/bin/cat", "/proc/self/status"])
        let lines = report.lines.filter { $0.hasPrefix("Sig") && !$0.hasPrefix("SigQ") }
        #expect(lines.count == 4)
        #expect(lines.allSatisfy { $0.hasSuffix("\t0000000000000000") }, "\(lines)")
        var now = sigset_t()
        pthread_sigmask(SIG_SETMASK, nil, &now)
        #expect(sigismember(&now, SIGTERM) == 1)
        #expect((1..<32).allSatisfy { $0 == SIGTERM || sigismember(&now, $0) == sigismember(&old, $0) })
    }

    // MARK: Failures

    @Test("Any failure to run a program is reported")
    func failures() throws {
        func failure(_ arguments: [String], _ adjust: (inout LaunchOrder) -> Void = { _ in }) throws
            -> LaunchError?
        {
            var order = LaunchOrder(LaunchSpecification(arguments: arguments), as: try .own())
            adjust(&order)
            do throws(LaunchError) {
                var launch = try Launch.begin(order)
                guard case .failed(let error) = try? Launched.outcome(of: &launch) else { return nil }
                #expect((try? Launched.exitStatus(of: launch.process)) == .exited(127))
                return error
            } catch {
                return error
            }
        }
        #expect(try failure(["/nonexistent"])?.step == .program)
        #expect(try failure(["/nonexistent"])?.code == ENOENT)
        #expect(try failure(["no-such-program"])?.code == ENOENT)
        #expect(try failure(["/etc/passwd"])?.code == EACCES)
        #expect(try failure(["passwd"]) { $0.specification.environment = ["PATH": "/etc"] }?.code == EACCES)
        #expect(
            try failure(["/bin/true"]) { $0.specification.directory = "/nonexistent" }?.step == .directory)
        #expect(try failure(["/bin/true"]) { $0.specification.output = "/nonexistent/a" }?.step == .output)
        #expect(
            try failure(["/bin/true"]) { $0.sockets = [.init(1_000_000, name: "")] }?.step == .descriptors)
        let limit = ResourceLimit(.openFiles, soft: 9, hard: 8)
        #expect(try failure(["/bin/true"]) { $0.specification.limits = [limit] }?.step == .limits)
        #expect(try failure([])?.step == .specification)
        #expect(try failure(["bin/true"])?.step == .specification)
        #expect(try failure(["/bin/true", "a\0b"])?.step == .specification)
        #expect(try failure(["/nonexistent"])?.description == "/nonexistent: No such file or directory")
        #expect(
            try failure(["/bin/true"]) { $0.specification.directory = "/nonexistent" }?.description
                == "its working directory /nonexistent cannot be entered: No such file or directory")
    }

    @Test("A script without an interpreter is refused: no shell is tried")
    func noShell() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("script")
        // Written by another process: a descriptor of ours might be inherited by another test's child.
        _ = try Launched.shell("echo echo hello > '\(path)'; chmod 755 '\(path)'")
        var launch = try Launch.begin(LaunchOrder(LaunchSpecification(arguments: [path]), as: .own()))
        guard case .failed(let error) = try Launched.outcome(of: &launch) else {
            Issue.record("it ran")
            return
        }
        #expect(error.step == .program && error.code == ENOEXEC)
        _ = try Launched.exitStatus(of: launch.process)
    }

    @Test("A launch that is given up leaves no process behind")
    func givenUp() throws {
        for _ in 0..<50 {
            let launch = try Launch.begin(
                LaunchOrder(LaunchSpecification(arguments: ["/bin/sleep", "1000"]), as: .own()))
            let process = try launch.process.duplicate()
            do { _ = consume launch }
            guard case .signalled(SIGKILL)? = try Launched.exitStatus(of: process) else {
                Issue.record("it lives")
                continue
            }
        }
    }

    @Test("Many launches at once, from many threads")
    func many() async throws {
        try await withThrowingTaskGroup(of: String.self) { group in
            for number in 0..<64 {
                group.addTask {
                    try Launched.shell("echo $NUMBER") { $0.additions["NUMBER"] = "\(number)" }.output
                }
            }
            var seen: Set<String> = []
            for try await output in group { seen.insert(output) }
            #expect(seen.count == 64)
        }
    }
}

/// Two ends of a stream.
struct Pair {
    let ours: CInt
    let theirs: CInt

    init() throws {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("socketpair") {
            socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
        }
        ours = ends[0]
        theirs = ends[1]
    }

    func say(_ text: String) throws {
        let bytes = Array(text.utf8)
        _ = try systemCall("write") { write(ours, bytes, bytes.count) }
    }

    mutating func close() {
        Glibc.close(ours)
        Glibc.close(theirs)
    }
}
