import CChat
import CFloors
import Glibc
import LinuxSystem
import Simulation

/// Compares chat servers: one with hibernation and one without keep as many connections, most of them quiet;
/// further pairs serve only active clients; a last one hibernates at every moment.
struct ChatRun {
    struct Settings {
        var connections: Int
        /// The active ones of these connections, which send as fast as they can. As many others call sleeping
        /// members, one at a time.
        var active: Int
        /// Messages that are sent while connections are hibernated at random.
        var messages: Int
        var rounds: Int
        /// Calls to each side in a round.
        var calls: Int
        var seed: UInt64
        var idle: Duration
        /// How long each side sends in a round.
        var talking: Duration = .seconds(1)

        /// None of these ever sends anything, except the first of each pair.
        var quiet: Int { connections - active }
        /// A sender and a receiver that share a room.
        var pairs: Range<Int> { 0..<2 * active }
        var firstPopulation: Int { connections / 9 }
        /// Connections that are made at a time; no more than `mostAwake` are awake then, in the first and in
        /// the last population, so that both figures include what these need.
        var batch: Int { max(8, firstPopulation / 32) }
        var mostAwake: Int { firstPopulation / 2 }
    }

    /// Members of a room.
    enum RoomSize {
        static let idle = 20
        static let pair = 2
        static let throughput = 10
        static let soak = 4
    }

    /// The server that hibernates at random.
    enum Soak {
        static let rooms = 128
        static let connections = rooms * RoomSize.soak
        static let idle = Duration.milliseconds(20)
        static let threads = 2
    }

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> ChatResults {
        var results = ChatResults(settings: settings)
        let callers = try ChatClients(
            runDirectory, calls: max(settings.calls, settings.active), seed: settings.seed)
        let hibernated = try ServerUnderTest(self, isHibernated: true, callers)
        try populate(hibernated, &results.sides[0])
        let resident = try ServerUnderTest(self, isHibernated: false, callers)
        try populate(resident, &results.sides[1])
        let sides = [hibernated, resident]
        results.began = monotonicNow()
        var random = SplitMix64(seed: settings.seed)
        for round in 1...settings.rounds {
            try ChatThroughput(settings: settings, runDirectory: runDirectory, round: round)
                .run(&results, isHibernatedFirst: Bool.random(using: &random))
            try call(sides, &results)
            runDirectory.progress.say(results.line(round))
        }
        for side in sides { side.end() }
        callers.end()
        try soak(&results)
        results.machine.finish()
        return results
    }

    // MARK: Memory

    private func populate(_ side: ServerUnderTest, _ results: inout ChatResults.Side) throws {
        for count in [0, settings.firstPopulation, settings.quiet] {
            if count > 0 { runDirectory.progress.say("\(side.name): \(count) connections") }
            while side.joined < count {
                try side.waitUntilAsleep(side.joined - settings.mostAwake)
                try side.join(upTo: min(count, max(settings.pairs.count, side.joined + settings.batch)))
            }
            try side.waitUntilAsleep(count)
            let figures = try settledFigures(side)
            results.populations.append(
                .init(connections: count, bytes: figures.writtenBytes, slab: kernelSlabBytes()))
        }
    }

    /// The memory that the server keeps: it returns unneeded pages up to five seconds later.
    private func settledFigures(_ side: ServerUnderTest) throws -> ProcessFigures {
        let calm: Int64 = side.isHibernated ? 6_000_000_000 : 300_000_000
        let deadline = monotonicNow() + 5 * calm
        var figures = try ProcessFigures(side.server.process.id)
        var since = monotonicNow()
        while monotonicNow() < min(since + calm, deadline) {
            try pause(nanoseconds: 100_000_000)
            let next = try ProcessFigures(side.server.process.id)
            if next.writtenBytes != figures.writtenBytes { since = monotonicNow() }
            figures = next
        }
        return figures
    }

    // MARK: Rounds

