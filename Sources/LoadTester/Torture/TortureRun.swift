import CFloors
import CTorture
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Calls programs that do unusual things while they sleep and while they fall asleep, and checks their
/// answers and timers.
final class TortureRun {
    struct Settings {
        /// Sleeps of all programs together.
        var cycles: Int
        var programs: Int
        /// How often the worker is killed.
        var kills: Int
        var kinds: [TortureKind]
        var seed: UInt64
        /// How long an answer may take before it counts as lost.
        var patience: Duration = .seconds(10)
    }

    private static let idle = "100ms"
    /// Kinds of each program. Which ones go together changes from program to program.
    private static let kindsOfEach = 4
    private static let mostLate: Int64 = 50_000
    private static let mostFaults = 100

    private let settings: Settings
    private let runDirectory: RunDirectory
    private let supervisor: PrivateSupervisor
    private let listener: OwnedDescriptor
    private let endpoint: String
    private let tree: CgroupTree
    private var newcomers: [OwnedDescriptorBox] = []
    private var programs: [TorturedProgram] = []
    private var random: SplitMix64
    private var results: TortureResults
    private var isEnding = false
    private var nextCheck: Int64 = 0

    init(settings: Settings, runDirectory: RunDirectory) throws {
        self.settings = settings
        self.runDirectory = runDirectory
        random = SplitMix64(seed: settings.seed)
        results = TortureResults(settings: settings)
        tree = try CgroupTree.required()
        listener = try Transport.unix.makeSocket()
        endpoint = try Transport.unix.bind(listener.rawValue, "\(runDirectory.path)/torture")
        guard listen(listener.rawValue, 4_096) == 0 else { throw LoadError(failed: "listen") }
        _ = fcntl(listener.rawValue, F_SETFL, O_NONBLOCK)
        supervisor = try PrivateSupervisor(
            runDirectory, .init(suspension: .cgroup, extra: ["keeper.crashLimit=1000000"]))
    }

    func run() throws -> TortureResults {
        let start = monotonicNow()
        // Some more run without Nightbell.
        let free = max(1, settings.programs / 4)
        for number in 0..<settings.programs + free {
            try startProgram(number, isFree: number >= settings.programs)
        }
        let limit = monotonicNow() + 60_000_000_000
        while programs.contains(where: { $0.lines.isEmpty }) {
            guard monotonicNow() < limit else { throw LoadError.timedOut("the programs to connect") }
            try turn()
        }
        var reported = 0
        while results.cycles < settings.cycles {
            try turn()
            try killWorkers()
            results.cycles = programs.reduce(0) { $0 + $1.sleeps }
            if results.cycles / 1_000 > reported {
                reported = results.cycles / 1_000
                runDirectory.progress.say(results.line)
            }
        }
        try end()
        results.seconds = Double(monotonicNow() - start) / 1e9
        results.machine.finish()
        return results
    }

    private func startProgram(_ number: Int, isFree: Bool) throws(LoadError) {
        let count = min(Self.kindsOfEach, settings.kinds.count)
        let chosen = (0..<count).map {
            settings.kinds[(number + $0 * 7 + number / settings.kinds.count * $0) % settings.kinds.count]
        }
        var names: [String] = []
        for kind in chosen where !names.contains(kind.name) { names.append(kind.name) }
        // Timers on both sides, of which the machine alone may make some late.
        if isFree, !names.contains("sleep") { names.append("sleep") }
        let arguments = [endpoint, "\(number)", "\(settings.seed &+ UInt64(number) & 0xffff)"] + names
        let parent: ChildProcess
        if isFree {
            parent = try runDirectory.start("nightbell-torture", arguments, log: "torture")
        } else {
            parent = try runDirectory.start(
                "nightbell",
                [
                    "run", "--unmodified", "--socket", supervisor.socketPath, "--identifier",
                    "torture.\(number)",
                    "--idle", Self.idle, "--", "\(runDirectory.programs)/nightbell-torture",
                ] + arguments, log: "torture")
        }
        programs.append(TorturedProgram(parent, number: number, isFree: isFree))
    }

    // MARK: A turn

