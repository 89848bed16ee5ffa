import Glibc
import Nightbell
import SIPKit

/// One run: the supervisor, the server, the phones, the calls, and the end of them all.
@MainActor
final class Demo {
    private let options: DemoCommand
    private let loop: Loop
    private let directory: DemoDirectory
    private let events: PhoneEvents
    private let programs: String
    private let users: [String]
    /// Good for one run only.
    private let password: String
    private var builtinServer: BuiltinServer?
    private var supervisor: SupervisorProcess?
    private var phones: [ChildProcess] = []
    private var others: [ChildProcess] = []
    private let domain = "demo.nightbell.invalid"
    private let started = ContinuousClock.now
    /// How many phones the kernel held stopped when all had last fallen asleep.
    private var held = 0
    private var nextLookAtChildren = ContinuousClock.now
    private var progress: Progress?

    /// Prints progress now and then.
    private struct Progress {
        var next: ContinuousClock.Instant
        let period: Duration
        let show: () -> Void
    }

    init(_ options: DemoCommand) throws {
        self.options = options
        loop = try Loop()
        directory = try DemoDirectory()
        events = try PhoneEvents(loop: loop)
        programs = try options.programs ?? ownDirectory()
        users = (1...options.clients).map { "phone\($0)" }
        password = (0..<4).map { _ in String(UInt32.random(in: .min ... .max), radix: 36) }.joined()
        loop.addTimer(next: { [weak self] in self?.progress?.next }) { [weak self] in
            guard let progress = self?.progress else { return }
            self?.progress?.next += progress.period
            progress.show()
        }
    }

    /// Returns whether every expectation was met.
    func run() throws -> Bool {
        // After an interrupt the user does not want to read its logs.
        var isOfNoMoreUse = false
        defer {
            stopEverything()
            if isOfNoMoreUse && !options.keepLogs {
                directory.remove()
            } else {
                directory.keep()
                complain("logs are in \(directory.path)")
            }
        }
        do {
            let isGood = try goThrough()
            isOfNoMoreUse = isGood
            return isGood
        } catch DemoError.interrupted {
            isOfNoMoreUse = true
            throw DemoError.interrupted
        }
    }

    private func goThrough() throws -> Bool {
        try tidyUp()
        let server = try startServer()
        try startSupervisor()
        try startPhones(server)
        var before = try waitUntilAsleep(atMost: .seconds(60), "all phones to fall asleep")
        for disturbance in options.disturb {
            try disturb(disturbance)
            before = try waitUntilAsleep(atMost: .seconds(60), "all phones to fall asleep once more")
        }
        events.reset()
        let counts = try call(server)
        let after = try waitUntilAsleep(atMost: .seconds(60), "all phones to fall asleep again")
        let results = results(counts, before, after)
        for trouble in events.tally.troubles.prefix(20) { complain(trouble) }
        let isGood = results.isGood
        // Before the results, so that these come last.
        stopEverything()
        print("\n\(results.table())")
        if !isGood { print("\nNot every expectation was met.") }
        if options.json { print(results.json()) }
        fflush(nil)
        return isGood
    }

    /// Removes the directories of killed demos, once the processes recorded there are thawed.
    private func tidyUp() throws {
        for old in DemoDirectory.abandoned() {
            if old.hasNotes {
                // It refuses while the supervisor of that demo still runs: the next demo tries again.
                let thaw = try SupervisorProcess.thawLeftovers(program: "\(programs)/nightbelld", of: old)
                try loop.wait(for: "processes of a killed demo to be thawed", atMost: .seconds(10)) {
                    !thaw.isRunning
                }
                guard thaw.exitStatus == 0 else { continue }
            }
            old.remove()
            say("removed \(old.path), left by a demo that was killed")
        }
    }

    // MARK: Starting

    private func startServer() throws -> SIPAddress {
        switch options.registrar {
        case .builtin:
            let passwords = Dictionary(uniqueKeysWithValues: users.map { ($0, password) })
            let server = try BuiltinServer(domain: domain, passwords: passwords, loop: loop)
            builtinServer = server
            return SIPAddress(host: "127.0.0.1", port: server.port)
        case .kamailio:
            let kamailio = try Kamailio(domain: domain, password: password, directory: directory.path)
            others.append(kamailio.process)
            say("starting Kamailio")
            try wait(for: "Kamailio to listen", atMost: .seconds(15)) { kamailio.isReady }
            return SIPAddress(host: "127.0.0.1", port: kamailio.port)
        }
    }

