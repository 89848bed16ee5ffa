import Glibc

/// Calls that nothing else makes up for: to clients without a keep-alive, on one socket of each at a time, with a
/// rest in between in which the client falls asleep. What is said in one is only read because of it, so that one
/// that is not read is a wake that was lost.
struct LoneCalls {
    private struct Call {
        let socket: Int
        /// Where its stream is when all of it was read.
        let end: UInt64
        let began: Int64
        var isLost = false
    }

    private let clients: Int
    private let socketsPerClient: Int
    /// One for each client.
    private var calls: [Call?]
    /// Until then a client is left alone.
    private var restsUntil: [Int64]
    private(set) var count: UInt64 = 0
    private(set) var lost = 0

    init(_ area: ChaosArea) {
        clients = area.clients
        socketsPerClient = area.socketsPerClient
        calls = Array(repeating: nil, count: clients)
        restsUntil = Array(repeating: 0, count: clients)
    }

    /// Whether a client may be called: it has read the last call, and rested since. Who has lost one would lose the
    /// next as well, and is not called again in this life.
    mutating func isFree(
        _ client: Int, _ callers: ChaosCallers, _ area: ChaosArea, at now: Int64, rest: Int64
    ) -> Bool {
        if let call = calls[client] {
            guard !call.isLost, Self.isRead(call, callers, area) else { return false }
            calls[client] = nil
            restsUntil[client] = now + rest
        }
        return now >= restsUntil[client]
    }

    /// Says something to a client that is free.
    mutating func call(_ socket: Int, _ length: Int, _ callers: ChaosCallers, at now: Int64) {
        let before = callers.sent[socket]
        callers.speak(socket, length)
        // Its client may be about to begin a new life.
        guard callers.sent[socket] > before else { return }
        calls[socket / socketsPerClient] = Call(socket: socket, end: callers.sent[socket], began: now)
        count += 1
    }

    /// Nothing is expected of this life of a client any more.
    mutating func forget(_ client: Int) { calls[client] = nil }

    /// Whether a call that began before this moment was not read yet.
    func isAnyUnread(from moment: Int64, _ callers: ChaosCallers, _ area: ChaosArea) -> Bool {
        calls.contains { call in
            guard let call else { return false }
            return call.began < moment && !call.isLost && !Self.isRead(call, callers, area)
        }
    }

    /// Gives up those that began before this moment and were not read.
    mutating func giveUp(from moment: Int64, _ callers: ChaosCallers, _ area: ChaosArea) {
        for client in 0..<clients {
            guard let call = calls[client], call.began < moment, !call.isLost,
                !Self.isRead(call, callers, area)
            else { continue }
            calls[client]?.isLost = true
            lost += 1
        }
    }

    /// Whether what a socket has not heard is known to be lost.
    func hasLost(_ socket: Int) -> Bool {
        guard let call = calls[socket / socketsPerClient] else { return false }
        return call.isLost && call.socket == socket
    }

    func hasLostAny(_ client: Int) -> Bool { calls[client]?.isLost ?? false }

    /// What was said on a connection that has ended is no wake that was lost: the connection was.
    private static func isRead(_ call: Call, _ callers: ChaosCallers, _ area: ChaosArea) -> Bool {
        !callers.isConnected(call.socket) || area[socket: call.socket, .received] >= call.end
    }
}
