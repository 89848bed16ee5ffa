import Foundation
import Testing

/// Small real runs: their figures mean nothing, but must be there, and nothing may be lost.
@Suite("Runs of nightbell-load", .serialized, .timeLimit(.minutes(40)))
struct RunTests {
    /// The output of a run.
    struct Told {
        let text: String
        let json: [String: Any]
        let page: String

        /// A number by its path, such as `latency_us.p50`.
        func number(_ path: String) -> Double? {
            let names = path.split(separator: ".").map(String.init)
            let parent = names.dropLast().reduce(json as [String: Any]?) { $0?[$1] as? [String: Any] }
            return names.last.flatMap { parent?[$0] as? Double }
        }
    }

    private static var isRoot: Bool { geteuid() == 0 }
    static var method: String { isRoot ? "cgroup" : "signal" }

    private static let prlimit = "/usr/bin/prlimit"

    func run(_ arguments: String, under wrapper: [String] = []) throws -> Told {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let programs = URL(fileURLWithPath: program).deletingLastPathComponent()
        let report = FileManager.default.temporaryDirectory.appendingPathComponent(
            "load-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: report) }
        let process = Process()
        let words =
            wrapper + [programs.appendingPathComponent("nightbell-load").path]
            + arguments.split(separator: " ").map(String.init)
            + ["--json", "--quiet", "--report", report.path]
        process.executableURL = URL(fileURLWithPath: words[0])
        process.arguments = Array(words.dropFirst())
        let (output, errors) = (Pipe(), Pipe())
        process.standardOutput = output
        process.standardError = errors
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        let complaints = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        #expect(process.terminationStatus == 0, "\(complaints)")
        #expect(complaints.isEmpty)
        let last = try #require(text.split(separator: "\n").last)
        let json = try #require(try JSONSerialization.jsonObject(with: Data(last.utf8)) as? [String: Any])
        let name = try #require(json["command"] as? String)
        let page = try String(contentsOf: report.appendingPathComponent("\(name).html"), encoding: .utf8)
        return Told(text: text, json: json, page: page)
    }

    func expectNumbers(_ told: Told, _ paths: String...) {
        for path in paths { #expect(told.number(path) != nil, "no \(path)") }
    }

    @Test("chaos")
    func chaos() throws {
        let told = try run("chaos --clients 6 --sockets 60 --kills 12 --suspend \(Self.method)")
        for name in ["connections_lost", "wakes_lost", "wrong_bytes", "stuck_frozen"] {
            #expect(told.number(name) == 0, "\(name)")
        }
        #expect(told.number("kills") == 12 && (told.number("bytes") ?? 0) > 0)
        expectNumbers(told, "recovery_ms.p50", "recovery_ms.p99", "wakes", "wakes_repeated", "handlers_late")
    }

    @Test("hostile")
    func hostile() throws {
        let told = try run("hostile --clients 6 --seconds 1 --suspend \(Self.method)")
        let kinds = try #require(told.json["kinds"] as? [[String: Any]])
        let busy = try #require(told.number("busy.victim_p99_us"))
        #expect(
            kinds.compactMap { $0["name"] as? String }
                == [
                    "hand_over", "patterns", "identifiers", "connections", "messages", "crashes", "unread",
                    "slow_pings", "lingering", "lingering_adopted", "file_locks", "descendants",
                    "epoll_members",
                ])
        for kind in kinds {
            // Where nothing keeps attackers from it, half of the wakes take longer than half a second.
            let median = try #require(kind["victim_p50_us"] as? Double, "\(kind)")
            #expect(median < 250_000, "\(kind)")
            #expect((kind["log_lines"] as? Int).map { $0 < 300 } == true, "\(kind)")
            let name = try #require(kind["name"] as? String)
            // Beside other tests, 1,500 new processes leave the supervisor less than its share of a processor.
            guard name != "descendants", try isLate(kind, busy: busy) else { continue }
            // A stall of the machine does not come again, and the effect of an attack does.
            let again = try run("hostile --clients 6 --seconds 1 --suspend \(Self.method) --kind \(name)")
            let second = try #require((again.json["kinds"] as? [[String: Any]])?.first)
            let busyAgain = try #require(again.number("busy.victim_p99_us"))
            #expect(try !isLate(second, busy: busyAgain), "\(kind), \(second)")
        }
        #expect(told.number("lost") == 0)
        expectNumbers(told, "worst_max_us", "baseline.victim_p99_us", "busy.victim_p50_us")
        expectNumbers(told, "p99_ratio", "p99_ratio_baseline")
        for kind in kinds {
            for (name, other) in [("p99_ratio", "busy"), ("p99_ratio_baseline", "baseline")] {
                let p99 = try #require(kind["victim_p99_us"] as? Double)
                let ratio = try #require(kind[name] as? Double, "\(kind)")
                let base = try #require(told.number(other + ".victim_p99_us"))
                #expect(abs(ratio - p99 / base) <= 0.01 * ratio, "\(kind), \(base)")
            }
        }
    }

    /// Whether keep-alives were late, or the longest of a second's wakes took unusually long. Ten runs of a
    /// debug build beside other builds had none late and at most 214 ms, 8 times the figure of `busy`; of the
    /// next eight one had three late, and another one a wake of 3.6 s.
    private func isLate(_ kind: [String: Any], busy: Double) throws -> Bool {
        let late = try #require(kind["late"] as? Int, "\(kind)")
        let longest = try #require(kind["victim_p99_us"] as? Double, "\(kind)")
        return late > 0 || longest >= max(20 * busy, 500_000)
    }

    @Test("gateway")
    func gateway() throws {
        let told = try run(
            "gateway --clients 20 --sleepers 6 --rate 50 --garbage 200 --seconds 1 --suspend \(Self.method)")
        #expect(told.number("clients") == 26)
        #expect(told.number("lost") == 0)
        #expect(try #require(told.number("garbage_answered_per_second")) > 0)
        let phases = try #require(told.json["phases"] as? [[String: Any]])
        #expect(phases.compactMap { $0["name"] as? String } == ["quiet", "busy", "slow_browsers", "garbage"])
        for phase in phases { #expect(try #require(phase["p99_us"] as? Double) > 0, "\(phase)") }
        expectNumbers(told, "ratio.garbage_p99", "ratio.garbage_p99_over_busy", "ratio.slow_browsers_p99")
        guard access("/usr/bin/chromium", X_OK) == 0 else { return }
        for name in ["first_paint_ms.max", "clients_shown_ms.max", "wake_shown_ms.max", "gateway_cpu_share"] {
            #expect(try #require(told.number(name), "\(name)") > 0)
        }
        #expect(try #require(told.number("wakes_per_second")) > 10)
    }

    @Test("gateway without a browser tells nothing of the dashboard")
    func gatewayWithoutBrowser() throws {
        let told = try run(
            "gateway --clients 2 --sleepers 2 --garbage 50 --seconds 1 --browser /nothing --suspend \(Self.method)"
        )
        #expect(told.number("lost") == 0 && told.number("clients_shown_ms.max") == nil)
        #expect(told.json["gateway_cpu_share"] is NSNull)
        #expect(told.text.contains("there is no browser"))
    }

    @Test("wake", arguments: ["unix", "tcp", "udp"])
    func wake(transport: String) throws {
        let method = transport == "tcp" ? "signal" : Self.method
        let told = try run(
            "wake --clients 3 --calls 10 --rounds 2 --transport \(transport) --suspend \(method)")
        #expect(told.number("lost") == 0)
        #expect(told.number("duplicate") == 0)
        for side in ["", "floor."] {
            for name in ["p50", "p90", "p99", "p999", "max"] {
                #expect(try #require(told.number("\(side)latency_us.\(name)")) > 0)
            }
        }
        #expect(try #require(told.number("asleep_us.p50")) > 0)
        #expect(try #require(told.number("ratio.p50")) > 0)
        #expect(try #require(told.number("ratio.p99")) > 0)
        #expect(told.text.contains("Packet → first byte read by the handler"))
        #expect(told.page.contains("<svg") && told.page.contains("prefers-color-scheme: dark"))
        #expect(told.page.contains("Latency by percentile"))
    }

    @Test("unmodified", .enabled(if: isRoot, "needs cgroups"))
    func unmodified() throws {
        let told = try run("unmodified --programs 4 --rounds 2 --idle-seconds 1")
        #expect(told.number("lost") == 0)
        #expect(told.number("floor.lost") == 0)
        for side in ["", "floor."] { #expect(try #require(told.number("\(side)latency_us.p50")) > 0) }
        #expect(try #require(told.number("ratio.p50")) > 0)
        #expect(try #require(told.number("decision_cpu_us")) > 0)
        // None has done anything, or what it did would have been told.
        #expect(told.number("idle.program_switches") == 0)
        expectNumbers(told, "ratio.p99", "supervisor_bytes_per_program", "idle.runner_switches")
        #expect(told.page.contains("Latency by percentile"))
    }

    @Test("torture", .enabled(if: isRoot, "needs cgroups"))
    func torture() throws {
        let told = try run("torture --cycles 150 --programs 10 --kills 2")
        expectUnharmed(told)
        #expect(try #require(told.number("called_asleep")) > 0)
        #expect(try #require(told.number("free.calls")) > 0)
        #expect(try #require(told.number("unmodified.timers")) > 0)
        expectNumbers(told, "late", "called_freezing", "unmodified.latest_ms", "free.latest_ms")
    }

    /// Each would be lost if another one's call did not wake the program: alone, it is on its own.
    @Test(
        "torture of one kind", .enabled(if: isRoot, "needs cgroups"),
        arguments: ["unshared", "mortal", "exclusive", "duplicate", "condition"])
    func torture(kind: String) throws {
        expectUnharmed(try run("torture --cycles 12 --programs 2 --kind \(kind)"))
    }

    private func expectUnharmed(_ told: Told) {
        for name in ["lost", "noticed", "left_frozen"] {
            #expect(told.number(name) == 0, "\(name): \(told.json["faults"] ?? "")")
        }
        // A busy machine makes single timers late by some milliseconds.
        #expect(told.number("unmodified.latest_ms").map { $0 < 1_000 } == true, "\(told.json)")
    }

    @Test("storm")
    func storm() throws {
        let told = try run("storm --clients 10 --rounds 2 --suspend \(Self.method)")
        #expect(told.number("lost") == 0)
        #expect(told.number("duplicate") == 0)
        #expect(try #require(told.number("wakes_per_s")) > 0)
        expectNumbers(told, "floor.wakes_per_s", "floor.duplicate", "ratio.wakes_per_s")
        #expect(told.page.contains("in the last round"))
        #expect((told.number("unfairness") != nil) == Self.isRoot)
    }

    @Test("park")
    func park() throws {
        let told = try run(
            "park --sockets 400 --first-sockets 80 --clients 2 --idle-clients 5 --idle-seconds 1 "
                + "--suspend \(Self.method)")
        expectNumbers(
            told, "bytes_per_socket", "keeper_bytes_per_socket", "base_rss_mib", "floor.bytes_per_socket")
        #expect(told.number("idle.context_switches") == 0)
        #expect(told.number("idle.cpu_ticks") == 0)
        let ratio = try #require(told.json["ratio"] as? [String: Any])
        #expect(ratio["bytes_per_socket"] != nil && ratio["kernel_bytes_per_socket"] != nil)
        #expect(told.page.contains("Memory against population"))
    }

    @Test("adopt", arguments: [1, 50])
    func adopt(batch: Int) throws {
        let told = try run("adopt --sockets 500 --rounds 1 --batch \(batch)")
        #expect(try #require(told.number("sockets_per_s")) > 0)
        expectNumbers(told, "floor.sockets_per_s", "ratio.sockets_per_s")
    }

    @Test("keepalive, virtual: fewer instants, nothing late, and the same again for the same seed")
    func virtualKeepAlive() throws {
        let told = try run("keepalive --virtual --clients 50 --hours 3 --seed 4")
        #expect(told.number("late") == 0)
        #expect(try #require(told.number("instants_reduction")) > 3)
        #expect(try #require(told.number("runs_ratio")) < 1.2)
        #expect(try #require(told.number("least_left_s")) >= 0)
        let again = try run("keepalive --virtual --clients 50 --hours 3 --seed 4")
        #expect(told.number("instants") == again.number("instants"))
        #expect(told.number("runs") == again.number("runs"))
    }

    @Test("keepalive, in real time")
    func realKeepAlive() throws {
        let told = try run(
            "keepalive --clients 4 --seconds 3 --shortest 1 --longest 1 --suspend \(Self.method)")
        #expect(try #require(told.number("runs")) >= 4)
        #expect(told.number("late") == 0)
    }

    @Test("calls")
    func calls() throws {
        let told = try run(
            "calls --clients 2 --calls 4 --rate 10 --mean-length 0.05 --suspend \(Self.method)")
        #expect(told.number("answered") == 4)
        #expect(told.number("failed") == 0)
        #expect(told.number("lost") == 0)
        #expect(told.number("not_placed") == 0)
        #expect(told.number("not_ended") == 0)
        expectNumbers(told, "answer_us.p50", "asleep_share.median", "concurrent")
    }

    @Test("transfer: no kill loses or damages a file, little is fetched twice, and each client is woken once")
    func transfer() throws {
        let told = try run(
            "transfer --files 24 --bytes 24MiB --kills 4 --sessions 4 --suspend \(Self.method)")
        // A kill that comes late, beside other work, may end the supervisor during one of the wakes: the next
        // one makes it again.
        #expect(try 4...8 ~= #require(told.number("wakes")))
        #expect(told.number("lost") == 0)
        #expect(told.number("corrupt") == 0)
        #expect(told.number("failed") == 0)
        #expect(told.number("kills") == 4)
        expectNumbers(told, "ratio.bytes", "bytes_per_second")
        let whole = try run("transfer --files 24 --bytes 24MiB")
        #expect(whole.number("lost") == 0)
        #expect(whole.number("ratio.bytes") == 1)
        expectNumbers(whole, "ratio.throughput", "floor_seconds")
    }

    @Test("offload")
    func offload() throws {
        let told = try run(
            "offload --sockets 60 --clients 2 --interval 1s --intervals 3 --suspend \(Self.method)")
        #expect(told.number("client_wakes") == 0)
        for side in ["nightbell", "floor"] {
            #expect(try #require(told.number("\(side).pings_heard")) > 100)
            #expect(told.number("\(side).pings_sent") == told.number("\(side).pings_answered"))
        }
        #expect(told.number("nightbell.pings_missing") == 0)
        #expect(try #require(told.number("ratio.cpu")) > 0)
    }

    @Test("relaunch")
    func relaunch() throws {
        let told = try run(
            "relaunch --clients 40 --first-clients 10 --calls 5 --rounds 2 --suspend \(Self.method)")
        #expect(told.number("lost") == 0)
        #expect(told.number("floor.lost") == 0)
        #expect(told.number("everybody.answered") == 40)
        #expect(try #require(told.number("memory.bytes_empty")) > 0)
        expectNumbers(told, "latency_us.p50", "floor.latency_us.p50", "ratio.p50", "ratio.p99")
    }

    @Test("chat")
    func chat() throws {
        let told = try run(
            "chat --connections 180 --active 5 --messages 3000 --calls 20 --rounds 1 --idle-milliseconds 200")
        for name in ["lost", "reordered", "random.duplicate", "random.irregular", "random.connections_lost"] {
            #expect(told.number(name) == 0, "\(name)")
        }
        #expect(told.number("random.messages") == 3_000 && told.number("random.deliveries") == 12_000)
        #expect(try #require(told.number("random.hibernations")) > 0)
        #expect(try #require(told.number("random.wakes")) > 0)
        // All callers were asleep before their first calls.
        #expect(told.number("callers_woken") == 5)
        let hibernated = try #require(told.number("hibernated.bytes_per_connection"))
        #expect(try #require(told.number("resident.bytes_per_connection")) > hibernated)
        for side in ["hibernated", "resident"] {
            expectNumbers(
                told, "\(side).latency_us.p50", "\(side).latency_us.p99", "\(side).first_latency_us.p50",
                "\(side).messages_per_s", "\(side).cpu_us_per_delivery", "\(side).memory_mib")
        }
        expectNumbers(told, "ratio.delay_p50", "ratio.throughput", "ratio.cpu")
        #expect(told.page.contains("Delay by percentile"))
    }

    @Test("soak")
    func soak() throws {
        let told = try run("soak --clients 4 --minutes 0.02 --suspend \(Self.method)")
        #expect(try #require(told.number("cycles")) > 0)
        #expect(told.number("lost") == 0)
        #expect(told.number("duplicate") == 0)
        expectNumbers(told, "drift.memory_kib_per_hour")
        // A single cycle has none.
        if try #require(told.number("cycles")) > 2 {
            expectNumbers(told, "drift.descriptors", "drift.latency_p50")
        }
    }

    /// Runs the command to its end, without progress; returns its status, output and errors.
    private func attempt(
        _ arguments: String, output: FileHandle? = nil, errors shown: FileHandle? = nil,
        under wrapper: [String] = []
    ) throws -> (status: Int32, output: String, complaints: String) {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let load = URL(fileURLWithPath: program).deletingLastPathComponent().appendingPathComponent(
            "nightbell-load")
        let words =
            wrapper + [load.path] + arguments.split(separator: " ").map(String.init)
            + (shown == nil ? ["--quiet"] : [])
        let process = Process()
        process.executableURL = URL(fileURLWithPath: words[0])
        process.arguments = Array(words.dropFirst())
        let (said, errors) = (Pipe(), Pipe())
        if let output { process.standardOutput = output } else { process.standardOutput = said }
        if let shown { process.standardError = shown } else { process.standardError = errors }
        try process.run()
        if shown != nil { try errors.fileHandleForWriting.close() }
        if output != nil { try said.fileHandleForWriting.close() }
        let text = String(decoding: said.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        let complaints = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, text, complaints)
    }

    @Test("A report that cannot be written is noticed before the run")
    func impossibleReport() throws {
        let result = try attempt("keepalive --virtual --clients 2 --hours 1 --report /proc/none/here")
        #expect(result.status == 1)
        #expect(result.output.isEmpty)
        #expect(result.complaints.contains("/proc/none"))
    }

    @Test("Output that does not arrive is no success", arguments: ["", " --json"])
    func fullOutput(options: String) throws {
        let full = try #require(FileHandle(forWritingAtPath: "/dev/full"))
        let result = try attempt("keepalive --virtual --clients 2 --hours 1" + options, output: full)
        #expect(result.status == 1)
        #expect(result.complaints.contains("standard output"))
    }

    @Test("Too few descriptors of one process are spread over more processes", .enabled(if: isRoot))
    func spread() throws {
        try #require(FileManager.default.isExecutableFile(atPath: Self.prlimit), "util-linux is needed")
        // The supervisor needs 4 for each and can have them; the load tester would need 5.
        let told = try run(
            "wake --clients 100 --calls 20 --rounds 2 --transport tcp --suspend cgroup",
            under: [Self.prlimit, "--nofile=512:512"])
        #expect(told.number("lost") == 0)
        #expect(told.number("floor.lost") == 0)
        #expect(told.number("duplicate") == 0)
        #expect(try #require(told.number("latency_us.p50")) > 0)
    }

    @Test(
        "Too few descriptors of the supervisor are noticed before the run",
        arguments: ["park --sockets 3000", "wake", "relaunch", "chaos --sockets 600"])
    func fewDescriptors(arguments: String) throws {
        try #require(FileManager.default.isExecutableFile(atPath: Self.prlimit), "util-linux is needed")
        let result = try attempt(arguments, under: [Self.prlimit, "--nofile=512:512"])
        #expect(result.status == 1)
        #expect(result.complaints.contains("the supervisor would need"))
        #expect(result.complaints.contains("hard limit is 512"))
    }

    @Test("Too few descriptors of the chat server are noticed before the run")
    func fewDescriptorsToChat() throws {
        let result = try attempt("chat --connections 3000", under: [Self.prlimit, "--nofile=512:512"])
        #expect(result.status == 1)
        #expect(result.complaints.contains("the chat server would need"))
        // This is enough for two servers, but not for the one that hibernates at every moment.
        let third = try attempt(
            "chat --connections 180 --active 5", under: [Self.prlimit, "--nofile=512:512"])
        #expect(third.status == 1)
        #expect(third.complaints.contains("would need 576"))
    }

    @Test("Progress is cleared before results are printed")
    func progress() throws {
        let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        try #require(terminal >= 0)
        defer { close(terminal) }
        // TIOCSPTLCK and TIOCGPTPEER.
        var lock: CInt = 0
        try #require(ioctl(terminal, 0x4004_5431, &lock) == 0)
        let side = ioctl(terminal, 0x5441, O_RDWR | O_NOCTTY | O_CLOEXEC)
        try #require(side >= 0)
        defer { close(side) }
        let result = try attempt(
            "keepalive --virtual --clients 2 --hours 5", errors: FileHandle(fileDescriptor: side))
        #expect(result.status == 0)
        var shown: [UInt8] = []
        var waiting = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
        let end = Array("\r\u{1B}[K".utf8)
        let last = Array("hour 4 of 5".utf8) + end
        while shown.suffix(last.count) != last[...] {
            try #require(poll(&waiting, 1, 20_000) == 1, "\(String(decoding: shown, as: UTF8.self))")
            var bytes = [UInt8](repeating: 0, count: 4_096)
            let count = read(terminal, &bytes, bytes.count)
            try #require(count > 0)
            shown += bytes[..<count]
        }
    }

    @Test("A run that finds no chat server reports it")
    func noChatServer() throws {
        let result = try attempt("chat --binaries /nowhere")
        #expect(result.status == 1)
        #expect(result.complaints.contains("/nowhere/"))
    }

    @Test("A run that finds no supervisor reports it and leaves nothing behind")
    func noSupervisor() throws {
        let result = try attempt("wake --binaries /nowhere")
        #expect(result.status == 1)
        #expect(result.complaints.contains("/nowhere/nightbelld"))
    }

    @Test("A directory of programs may be named from the current one")
    func relativePrograms() throws {
        let result = try attempt("wake --binaries nowhere")
        #expect(result.status == 1)
        // The full path: processes of a run have another current directory.
        #expect(result.complaints.contains(" /"))
        #expect(result.complaints.contains("/nowhere/nightbelld"))
    }
}
