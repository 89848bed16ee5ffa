import CChat
import CFloors

/// Measures throughput: some clients send as fast as they can, in a chat server with hibernation and in one
/// without, in turns, because the load of the machine changes from second to second.
///
/// The pair of servers is started for this round. Two processes of the same program differ by some per cent,
/// with the layout of their memory and the hash seeds of their tables, which more rounds of the same two
/// would not even out.
struct ChatThroughput {
    let settings: ChatRun.Settings
    let runDirectory: RunDirectory
    let round: Int

    /// Turns of each side in a round.
    private static let turns = 8

    func run(_ results: inout ChatResults, isHibernatedFirst: Bool) throws {
        let throughputClients = try ChatClients(runDirectory, seed: settings.seed &+ UInt64(round))
        defer { throughputClients.end() }
        var servers: [ChatServer] = []
        defer { for server in servers { runDirectory.end(server.process) } }
        for isHibernated in [true, false] {
            let name = "talk-\(round)-\(isHibernated ? "hibernated" : "resident")"
            let server = try ChatServer(runDirectory, name, isHibernated: isHibernated, settings)
            servers.append(server)
            try throughputClients.join(
                server, cchat_throughput_room, members: 0..<settings.active,
                roomSize: ChatRun.RoomSize.throughput)
        }
        // The clients then send through pipelines that were rebuilt.
        try wait(for: "the active connections to be hibernated", atMost: .seconds(90), firstPause: 10_000_000)
        {
            try runDirectory.requireAllRunning()
            return try servers[0].counters().hibernated >= settings.active
        }
        let time = settings.talking.wholeNanoseconds
        // A client that waits for two turns of the other side is not idle for long enough to be hibernated.
        let turnTime = min(time / Int64(Self.turns), settings.idle.wholeNanoseconds / 4)
        // The cost of waking the clients is not part of the figure.
        for side in 0...1 {
            results.sides[side].lost += Int(try throughput(throughputClients, side, for: time / 10).lost)
        }
        var talks = [cchat_throughput(), cchat_throughput()]
        var processorTimes: [Int64] = [0, 0]
        for turn in 0..<Self.turns {
            for side in isHibernatedFirst == (turn % 2 == 0) ? [0, 1] : [1, 0] {
                let before = try processorTime(servers[side].process.id)
                let throughput = try throughput(throughputClients, side, for: turnTime)
                processorTimes[side] += try processorTime(servers[side].process.id) - before
                talks[side].messages += throughput.messages
                talks[side].deliveries += throughput.deliveries
                talks[side].lost += throughput.lost
                talks[side].nanoseconds += throughput.nanoseconds
            }
        }
        for side in 0...1 {
            results.sides[side].note(talks[side], processorNanoseconds: processorTimes[side])
        }
    }

    private func throughput(_ throughputClients: ChatClients, _ side: Int, for nanoseconds: Int64) throws
        -> cchat_throughput
    {
        var order = ChatOrder(.throughput)
        order.first = Int64(side * settings.active)
        order.count = Int64(settings.active)
        order.roomSize = Int64(ChatRun.RoomSize.throughput)
        order.nanoseconds = nanoseconds
        try throughputClients.perform(order)
        return throughputClients.sharedMemory.report.pointee.throughput
    }
}

extension ChatServer {
    /// - Parameter name: of its log.
    convenience init(
        _ runDirectory: RunDirectory, _ name: String, isHibernated: Bool, _ settings: ChatRun.Settings
    ) throws {
        let milliseconds = settings.idle.wholeNanoseconds / 1_000_000
        try self.init(
            runDirectory, name,
            isHibernated ? ["--hibernate-after", "\(milliseconds)ms"] : ["--no-hibernate"])
    }
}
