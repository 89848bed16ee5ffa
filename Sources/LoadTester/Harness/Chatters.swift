import CChat
import CFloors
import Descriptors
import Glibc

/// What a process of chatters is told.
struct ChatOrder {
    enum Kind: Int64 {
        /// Connect so many, and have them join their rooms.
        case join
        /// Both sides call, one after the other, in an order drawn for each pair of calls.
        case call
        case talk
        case stir
    }

    private var kindNumber: Int64
    var port: Int64 = 0
    var room: Int64 = 0
    /// Members, or places in the order in which connections were made.
    var first: Int64 = 0
    var otherFirst: Int64 = 0
    var count: Int64 = 0
    var roomSize: Int64 = 0
    /// Calls, or messages.
    var amount: Int64 = 0
    /// How long to talk, or how long the server takes to hibernate somebody.
    var nanoseconds: Int64 = 0

    init(_ kind: Kind) { kindNumber = kind.rawValue }

    var kind: Kind? { Kind(rawValue: kindNumber) }
}

/// A process with clients of chat servers. It is told what to do, and answers when it has done it.
final class Chatters {
    let area: ChatArea
    /// Connections that it has.
    private(set) var count = 0
    private let control: OwnedDescriptor
    private let process: ChildProcess
    private let bench: Workbench

    init(_ bench: Workbench, calls: Int = 1, seed: UInt64) throws(LoadError) {
        self.bench = bench
        area = try ChatArea(calls: calls)
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw LoadError(failed: "socketpair") }
        control = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])
        process = try bench.start(
            .chatters, ["\(calls)", "\(seed)"], descriptors: [theirs.rawValue, area.descriptor.rawValue])
        theirs.close()
    }

    /// Returns the place of the first of them.
    @discardableResult
    func join(
        _ server: ChatServer, _ room: cchat_room, members: Range<Int>, roomSize: Int
    ) throws -> Int {
        var order = ChatOrder(.join)
        order.port = Int64(server.port)
        order.room = Int64(room.rawValue)
        order.first = Int64(members.lowerBound)
        order.count = Int64(members.count)
        order.roomSize = Int64(roomSize)
        try perform(order)
        defer { count += members.count }
        return count
    }

    func perform(_ order: ChatOrder, watching: () throws -> Void = {}) throws {
        var order = order
        let size = MemoryLayout<ChatOrder>.size
        guard send(control.rawValue, &order, size, CInt(MSG_NOSIGNAL)) == size else { throw whyItEnded() }
        var waiting = pollfd(fd: control.rawValue, events: Int16(POLLIN), revents: 0)
        while poll(&waiting, 1, 500) <= 0 {
            // The user may want it to end, or somebody has.
            try pause(nanoseconds: 0)
            try bench.requireAllRunning()
            try watching()
        }
        var answer: UInt8 = 0
        guard recv(control.rawValue, &answer, 1, 0) == 1 else { throw whyItEnded() }
    }

    /// It has closed its end, and so it ends or has ended.
    private func whyItEnded() -> LoadError {
        let deadline = monotonicNow() + 1_000_000_000
        while process.isRunning, monotonicNow() < deadline { usleep(1_000) }
        let last = bench.lastLines(of: .chatters)
        return .supervisor(last.isEmpty ? "the clients of the chat server have ended" : last)
    }

    func end() { bench.end(process) }
}
