import CChat
import CFloors

/// Some talk as fast as they can, in a chat server with hibernation and in one without, in turns: what else the machine does
/// changes from second to second.
///
/// In a pair of servers that was started for this round: two processes of the same program differ by some per cent, with
/// where their memory lies and how their tables hash, and more rounds of the same two would not even that out.
struct ChatTalk {
    let settings: ChatRun.Settings
    let bench: Workbench
    let round: Int

    /// Each side has so many turns in a round.
    private static let turns = 8

    func run(_ results: inout ChatResults, isHibernatedFirst: Bool) throws {
        let talkers = try Chatters(bench, seed: settings.seed &+ UInt64(round))
        defer { talkers.end() }
        var servers: [ChatServer] = []
        defer { for server in servers { bench.end(server.process) } }
        for isHibernated in [true, false] {
            let name = "talk-\(round)-\(isHibernated ? "hibernated" : "resident")"
            let server = try ChatServer(bench, name, isHibernated: isHibernated, settings)
            servers.append(server)
            try talkers.join(
                server, cchat_talk_room, members: 0..<settings.active, roomSize: ChatRun.RoomSize.talk)
        }
        // They talk through pipelines that were made again.
        try wait(for: "those who talk to be hibernated", atMost: .seconds(90), firstPause: 10_000_000) {
            try bench.requireAllRunning()
            return try servers[0].counters().hibernated >= settings.active
        }
        let time = settings.talking.wholeNanoseconds
        // Who waits for two turns of the others is not idle for long enough to be hibernated.
        let turnTime = min(time / Int64(Self.turns), settings.idle.wholeNanoseconds / 4)
        // What it takes to bring them back is not what is asked here.
        for side in 0...1 {
            results.sides[side].lost += Int(try talk(talkers, side, for: time / 10).lost)
        }
        var talks = [cchat_talk(), cchat_talk()]
        var processorTimes: [Int64] = [0, 0]
        for turn in 0..<Self.turns {
            for side in isHibernatedFirst == (turn % 2 == 0) ? [0, 1] : [1, 0] {
                let before = try processorTime(servers[side].process.id)
                let talk = try talk(talkers, side, for: turnTime)
                processorTimes[side] += try processorTime(servers[side].process.id) - before
                talks[side].messages += talk.messages
                talks[side].deliveries += talk.deliveries
                talks[side].lost += talk.lost
                talks[side].nanoseconds += talk.nanoseconds
            }
        }
        for side in 0...1 {
            results.sides[side].note(talks[side], processorNanoseconds: processorTimes[side])
        }
    }

    private func talk(_ talkers: Chatters, _ side: Int, for nanoseconds: Int64) throws -> cchat_talk {
        var order = ChatOrder(.talk)
        order.first = Int64(side * settings.active)
        order.count = Int64(settings.active)
        order.roomSize = Int64(ChatRun.RoomSize.talk)
        order.nanoseconds = nanoseconds
        try talkers.perform(order)
        return talkers.area.report.pointee.talk
    }
}

extension ChatServer {
    /// - Parameter name: of its log.
    convenience init(
        _ bench: Workbench, _ name: String, isHibernated: Bool, _ settings: ChatRun.Settings
    ) throws {
        let milliseconds = settings.idle.wholeNanoseconds / 1_000_000
        try self.init(
            bench, name, isHibernated ? ["--hibernate-after", "\(milliseconds)ms"] : ["--no-hibernate"])
    }
}
