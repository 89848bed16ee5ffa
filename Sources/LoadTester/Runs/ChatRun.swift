import CChat
import CFloors
import Descriptors
import Glibc
import Simulation

/// A chat server with hibernation and one without keep as many connections, of which few say something; others have none
/// but those that talk; a last one hibernates at every moment.
struct ChatRun {
    struct Settings {
        var connections: Int
        /// Of these: they talk as fast as they can. As many others call somebody who sleeps, one at a time.
        var active: Int
        /// To be said while connections are hibernated at random.
        var messages: Int
        var rounds: Int
        /// Of each side in a round.
        var calls: Int
        var seed: UInt64
        var idle: Duration
        /// How long each side talks in a round.
        var talking: Duration = .seconds(1)

        /// Nobody of them ever says anything, but the first of each pair.
        var quiet: Int { connections - active }
        /// A sender and a receiver, who share a room.
        var pairs: Range<Int> { 0..<2 * active }
        var firstPopulation: Int { connections / 9 }
        /// So many come at a time, and no more than these are awake then, of the first population and of the last: what
        /// they need is in both figures.
        var batch: Int { max(8, firstPopulation / 32) }
        var mostAwake: Int { firstPopulation / 2 }
    }

    /// Members of a room.
    enum RoomSize {
        static let idle = 20
        static let pair = 2
        static let talk = 10
        static let stir = 4
    }

    /// Where hibernation is at random.
    enum Stir {
        static let rooms = 128
        static let connections = rooms * RoomSize.stir
        static let idle = Duration.milliseconds(20)
        static let threads = 2
    }

    let settings: Settings
    let bench: Workbench

    func run() throws -> ChatResults {
        var results = ChatResults(settings: settings)
        let callers = try Chatters(bench, calls: max(settings.calls, settings.active), seed: settings.seed)
        let hibernated = try Side(self, isHibernated: true, callers)
        try populate(hibernated, &results.sides[0])
        let resident = try Side(self, isHibernated: false, callers)
        try populate(resident, &results.sides[1])
        let sides = [hibernated, resident]
        results.began = monotonicNow()
        var random = SplitMix64(seed: settings.seed)
        for round in 1...settings.rounds {
            try ChatTalk(settings: settings, bench: bench, round: round)
                .run(&results, isHibernatedFirst: Bool.random(using: &random))
            try call(sides, &results)
            bench.progress.say(results.line(round))
        }
        for side in sides { side.end() }
        callers.end()
        try stir(&results)
        results.machine.finish()
        return results
    }

    // MARK: Memory

    private func populate(_ side: Side, _ results: inout ChatResults.Side) throws {
        for count in [0, settings.firstPopulation, settings.quiet] {
            if count > 0 { bench.progress.say("\(side.name): \(count) connections") }
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

    /// What the server keeps: it gives back what it does not need up to five seconds later.
    private func settledFigures(_ side: Side) throws -> ProcessFigures {
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

    /// First everybody once: the server has put its connection to sleep by then. Then as often as was asked for; nobody
    /// pauses long enough to be put to sleep in between.
    private func call(_ sides: [Side], _ results: inout ChatResults) throws {
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
                let samples = UnsafeBufferPointer(start: sides[0].callers.area.samples(side), count: calls)
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

    private func stir(_ results: inout ChatResults) throws {
        let count = Stir.connections
        let server = try ChatServer(
            bench, "random",
            [
                "--hibernate-after", "\(Stir.idle.wholeNanoseconds / 1_000_000)ms", "--threads",
                "\(Stir.threads)",
            ])
        let chatters = try Chatters(bench, seed: settings.seed)
        let first = try chatters.join(server, cchat_stir_room, members: 0..<count, roomSize: RoomSize.stir)
        bench.progress.say(
            "\(settings.messages) messages, while \(count) connections are hibernated at random")
        let before = try server.counters()
        var order = ChatOrder(.stir)
        order.first = Int64(first)
        order.count = Int64(count)
        order.roomSize = Int64(RoomSize.stir)
        order.amount = Int64(settings.messages)
        order.nanoseconds = Stir.idle.wholeNanoseconds
        let start = monotonicNow()
        try chatters.perform(order) {
            let progress = chatters.area.progress.pointee
            bench.progress.show("\(progress.said) of \(settings.messages) said, \(progress.heard) heard")
        }
        let after = try server.counters()
        results.random = ChatResults.Random(
            verdict: chatters.area.report.pointee.verdict, connections: count,
            hibernations: after.hibernations - before.hibernations, wakes: after.wakes - before.wakes,
            connectionsLost: after.lost, seconds: Double(monotonicNow() - start) / 1e9)
        chatters.end()
        bench.end(server.process)
    }
}

/// One of the two servers, and its clients.
private final class Side {
    let name: String
    let isHibernated: Bool
    let server: ChatServer
    let callers: Chatters
    let firstPair: Int
    private let settings: ChatRun.Settings
    private let bench: Workbench
    /// Those who say nothing.
    private var idlers: [Chatters] = []
    private(set) var joined = 0
    /// So many of them fit into a process.
    private let room = DescriptorNeeds.socketsOfPeer(limit: Int(clamping: cfloors_raise_descriptor_limit()))

    init(_ run: ChatRun, isHibernated: Bool, _ callers: Chatters) throws {
        self.isHibernated = isHibernated
        name = isHibernated ? "hibernated" : "resident"
        self.callers = callers
        settings = run.settings
        bench = run.bench
        server = try ChatServer(bench, name, isHibernated: isHibernated, settings)
        firstPair = callers.count
    }

    /// Nobody sleeps where nobody is hibernated: then they need only be connected.
    func waitUntilAsleep(_ count: Int) throws {
        try wait(for: "\(count) connections to be \(name)", atMost: .seconds(60), firstPause: 10_000_000) {
            try bench.requireAllRunning()
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
                idlers.append(try Chatters(bench, seed: settings.seed &+ UInt64(joined)))
            }
            guard let last = idlers.last else { return }
            let end = min(count, joined + room - last.count)
            try last.join(
                server, cchat_idle_room, members: joined..<end, roomSize: ChatRun.RoomSize.idle)
            joined = end
        }
    }

    /// The server first: nobody is to read that it ends.
    func end() {
        for idler in idlers { idler.end() }
        bench.end(server.process)
    }
}
