import Glibc

/// Calls with a loss that nothing else hides: they go to clients without a keep-alive, on one socket of a
/// client at a time, with a rest in between in which the client falls asleep. Nothing else makes the client
/// read, so that an unread call is a lost wake.
struct IsolatedCalls {
    private struct Call {
        let socket: Int
        /// The length of the stream once all of the call is read.
        let end: UInt64
        let began: Int64
        var isLost = false
    }

    private let clients: Int
    private let socketsPerClient: Int
    /// The last call of each client.
    private var calls: [Call?]
    /// When each client may be called again.
    private var restsUntil: [Int64]
    private(set) var count: UInt64 = 0
    private(set) var lost = 0

    init(_ sharedMemory: ChaosSharedMemory) {
        clients = sharedMemory.clients
        socketsPerClient = sharedMemory.socketsPerClient
        calls = Array(repeating: nil, count: clients)
        restsUntil = Array(repeating: 0, count: clients)
    }

    /// Whether a client may be called: it has read the last call, and rested since. A client that has lost a
    /// call would lose the next as well, so it is not called again in this generation.
    mutating func isFree(
        _ client: Int, _ callers: ChaosCallers, _ sharedMemory: ChaosSharedMemory, at now: Int64, rest: Int64
    ) -> Bool {
        if let call = calls[client] {
            guard !call.isLost, Self.isRead(call, callers, sharedMemory) else { return false }
            calls[client] = nil
            restsUntil[client] = now + rest
        }
        return now >= restsUntil[client]
    }

    /// Sends bytes to a client that is free.
    mutating func call(_ socket: Int, _ length: Int, _ callers: ChaosCallers, at now: Int64) {
        let before = callers.sent[socket]
        callers.sendBytes(socket, length)
        // Nothing was sent if its client is about to begin a new generation.
        guard callers.sent[socket] > before else { return }
        calls[socket / socketsPerClient] = Call(socket: socket, end: callers.sent[socket], began: now)
        count += 1
    }

    /// Drops the call of a client: nothing is expected of this generation any more.
    mutating func cancel(_ client: Int) { calls[client] = nil }

    /// Whether a call that began before this moment is still unread.
    func isAnyUnread(from moment: Int64, _ callers: ChaosCallers, _ sharedMemory: ChaosSharedMemory) -> Bool {
        calls.contains { call in
            guard let call else { return false }
            return call.began < moment && !call.isLost && !Self.isRead(call, callers, sharedMemory)
        }
    }

    /// Counts calls as lost that began before this moment and are still unread.
    mutating func giveUp(from moment: Int64, _ callers: ChaosCallers, _ sharedMemory: ChaosSharedMemory) {
        for client in 0..<clients {
            guard let call = calls[client], call.began < moment, !call.isLost,
                !Self.isRead(call, callers, sharedMemory)
            else { continue }
            calls[client]?.isLost = true
            lost += 1
        }
    }

    /// Whether the unread bytes of a socket are already counted as lost.
    func hasLost(_ socket: Int) -> Bool {
        guard let call = calls[socket / socketsPerClient] else { return false }
        return call.isLost && call.socket == socket
    }

    func hasLostAny(_ client: Int) -> Bool { calls[client]?.isLost ?? false }

    /// A call on a connection that has ended is no lost wake: it is a lost connection.
    private static func isRead(_ call: Call, _ callers: ChaosCallers, _ sharedMemory: ChaosSharedMemory)
        -> Bool
    {
        !callers.isConnected(call.socket) || sharedMemory[socket: call.socket, .received] >= call.end
    }
}