    /// Calls each sender once: the server has hibernated the sender's connection by then. Then calls as often
    /// as was asked for; no sender pauses long enough to be hibernated in between.
    private func call(_ sides: [ServerUnderTest], _ results: inout ChatResults) throws {
        try sides[0].waitUntilAsleep(settings.quiet)
        var order = ChatOrder(.call)
        (order.first, order.otherFirst) = (Int64(sides[0].firstPair), Int64(sides[1].firstPair))
        order.count = Int64(settings.active)
        for (isFirst, calls) in [(true, settings.active), (false, settings.calls)] {
            order.amount = Int64(calls)
            let before = try sides[0].server.counters()
            try sides[0].callers.perform(order)
            let after = try sides[0].server.counters()
            for side in 0...1 {
                let samples = UnsafeBufferPointer(
                    start: sides[0].callers.sharedMemory.samples(side), count: calls)
                results.sides[side].note(samples, isFirst: isFirst)
            }
            if isFirst {
                results.callersWoken += after.wakes - before.wakes
            } else {
                results.wakesInCalls += after.wakes - before.wakes
            }
        }
    }

    // MARK: Hibernation at random

    private func soak(_ results: inout ChatResults) throws {
        let count = Soak.connections
        let server = try ChatServer(
            runDirectory, "random",
            [
                "--hibernate-after", "\(Soak.idle.wholeNanoseconds / 1_000_000)ms", "--threads",
                "\(Soak.threads)",
            ])
        let chatClients = try ChatClients(runDirectory, seed: settings.seed)
        let first = try chatClients.join(server, cchat_soak_room, members: 0..<count, roomSize: RoomSize.soak)
        runDirectory.progress.say(
            "\(settings.messages) messages, while \(count) connections are hibernated at random")
        let before = try server.counters()
        var order = ChatOrder(.soak)
        order.first = Int64(first)
        order.count = Int64(count)
        order.roomSize = Int64(RoomSize.soak)
        order.amount = Int64(settings.messages)
        order.nanoseconds = Soak.idle.wholeNanoseconds
        let start = monotonicNow()
        try chatClients.perform(order) {
            let progress = chatClients.sharedMemory.progress.pointee
            runDirectory.progress.show(
                "\(progress.said) of \(settings.messages) said, \(progress.heard) heard")
        }
        let after = try server.counters()
        results.random = ChatResults.Random(
            deliveries: chatClients.sharedMemory.report.pointee.deliveries, connections: count,
            hibernations: after.hibernations - before.hibernations, wakes: after.wakes - before.wakes,
            connectionsLost: after.lost, seconds: Double(monotonicNow() - start) / 1e9)
        chatClients.end()
        runDirectory.end(server.process)
    }
}

/// A server to compare, and its clients.
private final class ServerUnderTest {
    let name: String
    let isHibernated: Bool
    let server: ChatServer
    let callers: ChatClients
    let firstPair: Int
    private let settings: ChatRun.Settings
    private let runDirectory: RunDirectory
    /// Clients that send nothing.
    private var idlers: [ChatClients] = []
    private(set) var joined = 0
    /// The connections that fit into a process.
    private let room = DescriptorNeeds.socketsOfPeer(limit: Int(clamping: cfloors_raise_descriptor_limit()))

    init(_ run: ChatRun, isHibernated: Bool, _ callers: ChatClients) throws {
        self.isHibernated = isHibernated
        name = isHibernated ? "hibernated" : "resident"
        self.callers = callers
        settings = run.settings
        runDirectory = run.runDirectory
        server = try ChatServer(runDirectory, name, isHibernated: isHibernated, settings)
        firstPair = callers.count
    }

    /// Without hibernation no connection sleeps: then they need only be connected.
    func waitUntilAsleep(_ count: Int) throws {
        try wait(for: "\(count) connections to be \(name)", atMost: .seconds(60), firstPause: 10_000_000) {
            try runDirectory.requireAllRunning()
            let counters = try server.counters()
            return (isHibernated ? counters.hibernated : counters.connections) >= count
        }
    }

    func join(upTo count: Int) throws {
        if joined == 0 {
            try callers.join(
                server, cchat_pair_room, members: settings.pairs, roomSize: ChatRun.RoomSize.pair)
            joined = settings.pairs.count
        }
        while joined < count {
            if (idlers.last?.count ?? .max) >= room {
                idlers.append(try ChatClients(runDirectory, seed: settings.seed &+ UInt64(joined)))
            }
            guard let last = idlers.last else { return }
            let end = min(count, joined + room - last.count)
            try last.join(
                server, cchat_idle_room, members: joined..<end, roomSize: ChatRun.RoomSize.idle)
            joined = end
        }
    }

    /// Ends the clients before the server: none of them must see the server end.
    func end() {
        for idler in idlers { idler.end() }
        runDirectory.end(server.process)
    }
}
