import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Suspension
import Testing

@Suite("nightbell run --unmodified", .enabled(if: geteuid() == 0, "needs root"))
struct UnmodifiedTests {
    private let fixture: Fixture

    init() throws { fixture = try Fixture() }

    private init(_ arguments: [String]) throws { fixture = try Fixture(arguments) }

    private func run(_ script: String, _ options: [String] = []) throws -> Program {
        try Program(
            "nightbell",
            [
                "run", "--unmodified", "--socket", fixture.socket, "--identifier", "program", "--idle",
                "100ms",
            ] + options + ["--", "/usr/bin/python3", "-c", script], endsChildren: true)
    }

    private func process() throws -> pid_t {
        pid_t(try #require(try fixture.shown("program")["process_id"] as? Int))
    }

    /// Waits until the supervisor knows why the program stays awake.
    private func staysAwake(because reason: (String) -> Bool) throws {
        var last: [String: Any] = [:]
        let isExplained = try eventually(within: 30_000) {
            last = try fixture.shown("program")
            return (last["state_detail"] as? String).map(reason) ?? false
        }
        #expect(isExplained && last["state"] as? String == "active", "\(last)")
    }

    /// Starts an echo server and connects to it.
    private func echo(
        _ script: String = Script.echo, _ options: [String] = []
    ) throws -> (program: Program, connection: EchoConnection) {
        let program = try run(script, options)
        try program.wrote("port ")
        try program.wrote("\n")
        let port = try #require(
            program.output.split(separator: "\n").first?.split(separator: " ").last.flatMap { UInt16($0) })
        return (program, try EchoConnection(connectedTo: port))
    }

    @Test("A server sleeps between its requests, and answers each")
    func server() throws {
        let (program, connection) = try echo()
        for round in 1...5 {
            try fixture.reaches("suspended", "program")
            let before = try fixture.wakes("program")
            #expect(try connection.echoes("request \(round)"), "\(program.errors)")
            #expect(try fixture.wakes("program") == before + 1)
        }
        let shown = try fixture.shown("program")
        #expect(shown["unmodified"] as? Bool == true)
        #expect(shown["suspension"] as? String == "cgroup")
        try fixture.reaches("suspended", "program")
        // A program that is frozen gets no signal: it is woken for it.
        program.send(signal: SIGUSR1)
        try program.wrote("got USR1")
        try fixture.reaches("suspended", "program")
        program.send(signal: SIGTERM)
        #expect(try program.outcome().code == 128 + SIGTERM)
    }

    @Test("A server on its standard input is woken by a line, and ended by its end")
    func standardInput() throws {
        let program = try run(Script.lines)
        try program.wrote("ready")
        for word in ["one", "two", "three"] {
            try fixture.reaches("suspended", "program")
            try program.say(word)
            try program.wrote("answer \(word)\n")
        }
        try fixture.reaches("suspended", "program")
        program.endInput()
        try program.wrote("end of input")
        #expect(try program.outcome().code == 5)
    }

    @Test("Timers of its threads wake it in time")
    func timers() throws {
        let program = try run(Script.timers)
        func lateness(_ name: String) -> [Int] {
            program.output.split(separator: "\n").compactMap { line in
                let words = line.split(separator: " ")
                return words.first.map(String.init) == name ? words.last.flatMap { Int($0) } : nil
            }
        }
        let isEnough = eventually(within: 60_000) {
            lateness("sleep").count >= 6 && lateness("futex").count >= 6
        }
        #expect(isEnough, "\(program.output) \(program.errors)")
        let counters = try #require(try fixture.shown("program")["counters"] as? [String: Any])
        #expect(counters["suspensions"] as? Int ?? 0 >= 5, "\(counters)")
        let all = (lateness("sleep") + lateness("futex")).sorted()
        print("timers late by \(all) ms")
        // A busy machine delays single ones, asleep or not.
        #expect(all[all.count / 2] <= 50, "\(all)")
        #expect(all.allSatisfy { $0 <= 1_000 }, "\(all)")
    }