    private func startSupervisor() throws {
        let supervisor = try SupervisorProcess(
            program: "\(programs)/nightbelld", directory: directory.path,
            settings: SupervisorProcess.Settings(
                suspension: options.suspend, keepAliveMinimum: .seconds(options.keepAlive),
                others: options.settings))
        self.supervisor = supervisor
        try wait(for: "the supervisor", atMost: .seconds(10)) { supervisor.isReady }
        let status = try supervisor.snapshot().status
        say("supervisor \(status.processID) suspends by \(status.suspension)")
    }

    private func startPhones(_ server: SIPAddress) throws {
        guard let supervisor else { return }
        for (index, user) in users.enumerated() {
            let transport: DemoCommand.Transport =
                options.transport == .both ? (index.isMultiple(of: 2) ? .tcp : .udp) : options.transport
            phones.append(
                try ChildProcess(
                    user,
                    [
                        "\(programs)/nightbell-softphone", "--user", user, "--registrar", server.description,
                        "--domain", domain, "--transport", transport.rawValue,
                        "--expires", String(2 * options.keepAlive), "--answer-after", "100",
                        "--supervisor-socket", supervisor.socketPath, "--report", "fd:3",
                    ],
                    environment: ["SOFTPHONE_PASSWORD": password], log: "\(directory.path)/\(user).log",
                    descriptor: events.writeEnd))
        }
        say("\(phones.count) phones started")
        try wait(for: "all phones to register", atMost: .seconds(30)) {
            events.registered.count == users.count
        }
        say("\(events.registered.count) phones registered")
    }

    // MARK: Disturbing

    /// Disturbs the sleeping phones as networks and administrators do.
    private func disturb(_ disturbance: DemoCommand.Disturbance) throws {
        switch disturbance {
        case .connections, .resets:
            guard let builtinServer else {
                throw DemoError.missing("only the builtin server can be disturbed")
            }
            events.forgetRegistrations()
            let closed = builtinServer.closeConnections(byReset: disturbance == .resets)
            say("the server \(disturbance == .resets ? "resets" : "closes") \(closed) connections")
            try wait(for: "the phones to connect again", atMost: .seconds(30)) {
                events.registered.count >= closed
            }
        case .supervisor:
            guard let old = supervisor else { return }
            supervisor = nil
            end([old.process], within: .seconds(8))
            say("the supervisor has gone")
            try startSupervisor()
        }
    }

    // MARK: Waiting

    /// Runs the loop until a condition holds. A child that ends meanwhile is an error.
    private func wait(for what: String, atMost limit: Duration, until condition: () throws -> Bool) throws {
        try loop.wait(for: what, atMost: limit, detail: { states() }) {
            if .now >= nextLookAtChildren {
                nextLookAtChildren = .now + .milliseconds(200)
                let all = phones + others + [supervisor?.process].compactMap { $0 }
                if let ended = all.first(where: { !$0.isRunning }) {
                    throw DemoError.childEnded(ended.name, status: ended.exitStatus ?? 0)
                }
            }
            return try condition()
        }
    }

    private func states() -> String {
        (try? supervisor?.snapshot().states) ?? ""
    }

    private func waitUntilAsleep(atMost limit: Duration, _ what: String) throws -> SupervisorProcess.Snapshot
    {
        var last: SupervisorProcess.Snapshot?
        try wait(for: what, atMost: limit) {
            last = try supervisor?.snapshot()
            return last?.suspended == users.count
        }
        guard let last else { throw DemoError.missing("there is no supervisor") }
        // Now: a keep-alive may be due in the next moment.
        held = heldByKernel()
        say("\(last.states); the kernel holds \(held)")
        return last
    }

    /// How many phones the kernel holds stopped at this moment.
    private func heldByKernel() -> Int {
        let kernel = KernelView()
        return phones.count { kernel.isHeld($0.id) }
    }

    // MARK: Calling

    private func call(_ server: SIPAddress) throws -> CallCounts {
        let limit = Duration.seconds(Double(options.calls) / options.rate + 60)
        let transports: [SIPTransport] =
            switch options.transport {
            case .tcp: [.tcp]
            case .udp: [.udp]
            case .both: [.tcp, .udp]
            }
        switch options.registrar {
        case .builtin:
            let callers = try Callers(
                server: server, domain: domain, transports: transports, users: users, calls: options.calls,
                perSecond: options.rate, seed: options.seed, loop: loop)
            callers.start()
            try watchCalls(atMost: limit, { callers.counts }, until: { callers.isDone })
            return callers.counts
        case .kamailio:
            let caller = try SIPp(
                SIPp.Settings(
                    scenario: options.scenario, server: server, domain: domain, transport: transports[0],
                    users: users, calls: options.calls, rate: options.rate, seed: options.seed),
                directory: directory.path)
            defer { end([caller.process], within: .seconds(2)) }
            try watchCalls(atMost: limit, { caller.counts }, until: { !caller.process.isRunning })
            return caller.counts
        }
    }

