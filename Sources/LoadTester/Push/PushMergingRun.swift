import Glibc
import LinuxSystem
import Nightbell

/// Leaves more messages for each client than the hourly limit lets through one by one, with topics that replace each
/// other: the rest waits, is merged, and comes with the next wake.
final class PushMergingRun {
    struct Results {
        /// Answered with 201.
        var pushes = 0
        /// Handled.
        var delivered = 0
        /// Not handled, because a later one of the same topic took its place.
        var replaced = 0
        /// Not handled, and the last one of its topic.
        var lost = 0
        /// How often clients were told of messages.
        var wakes = 0

        var wakesPerPush: Double? { pushes > 0 ? Double(wakes) / Double(pushes) : nil }
    }

    private let runDirectory: RunDirectory
    private let clients: Int
    private let sharedMemory: PushSharedMemory
    private let supervisor: PrivateSupervisor
    private let gateway: GatewayProcess
    private let senders: PushSenders
    private var isAccepted: [Bool]

    /// More clients measure nothing else.
    private static let mostClients = 24
    /// Messages for each client, one in a round.
    private static let rounds = 32
    private static let topics = 4
    /// In these rounds clients are told of messages as they come: `push.perHour` by default.
    private static let toldRounds = 9
    private static let patience = Duration.seconds(10)

    init(_ run: PushRun.Settings, runDirectory: RunDirectory) throws {
        self.runDirectory = runDirectory
        clients = min(run.clients, Self.mostClients)
        let pushes = clients * Self.rounds
        isAccepted = Array(repeating: false, count: pushes)
        sharedMemory = try PushSharedMemory(clients: clients, pushes: pushes)
        gateway = GatewayProcess(runDirectory, name: "merged")
        senders = PushSenders(port: gateway.port, count: clients)
        supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: run.suspension, linger: .milliseconds(5),
                // The hourly limit is the default one.
                extra: [
                    "memoryPressure.file=", "monitor=off", "logLevel=error",
                    "gateway.pushSocket=\(gateway.pushSocket)",
                ]),
            name: "merging")
    }

    func run() throws -> Results {
        let pipe = try Pipe()
        try gateway.start(supervisor)
        runDirectory.progress.say("leaving messages that replace each other")
        let starter = try PushClients.start(sharedMemory, supervisor, pipe, runDirectory)
        try supervisor.waitUntilAsleep(clients)
        for round in 0..<Self.rounds {
            try send(round)
            if round < Self.toldRounds { try waitUntilHandled(round) }
        }
        try tellAlong()
        let results = judge()
        runDirectory.end(starter)
        gateway.end()
        supervisor.end()
        withExtendedLifetime(pipe) {}
        return results
    }

    /// One message for each client. The next one of its topic is not sent before this one was answered: either of two
    /// that are under way together may be the last.
    private func send(_ round: Int) throws {
        var waiting = (0..<clients)[...]
        try wait(for: "the answers of the push service", atMost: Self.patience) {
            while let client = waiting.first, send(round, to: client) { waiting.removeFirst() }
            senders.collect(milliseconds: 1) { push, outcome in
                if case .accepted = outcome { isAccepted[push] = true }
            }
            return waiting.isEmpty && senders.underWay == 0
        }
    }

    /// Clients fall asleep again before the next round: a message that comes earlier may be taken with this one.
    private func waitUntilHandled(_ round: Int) throws {
        try wait(for: "the clients to handle their messages", atMost: Self.patience) {
            (0..<clients).allSatisfy { sharedMemory[push: round * clients + $0, .handledAt] != 0 }
        }
        try supervisor.waitUntilAsleep(clients)
    }

    private func send(_ round: Int, to client: Int) -> Bool {
        senders.send(
            round * clients + client, to: sharedMemory[address: client], topic: "topic-\(round % Self.topics)"
        )
    }

    /// The hour is not waited for: a client that is woken for another reason is told of what waits, too.
    private func tellAlong() throws {
        try supervisor.waitUntilAsleep(clients)
        var administration = try Administration(socketPath: supervisor.socketPath)
        for client in 0..<clients { try administration.wake(PushClients.identifier(client)) }
        let deadline = monotonicNow() + Self.patience.wholeNanoseconds
        while judge().lost > 0, monotonicNow() < deadline { try pause(nanoseconds: 5_000_000) }
        // The count of a wake may follow its messages.
        try supervisor.waitUntilAsleep(clients)
    }

    private func judge() -> Results {
        var results = Results()
        for push in isAccepted.indices where isAccepted[push] {
            results.pushes += 1
            let later = stride(
                from: push + clients * Self.topics, to: isAccepted.count, by: clients * Self.topics)
            if sharedMemory[push: push, .handledAt] != 0 {
                results.delivered += 1
            } else if later.contains(where: { isAccepted[$0] }) {
                results.replaced += 1
            } else {
                results.lost += 1
            }
        }
        results.wakes = (0..<clients).reduce(0) { $0 + Int(sharedMemory[$1, .wakes]) }
        return results
    }
}
