import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

@Suite("The monitor and its supervisor") struct ConnectionTests {
    @Test("The end of the connection ends the monitor")
    func end() throws {
        let monitor = try MonitorProcess()
        try monitor.demand([.network])
        _ = try monitor.first { if case .network = $0 { true } else { nil } }
        monitor.disconnect()
        #expect(try monitor.exitCode() == 0)
    }

    @Test("A message that cannot be decoded ends it, with an exit code of its own")
    func nonsense() throws {
        let monitor = try MonitorProcess()
        try monitor.send([0xFF, 0xFF, 0xFF])
        #expect(try monitor.exitCode() == EX_PROTOCOL)
    }

    @Test("Without a connection it does not start")
    func noConnection() throws {
        let tests = try readLink("/proc/self/exe")
        let program = tests[..<(tests.lastIndex(of: "/") ?? tests.startIndex)] + "/nightbell-monitor"
        let child = try Child("/bin/sh", ["-c", "exec 3<&-; exec \(program) 2>&-"])
        child.reap()
        #expect(child.status >> 8 & 0xFF == EX_USAGE)
    }

    @Test("Every source that is demanded says whether it can observe, and unknown ones are ignored")
    func availability() throws {
        let monitor = try MonitorProcess()
        let sources: [WireMonitorSource] = [
            .network, .power, .sleep, .users, .audio, .location, .bluetooth, .devices,
        ]
        try monitor.demand(sources + [.UNRECOGNIZED(99)]) { $0.location.accuracy = 4 }
        var open = Set(sources)
        while !open.isEmpty {
            open.remove(
                try monitor.first { fact in if case .source(let state) = fact { state.source } else { nil } })
        }
    }

    @Test("A supervisor that does not read for a while gets the latest of each report")
    func fullQueue() throws {
        let monitor = try MonitorProcess()
        // Each demand opens the source again, and so reports again: more than the queue holds.
        for _ in 0..<2_000 {
            if try !monitor.isSent([.network]) { break }
            if try !monitor.isSent([]) { break }
        }
        try #require(eventually { ProcFS.state(monitor.pid) == "S" })
        while try monitor.next(within: 200) != nil {}
        try monitor.demand([.network])
        _ = try monitor.first { if case .network = $0 { true } else { nil } }
    }

    @Test(
        "As root it becomes the user that it is told, for ever",
        .enabled(if: geteuid() == 0, "only root can become another user"))
    func privileges() throws {
        let monitor = try MonitorProcess(["--user", "nobody"])
        try monitor.demand([.network])
        _ = try monitor.first { if case .network = $0 { true } else { nil } }
        let status = try SmallFile.readText("/proc/\(monitor.pid)/status")
        let nobody = try #require(getpwnam("nobody")).pointee
        func values(_ name: String) -> [String] {
            let line = status.split(separator: "\n").first { $0.hasPrefix(name + ":") } ?? ""
            return line.dropFirst(name.count + 1).split(whereSeparator: \.isWhitespace).map(String.init)
        }
        #expect(values("Uid") == Array(repeating: "\(nobody.pw_uid)", count: 4))
        #expect(values("Gid") == Array(repeating: "\(nobody.pw_gid)", count: 4))
        #expect(values("Groups").isEmpty)
        #expect(values("NoNewPrivs") == ["1"])
        #expect(values("CapEff") == ["0000000000000000"])
        // Files of a process that is not dumpable belong to root.
        var file = stat()
        #expect(stat("/proc/\(monitor.pid)/environ", &file) == 0 && file.st_uid == 0)
    }

    @Test("A user that does not exist ends it", .enabled(if: geteuid() == 0, "needs root"))
    func unknownUser() throws {
        let monitor = try MonitorProcess(["--user", "no-such-user"])
        #expect(try monitor.exitCode() == EX_NOPERM)
    }
}