    @Test("Timers that may be late are late by at most that, and together")
    func coalescedTimers() throws {
        let program = try run(Script.timers, ["--timers", "coalesce=6s"])
        func lateness() -> [Int] {
            program.output.split(separator: "\n").compactMap {
                $0.split(separator: " ").last.flatMap { Int($0) }
            }
        }
        #expect(eventually(within: 60_000) { lateness().count >= 8 }, "\(program.output) \(program.errors)")
        let all = lateness()
        print("timers late by \(all) ms")
        let counters = try #require(try fixture.shown("program")["counters"] as? [String: Any])
        let suspensions = counters["suspensions"] as? Int ?? 0
        #expect(suspensions >= 2 && suspensions <= all.count, "\(counters)")
        // A busy machine delays single ones, asleep or not.
        #expect(all.allSatisfy { $0 >= 0 && $0 <= 7_000 } && all.contains { $0 > 300 }, "\(all)")
    }

    @Test("A program that only looks around stays awake, and sleeps if its timers are ignored")
    func ticks() throws {
        let (program, connection) = try echo(Script.ticks, ["--idle", "500ms", "--timers", "ignore"])
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            #expect(try connection.echoes("request \(round)"), "\(program.errors)")
        }
        program.send(signal: SIGTERM)
        #expect(try program.outcome().code == 128 + SIGTERM)
        #expect(try eventually { try fixture.nightbell("show", "program").code == 4 })