    /// Shows the progress of the calls until they are over or the time is up; calls that are not over are
    /// lost.
    private func watchCalls(
        atMost limit: Duration, _ counts: @escaping () -> CallCounts, until isDone: () -> Bool
    ) throws {
        // A query takes the supervisor's time, so it is made between two calls.
        let interval = Duration.seconds(1 / options.rate)
        progress = Progress(
            next: .now + .seconds(2) + interval * 0.6,
            period: interval * max(1, (.seconds(2) / interval).rounded()),
            show: { [weak self] in
                let counts = counts()
                let failures = counts.failed > 0 ? ", \(counts.failed) failed" : ""
                self?.say(
                    "\(counts.placed) calls, \(counts.endedProperly) ended\(failures); \(self?.states() ?? "")"
                )
            })
        defer { progress = nil }
        do {
            try wait(for: "the calls to end", atMost: limit, until: isDone)
        } catch DemoError.timedOut(let what, let detail) {
            complain("gave up waiting for \(what): \(detail)")
        }
        let counts = counts()
        say("\(counts.placed) calls, \(counts.endedProperly) ended; \(states())")
    }

    // MARK: The results

    private func results(
        _ counts: CallCounts, _ before: SupervisorProcess.Snapshot, _ after: SupervisorProcess.Snapshot
    ) -> Results {
        let tally = events.tally
        let time = (after.taken - before.taken) * users.count
        let asleep = after.asleep - before.asleep
        let lateBySupervisor =
            after.status.counters["keep_alive_late"] - before.status.counters["keep_alive_late"]
        return Results(
            clients: users.count, calls: counts.placed, answered: counts.answered,
            endedProperly: counts.endedProperly,
            // A call without any answer, or one that was not over when the time was up.
            lostWakes: counts.noAnswer + counts.placed - counts.isOver,
            lateKeepAlives: max(tally.lateKeepAlives, lateBySupervisor),
            keepAliveRuns: tally.keepAliveRuns, wakes: tally.wakes, wakesByReason: tally.wakesByReason,
            wakesWithoutReason: tally.wakesWithoutReason,
            wakeLatencyMicroseconds: tally.latency,
            asleepPercent: rounded(100 * (asleep / time), digits: 1), asleepAtEnd: asleepAtEnd(after),
            supervisorKibibytes: Int(after.status.memoryBytes) / 1_024,
            phoneKibibytes: phones.map(\.residentBytes).reduce(0, +) / max(1, phones.count) / 1_024,
            suspend: after.status.suspension, transport: options.transport.rawValue,
            registrar: options.registrar.rawValue,
            seconds: rounded((ContinuousClock.now - started) / .seconds(1), digits: 1))
    }

    /// Phones that the supervisor reports as suspended and the kernel really holds. With `none` it holds
    /// none.
    private func asleepAtEnd(_ snapshot: SupervisorProcess.Snapshot) -> Int {
        options.suspend == .none ? snapshot.suspended : min(snapshot.suspended, held)
    }

    // MARK: The end

    /// The supervisor goes first: it lets all phones run again, so that they can say goodbye to the server.
    private func stopEverything() {
        if let supervisor { end([supervisor.process], within: .seconds(8)) }
        end(phones, within: .seconds(4))
        end(others, within: .seconds(4))
    }

    /// Asks processes to end, and ends them.
    private func end(_ processes: [ChildProcess], within limit: Duration) {
        for process in processes { process.send(SIGTERM) }
        let deadline = ContinuousClock.now + limit
        while .now < deadline, processes.contains(where: \.isRunning) {
            // A second Ctrl-C must not leave processes behind.
            if (try? loop.turn(atMost: .milliseconds(20))) == nil { usleep(20_000) }
        }
        for process in processes where process.isRunning {
            complain("\(process.name) (\(process.id)) does not end, so it is killed")
            // A stopped or frozen process ends by SIGKILL too.
            process.kill()
            for _ in 0..<100 where process.isRunning { usleep(10_000) }
        }
    }

    private func say(_ text: String) {
        let seconds = rounded((ContinuousClock.now - started) / .seconds(1), digits: 1)
        print("\(seconds) s  \(text)")
        fflush(nil)
    }
}

/// The directory of this program.
private func ownDirectory() throws -> String {
    guard let resolved = realpath("/proc/self/exe", nil) else {
        throw DemoError.system("realpath", code: errno)
    }
    defer { free(resolved) }
    let path = String(cString: resolved)
    guard let slash = path.lastIndex(of: "/") else { throw DemoError.missing("\(path) is not a path") }
    return String(path[..<slash])
}
