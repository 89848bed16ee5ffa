internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A member, as the hall refers to it.
struct Membership: Equatable {
    let room: UInt32
    /// The number of the member's name.
    let name: UInt32
}

/// A message for the members of a room on one event loop.
enum Delivery {
    /// The first message of a member: from here on it gets the messages of its room.
    case welcome(row: UInt32, Membership, ServerWords)
    case tell(room: UInt32, Frame)
}

/// All rooms with their members and messages. All members get the messages of a room in the same order,
/// because every message passes through here.
final class Hall: Sendable {
    enum Refusal: String, Error {
        case nameIsTaken = "this name is taken in this room"
        case tooManyRooms = "there are too many rooms already"
    }

    /// The caller's duty after a change.
    enum Afterwards {
        case nothing
        /// Call `tellCount` in a second.
        case count(room: UInt32)
    }

    private struct Room {
        let name: String
        /// The name of the member that joined last.
        var newest: UInt32?
        var count = 0
        var lastNumber: UInt64 = 0
        var history: [Line] = []
        var willTellCount = false
    }

    private struct Inside {
        var rooms: [Room] = []
        /// How many members of each room there are on each event loop, room by room.
        var perLoop: [UInt32] = []
        var numbers: [String: UInt32] = [:]
        var names = Names()
        /// The sum over all histories.
        var historyBytes = 0
        let encoder = JSONEncoder()

        /// Frees memory: first the histories of empty rooms, then that of this room.
        mutating func limitHistories(_ index: Int) {
            guard historyBytes > Limits.historyBytes else { return }
            for room in rooms.indices where rooms[room].count == 0 {
                removeLines(rooms[room].history.count, room)
            }
            if historyBytes > Limits.historyBytes { removeLines(rooms[index].history.count - 1, index) }
        }

        mutating func removeLines(_ count: Int, _ room: Int) {
            historyBytes -= rooms[room].history.prefix(count).reduce(0) { $0 + $1.byteCount }
            rooms[room].history.removeFirst(count)
        }
    }

    private let inside: Mutex<Inside>
    /// Indexed by the number of the event loop.
    private let outboxes: [Outbox]

    init(_ outboxes: [Outbox]) {
        self.outboxes = outboxes
        let inside = Inside()
        inside.encoder.outputFormatting = .withoutEscapingSlashes
        self.inside = Mutex(inside)
    }

    /// Adds a member. It gets a `welcome` on its event loop.
    func join(
        _ name: String, room roomName: String, row: UInt32, loop: Int
    ) throws(Refusal) -> (Membership, Afterwards) {
        try inside.withLock { inside throws(Refusal) in
            let room = try number(of: roomName, &inside)
            let index = Int(room)
            guard !inside.names.contains(name, room: room) else { throw .nameIsTaken }
            // The others first: the new member gets no message about itself.
            let afterwards = tellPresence(.joined(name: name), room, count: 1, &inside)
            inside.rooms[index].count += 1
            inside.perLoop[index * outboxes.count + loop] += 1
            let membership = Membership(
                room: room,
                name: inside.names.insert(name, room: room, first: &inside.rooms[index].newest))
            let named = inside.names.numbers(from: membership.name).prefix(Limits.namedMembers)
            let words = ServerWords.welcome(
                // As its first member has written it: see `Names`.
                room: inside.rooms[index].name, names: named.map { inside.names[$0] },
                members: inside.rooms[index].count, history: inside.rooms[index].history)
            outboxes[loop].put(.welcome(row: row, membership, words))
            return (membership, afterwards)
        }
    }

    func leave(_ membership: Membership, loop: Int) -> Afterwards {
        inside.withLock { inside in
            let index = Int(membership.room)
            let name = inside.names[membership.name]
            inside.names.remove(membership.name, first: &inside.rooms[index].newest)
            inside.rooms[index].count -= 1
            inside.perLoop[index * outboxes.count + loop] -= 1
            return tellPresence(.left(name: name), membership.room, count: 0, &inside)
        }
    }

    func say(_ text: String, _ membership: Membership) {
        inside.withLock { inside in
            let index = Int(membership.room)
            inside.rooms[index].lastNumber += 1
            let line = Line(
                name: inside.names[membership.name], text: text, number: inside.rooms[index].lastNumber,
                time: Self.milliseconds)
            if inside.rooms[index].history.count == Limits.historyLines { inside.removeLines(1, index) }
            inside.rooms[index].history.append(line)
            inside.historyBytes += line.byteCount
            inside.limitHistories(index)
            tell(.message(room: inside.rooms[index].name, line), membership.room, &inside)
        }
    }

    func room(named name: String) -> UInt32? {
        inside.withLock { $0.numbers[name] }
    }

    /// - Parameter numbers: those of current members: call it on their event loop.
    func names(of numbers: [UInt32]) -> [String] {
        inside.withLock { inside in numbers.map { inside.names[$0] } }
    }

    /// Sends a large room the number of its members.
    func tellCount(room: UInt32) {
        inside.withLock { inside in
            inside.rooms[Int(room)].willTellCount = false
            tell(.count(members: inside.rooms[Int(room)].count), room, &inside)
        }
    }

    /// - Parameter count: the number of members about to join.
    private func tellPresence(
        _ words: ServerWords, _ room: UInt32, count: Int, _ inside: inout Inside
    ) -> Afterwards {
        guard inside.rooms[Int(room)].count + count > Limits.namedMembers else {
            tell(words, room, &inside)
            return .nothing
        }
        guard !inside.rooms[Int(room)].willTellCount else { return .nothing }
        inside.rooms[Int(room)].willTellCount = true
        return .count(room: room)
    }

    private func tell(_ words: ServerWords, _ room: UInt32, _ inside: inout Inside) {
        guard inside.rooms[Int(room)].count > 0 else { return }
        let frame = words.frame(inside.encoder)
        for (loop, outbox) in outboxes.enumerated()
        where inside.perLoop[Int(room) * outboxes.count + loop] > 0 {
            outbox.put(.tell(room: room, frame))
        }
    }

    private func number(of name: String, _ inside: inout Inside) throws(Refusal) -> UInt32 {
        if let number = inside.numbers[name] { return number }
        let room = Room(name: name)
        let number: UInt32
        if inside.rooms.count < Limits.rooms {
            number = UInt32(inside.rooms.count)
            inside.rooms.append(room)
            inside.perLoop += outboxes.map { _ in 0 }
        } else {
            // Replaces an empty room.
            guard let empty = inside.rooms.firstIndex(where: { $0.count == 0 && !$0.willTellCount })
            else { throw .tooManyRooms }
            inside.numbers[inside.rooms[empty].name] = nil
            inside.removeLines(inside.rooms[empty].history.count, empty)
            number = UInt32(empty)
            inside.rooms[empty] = room
        }
        inside.numbers[name] = number
        return number
    }

    private static var milliseconds: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}