    /// Waits for something to happen, handles it, and does what is due.
    private func turn() throws {
        var entries = [pollfd(fd: listener.rawValue, events: Int16(POLLIN), revents: 0)]
        var receivers: [TortureLine] = []
        let start = monotonicNow()
        for newcomer in newcomers {
            entries.append(pollfd(fd: newcomer.rawValue, events: Int16(POLLIN), revents: 0))
        }
        let firstLine = entries.count
        for program in programs {
            for line in program.lines where !line.hasEnded && line.readsFrom <= start {
                receivers.append(line)
                entries.append(pollfd(fd: line.descriptor, events: Int16(POLLIN), revents: 0))
            }
        }
        let firstCgroup = entries.count
        for program in programs {
            entries.append(pollfd(fd: program.eventsDescriptor, events: Int16(POLLPRI), revents: 0))
        }
        let isLurking = programs.contains { program in
            if case .freezing(let from, _, _) = program.plan, !program.hasCalls { return from <= start }
            return false
        }
        if isLurking { try pause(nanoseconds: 20_000) }
        _ = poll(&entries, nfds_t(entries.count), isLurking ? 0 : 1)
        if cfloors_interrupted() != 0 { throw LoadError.interrupted }

        let now = monotonicNow()
        try welcome()
        for (index, line) in receivers.enumerated() where entries[firstLine + index].revents != 0 {
            line.receive { handle($0, from: line) }
        }
        for (index, program) in programs.enumerated() {
            if entries[firstCgroup + index].revents != 0 { program.look(tree, at: now) }
            for line in program.lines { try line.proceed(at: now) }
            try act(on: program, at: now)
        }
        if now >= nextCheck {
            nextCheck = now + 250_000_000
            try check(at: now)
        }
    }

    private func welcome() throws(LoadError) {
        while true {
            let socket = cfloors_accept(listener.rawValue)
            guard socket >= 0 else { break }
            newcomers.append(OwnedDescriptorBox(socket))
        }
        newcomers.removeAll { newcomer in
            var hello = ctorture_message()
            let size = MemoryLayout<ctorture_message>.size
            let count = recv(newcomer.rawValue, &hello, size, CInt(MSG_DONTWAIT))
            if count < 0, errno == EAGAIN || errno == EINTR { return false }
            guard count == size, hello.type == ctorture_hello.rawValue, Int(hello.program) < programs.count,
                let descriptor = newcomer.take()
            else { return true }
            admit(TortureLine(OwnedDescriptor(adopting: descriptor), hello))
            return true
        }
    }

    private func admit(_ line: TortureLine) {
        let program = programs[line.program]
        // A line that is not only for reports replaces the one before it.
        if case .nothing = line.reach {
        } else if let old = program.lines.first(where: { $0.kind == line.kind && !$0.isOnlyForReports }) {
            line.calls = old.calls
            if let call = old.call, call.killed != nil {
                record(call, program)
            } else if old.call != nil {
                // Its answer may still be there.
                old.receive { handle($0, from: old) }
                if old.call != nil { lose(old, program, "it has a new line") }
            }
            program.lines.removeAll { $0 === old }
        }
        program.lines.append(line)
        if program.eventsDescriptor < 0 { program.openCgroup(tree) }
    }

    private func record(_ call: TortureLine.Call, _ program: TorturedProgram) {
        let latency = monotonicNow() - call.since
        program.isFree
            ? results.free.latencies.record(nanoseconds: max(1, latency))
            : results.ours.latencies.record(nanoseconds: max(1, latency))
        program.lastActivity = monotonicNow()
        if !program.hasCalls { plan(program) }
    }

    private func handle(_ message: ctorture_message, from line: TortureLine) {
        let program = programs[line.program]
        program.lastActivity = monotonicNow()
        switch message.type {
        case ctorture_answer.rawValue:
            guard let call = line.call, call.number == message.number, call.killed == nil else { return }
            line.call = nil
            record(call, program)
        case ctorture_late.rawValue:
            change(program) { side in
                side.timers += 1
                side.latest = max(side.latest, Double(message.value) / 1_000)
            }
            guard Int64(message.value) > Self.mostLate else { return }
            change(program) { $0.late += 1 }
            fault(program, "\(line.kind.name): a timer is \(message.value / 1_000) ms late")
        case ctorture_cut.rawValue: change(program) { $0.cut += 1 }
        default:
            change(program) { $0.noticed += 1 }
            let isError = message.value > 0
            let words = isError ? SystemError.message(for: message.value) : "line \(-message.value)"
            fault(program, "\(line.kind.name) notices: \(words)")
        }
    }

    private func change(_ program: TorturedProgram, _ body: (inout TortureResults.Side) -> Void) {
        if program.isFree { body(&results.free) } else { body(&results.ours) }
    }

    private func fault(_ program: TorturedProgram, _ text: String) {
        let line = "\(program.isFree ? "without Nightbell" : "program \(program.number)"), \(text)"
        if results.faults.count < Self.mostFaults { results.faults.append(line) }
        runDirectory.progress.say(line)
    }

    // MARK: Calls

