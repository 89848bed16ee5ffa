import CChat
import CFloors
import Glibc
import LinuxSystem

/// An order to a process of chat clients.
struct ChatOrder {
    enum Kind: Int64 {
        /// Make connections, and join rooms.
        case join
        /// Call on both sides, one after the other, in an order drawn for each pair of calls.
        case call
        case throughput
        case soak
    }

    private var kindNumber: Int64
    var port: Int64 = 0
    var room: Int64 = 0
    /// Members, or indices in the order in which connections were made.
    var first: Int64 = 0
    var otherFirst: Int64 = 0
    var count: Int64 = 0
    var roomSize: Int64 = 0
    /// Calls, or messages.
    var amount: Int64 = 0
    /// How long to send, or how long the server takes to hibernate a connection.
    var nanoseconds: Int64 = 0

    init(_ kind: Kind) { kindNumber = kind.rawValue }

    var kind: Kind? { Kind(rawValue: kindNumber) }
}

/// A process with clients of chat servers. It gets orders, and answers when it has carried them out.
final class ChatClients {
    let sharedMemory: ChatSharedMemory
    /// The number of its connections.
    private(set) var count = 0
    private let control: OwnedDescriptor
    private let process: ChildProcess
    private let runDirectory: RunDirectory

    init(_ runDirectory: RunDirectory, calls: Int = 1, seed: UInt64) throws(LoadError) {
        self.runDirectory = runDirectory
        sharedMemory = try ChatSharedMemory(calls: calls)
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw LoadError(failed: "socketpair") }
        control = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])
        process = try runDirectory.start(
            .chatClients, ["\(calls)", "\(seed)"],
            descriptors: [theirs.rawValue, sharedMemory.descriptor.rawValue])
        theirs.close()
    }

    /// Returns the index of the first of them.
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
        guard send(control.rawValue, &order, size, CInt(MSG_NOSIGNAL)) == size else { throw exitError() }
        var waiting = pollfd(fd: control.rawValue, events: Int16(POLLIN), revents: 0)
        while poll(&waiting, 1, 500) <= 0 {
            // The user may have interrupted the run, or a process may have ended.
            try pause(nanoseconds: 0)
            try runDirectory.requireAllRunning()
            try watching()
        }
        var answer: UInt8 = 0
        guard recv(control.rawValue, &answer, 1, 0) == 1 else { throw exitError() }
    }

    /// The error for a process that has closed its end, and so ends or has ended.
    private func exitError() -> LoadError {
        let deadline = monotonicNow() + 1_000_000_000
        while process.isRunning, monotonicNow() < deadline { usleep(1_000) }
        let last = runDirectory.lastLines(of: .chatClients)
        return .supervisor(last.isEmpty ? "the clients of the chat server have ended" : last)
    }

    func end() { runDirectory.end(process) }
}
