import CFloors
import Glibc
import LinuxSystem

/// Records of the clients of a chaos run for the harness, in memory that all processes map. Each word has one
/// writer.
final class ChaosSharedMemory {
    /// The words of a client.
    enum ClientWord: Int, CaseIterable {
        case pid, wakes, repeated, keepAliveRuns, keepAliveLate, connectionsLost
        /// The keep-alive timeout, and when the handler ran last or the timeout was set, in nanoseconds.
        case timeout, ranAt
        /// The client's generation: one more with each crash.
        case generation
        /// The generation that the harness asks for.
        case requestedGeneration
        /// How often the client has crashed itself, and how often the harness asks for that.
        case crashes, requestedCrashes
        /// How often another process has taken over from the client.
        case returns
    }

    /// The words of a socket, in this generation of its client.
    enum SocketWord: Int, CaseIterable {
        case received, wrong, ended
    }

    let descriptor: OwnedDescriptor
    let clients: Int
    let socketsPerClient: Int
    private let words: UnsafeMutablePointer<UInt64>

    private var length: Int {
        (clients * ClientWord.allCases.count + clients * socketsPerClient * SocketWord.allCases.count) * 8
    }

    init(clients: Int, socketsPerClient: Int, inherited: CInt? = nil) throws(LoadError) {
        let number = inherited ?? cfloors_memory("nightbell-chaos")
        guard number >= 0 else { throw LoadError(failed: "memfd_create") }
        descriptor = OwnedDescriptor(adopting: number)
        self.clients = clients
        self.socketsPerClient = socketsPerClient
        let sockets = clients * socketsPerClient
        let length = (clients * ClientWord.allCases.count + sockets * SocketWord.allCases.count) * 8
        if inherited == nil, ftruncate(number, off_t(length)) != 0 { throw LoadError(failed: "ftruncate") }
        let memory = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0)
        guard let memory, memory != MAP_FAILED else { throw LoadError(failed: "mmap") }
        words = memory.bindMemory(to: UInt64.self, capacity: length / 8)
    }

    deinit { munmap(words, length) }

    subscript(client: Int, word: ClientWord) -> UInt64 {
        get { words[client * ClientWord.allCases.count + word.rawValue] }
        set { words[client * ClientWord.allCases.count + word.rawValue] = newValue }
    }

    /// Sockets are numbered through all clients.
    subscript(socket socket: Int, word: SocketWord) -> UInt64 {
        get { words[start(socket) + word.rawValue] }
        set { words[start(socket) + word.rawValue] = newValue }
    }

    /// Whether the client's keep-alive handler should have run by now and has not; a run in progress is not
    /// overdue.
    func isKeepAliveOverdue(_ client: Int, at now: Int64) -> Bool {
        let since = now - Int64(self[client, .ranAt])
        return self[client, .timeout] > 0 && since > Int64(self[client, .timeout]) + keepAliveSlack
    }

    private func start(_ socket: Int) -> Int {
        clients * ClientWord.allCases.count + socket * SocketWord.allCases.count
    }

    /// Whether a client's sockets survive it, so that the supervisor launches it again: every other client.
    static func isRelaunchable(_ client: Int) -> Bool { client % 2 == 1 }

    /// Whether a client is woken by nothing but calls on one socket at a time: see `IsolatedCalls`. Two of
    /// four clients, one of which is relaunched.
    static func isIsolated(_ client: Int) -> Bool { client % 4 < 2 }

    /// The byte at this offset of a stream: each stream has its own, and none repeats soon.
    static func byte(_ socket: Int, _ generation: UInt64, _ offset: UInt64) -> UInt8 {
        let mixed =
            (offset &+ UInt64(socket) &* 0x9E37_79B9 &+ generation &* 0x85EB_CA6B) &* 0xC2B2_AE3D_27D4_EB4F
        return UInt8(truncatingIfNeeded: mixed >> 56)
    }
}