    private func plan(_ program: TorturedProgram) {
        let now = monotonicNow()
        func between(_ first: Int64, _ last: Int64) -> Int64 {
            Int64.random(in: first...last, using: &random)
        }
        switch Int.random(in: 0..<20, using: &random) {
        case _ where program.isFree: program.plan = .at(now + between(0, 500_000_000))
        case 0..<9:
            // Sleeps that are short make the pauses between them longer.
            let delay = between(0, 10) > 0 ? between(100_000_000, 250_000_000) : between(0, 20_000_000)
            program.plan = .asleep(delay: delay, atLatest: now + 4_000_000_000)
        case 9..<13:
            program.plan = .freezing(
                from: now + 90_000_000, delay: between(0, 3) > 0 ? between(0, 600_000) : 0,
                atLatest: now + 600_000_000)
        case 13..<16:
            // Before the freeze, as far as that can be foreseen.
            program.plan = .at(max(now, program.lastActivity + program.timeToFreeze - between(0, 4_000_000)))
        case 16..<18: program.plan = .at(now + between(0, 300_000_000))
        // Its timers wake it.
        default: program.plan = .at(now + between(500_000_000, 2_000_000_000))
        }
    }

    private func act(on program: TorturedProgram, at now: Int64) throws {
        guard !isEnding, !program.hasCalls else { return }
        switch program.plan {
        case .asleep(let delay, let end):
            guard program.isFrozen && now >= program.frozenSince + delay || now >= end else { return }
        case .freezing(let from, let delay, let end):
            guard now >= from else { return }
            guard program.isToFreeze else {
                guard now >= end else { return }
                break
            }
            results.calledFreezing += 1
            if delay > 0 { try pause(nanoseconds: delay) }
        case .at(let time): guard now >= time else { return }
        }
        if program.isFrozen { results.calledAsleep += 1 }
        let count = [1, 1, 1, 2, 4].randomElement(using: &random) ?? 1
        let lines = program.lines.filter(\.isCallable).shuffled(using: &random).prefix(count)
        for line in lines {
            change(program) { $0.calls += 1 }
            try line.callNow(
                parent: program.parent.id, delay: Int64.random(in: 0...300_000_000, using: &random),
                kills: Bool.random(using: &random))
        }
        if lines.isEmpty { plan(program) }
    }

    private func lose(_ line: TortureLine, _ program: TorturedProgram, _ reason: String) {
        line.call = nil
        change(program) { $0.lost += 1 }
        let state = program.isFrozen ? "frozen" : "not frozen"
        fault(program, "\(line.kind.name) is lost: \(reason); \(state)")
        plan(program)
    }

    private func check(at now: Int64) throws {
        try runDirectory.requireAllRunning()
        let patience = settings.patience.wholeNanoseconds
        for program in programs {
            for line in program.lines {
                if let call = line.call, now - call.since > patience {
                    lose(line, program, "no answer")
                } else if line.kind.role == ctorture_timed, now - line.lastReport > patience {
                    line.lastReport = now
                    lose(line, program, "its timer has not ended")
                }
            }
        }
    }

    // MARK: Chaos and the end

    private func killWorkers() throws {
        guard settings.kills > 0,
            results.cycles >= (results.kills + 1) * settings.cycles / (settings.kills + 1)
        else { return }
        results.kills += 1
        guard let worker = try? supervisor.status().processID else { return }
        kill(worker, SIGKILL)
    }

    /// Ends the supervisor while the programs sleep: all must run then.
    private func end() throws {
        runDirectory.progress.say("ending the supervisor")
        let limit = monotonicNow() + 5_000_000_000
        isEnding = true
        while monotonicNow() < limit, programs.contains(where: { $0.hasCalls || !$0.isFrozen && !$0.isFree })
        {
            try turn()
        }
        supervisor.end()
        let grace = monotonicNow() + 3_000_000_000
        while monotonicNow() < grace { try turn() }
        for program in programs where !program.isFree {
            program.openCgroup(tree)
            program.look(tree, at: monotonicNow())
            guard program.isFrozen else { continue }
            results.leftFrozen += 1
            fault(program, "left frozen")
        }
    }
}

extension TortureLine {
    fileprivate var isOnlyForReports: Bool {
        if case .nothing = reach { true } else { false }
    }
}

/// A descriptor in an array.
private final class OwnedDescriptorBox {
    private var descriptor: CInt

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    deinit { if descriptor >= 0 { close(descriptor) } }

    var rawValue: CInt { descriptor }

    func take() -> CInt? {
        defer { descriptor = -1 }
        return descriptor >= 0 ? descriptor : nil
    }
}