        let exact = try run(Script.ticks, ["--idle", "500ms"])
        try exact.wrote("port ")
        try staysAwake { $0.contains("wakes up by itself") }
    }

    @Test("A signal to a sleeping program reaches its first thread")
    func signalToFirstThread() throws {
        let program = try run(Script.threads)
        try program.wrote("ready")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            program.send(signal: SIGUSR1)
            try program.wrote(String(repeating: "got USR1\n", count: round))
        }
        program.endInput()
        #expect(try program.outcome().code == 0)
    }

    @Test("A program answers after its memory was written to swap, or as much of it as can be")
    func pageOut() throws {
        let watcher = try Program("nightbell", ["watch", "--json", "--socket", fixture.socket])
        let (program, connection) = try echo(Script.echo, ["--page-out", "100ms"])
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let isReported = eventually(within: 30_000) {
                watcher.output.split(separator: "\n").count { $0.contains("paged-out") } >= round
            }
            #expect(isReported, "\(watcher.output) \(program.errors)")
            #expect(try connection.echoes("request \(round)"), "\(program.errors)")
        }
        let pagedOut = try #require(try fixture.shown("program")["paged_out"] as? [String: Any])
        let (last, total) = (pagedOut["bytes"] as? Int ?? -1, pagedOut["total_bytes"] as? Int ?? -1)
        // Without swap, and where others map the same files, nothing may leave the memory.
        #expect(last >= 0 && total >= last)
        let limit = pagedOut["limit"] as? String ?? ""
        #expect(PageOut.hasSwap ? limit.isEmpty : limit.contains("there is no swap"))
        #expect(try fixture.nightbell("show", "program").output.contains("paged out"))
        program.send(signal: SIGTERM)
        #expect(try program.outcome().code == 128 + SIGTERM)
    }

    @Test("Its processes sleep and wake together")
    func family() throws {
        let program = try run(Script.family)
        try program.wrote("ready")
        try fixture.reaches("suspended", "program")
        try program.say("hello")
        try program.wrote("child answers hello")
        try fixture.reaches("suspended", "program")
        program.endInput()
        #expect(try program.outcome().code == 8)
        #expect(program.output.contains("child ended with 7"))
    }

    @Test("A select that sleeping prolongs ends when it would have ended")
    func prolonged() throws {
        let program = try run(Script.prolonged)
        try program.wrote("ready")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            try program.say("\(round)")
            try program.wrote("answer \(round)\n")
        }
        try program.wrote(" ms\n")
        let line = program.output.split(separator: "\n").first { $0.hasPrefix("late by") }
        let late = try #require(line?.split(separator: " ").dropFirst(2).first.flatMap { Int($0) })
        print("late by \(late) ms")
        #expect(late < 300)
    }

    @Test("A program stays awake in the middle of reading and writing")
    func halves() throws {
        func staysAwake() throws { try self.staysAwake { $0.contains("in the middle") } }
        let program = try run(Script.halves)
        try program.wrote("ready")
        try fixture.reaches("suspended", "program")
        try program.say("123")
        try staysAwake()
        try program.say("567")
        try program.wrote("got 8\n")
        try staysAwake()
        try program.say("")
        try program.wrote("wrote 200000\n")
    }

    @Test("A child that is killed while the program sleeps wakes its parent")
    func childKilled() throws {
        let program = try run(Script.family)
        try program.wrote("ready")
        try fixture.reaches("suspended", "program")
        let child = try #require(ProcFS.children(try process()).first)
        kill(child, SIGKILL)
        #expect(try program.outcome().code == 8)
        #expect(program.output.contains("child ended with -9"))
    }

    @Test("A worker that is killed while the program sleeps leaves it asleep, to be woken by the next one")
    func workerKilled() throws {
        let (program, connection) = try echo()
        try fixture.reaches("suspended", "program")
        for round in 1...3 {
            let status = try JSONSerialization.jsonObject(
                with: Data(try fixture.nightbell("status", "--json").output.utf8))
            let worker = pid_t(try #require((status as? [String: Any])?["process_id"] as? Int))
            kill(worker, SIGKILL)
            #expect(try connection.echoes("after death \(round)"), "\(program.errors)")
            try fixture.reaches("suspended", "program")
        }
        #expect(try connection.echoes("at the end"))
    }

    @Test("If what speaks for it is killed, the program runs on")
    func parentKilled() throws {
        let (program, connection) = try echo()
        try fixture.reaches("suspended", "program")
        let pid = try process()
        defer { kill(pid, SIGKILL) }
        program.send(signal: SIGKILL)
        #expect(try connection.echoes("all alone"))
        #expect(try eventually { try fixture.nightbell("show", "program").code == 4 })
    }

    @Test("A program that is killed while it sleeps has ended")
    func killedAsleep() throws {
        let (program, _) = try echo()
        try fixture.reaches("suspended", "program")
        kill(try process(), SIGKILL)
        #expect(try program.outcome().code == 128 + SIGKILL)
    }

    @Test("A program that computes stays awake, and the reason is shown")
    func busy() throws {
        let program = try run(Script.imports + Script.ready + "while True: pass")
        try program.wrote("ready")
        try staysAwake { $0.hasPrefix("thread ") }
    }

    @Test("A process that computes in a cgroup of the program's own keeps it awake")
    func innerCgroup() throws {
        let program = try run(Script.busyChild)
        try program.wrote("child ")
        try program.wrote("\n")
        let child = try #require(
            program.output.split(separator: "\n").first?.split(separator: " ").last.flatMap { pid_t($0) })
        defer { kill(child, SIGKILL) }
        try fixture.reaches("suspended", "program")
        let inner = try #require(CgroupMount.find()?.directory(of: try process())) + "/inner.scope"
        #expect(mkdir(inner, 0o755) == 0)
        try SmallFile.write("\(child)", to: inner + "/cgroup.procs")
        try program.say("compute")
        try program.wrote("computes")
        try staysAwake { $0.hasPrefix("thread \(child)") }
    }

    @Test("Where only signals can stop programs, one with a single process sleeps, and others stay awake")
    func signals() throws {
        let stage = try UnmodifiedTests(["--suspend", "signal"])
        let (program, connection) = try stage.echo()
        for round in 1...3 {
            try stage.fixture.reaches("suspended", "program")
            #expect(try connection.echoes("request \(round)"), "\(program.errors)")
        }
        #expect(try stage.fixture.shown("program")["suspension"] as? String == "signal")
        program.send(signal: SIGTERM)
        #expect(try program.outcome().code == 128 + SIGTERM)
        #expect(try eventually { try stage.fixture.nightbell("show", "program").code == 4 })

        let family = try stage.run(Script.family)
        try family.wrote("ready")
        try stage.staysAwake { $0.contains("several processes") }
        family.endInput()
        #expect(try family.outcome().code == 8)
    }

    @Test("Commands that cannot be run, and no supervisor")
    func mistakes() throws {
        let absent = try Program.run(
            "nightbell", ["run", "--unmodified", "--socket", fixture.socket, "--", "/nonexistent"])
        #expect(absent.code == 127)
        #expect(absent.errors.contains("No such file"), "\(absent)")
        let alone = try Program.run(
            "nightbell",
            ["run", "--unmodified", "--socket", fixture.socket + ".none", "--", "/bin/true"])
        #expect(alone.code == 3)
        let misplaced = try Program.run("nightbell", ["run", "--idle", "1s", "--", "/bin/true"])
        #expect(misplaced.code == 64)
    }
}
