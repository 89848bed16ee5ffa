import CFloors
import CPhone
import Glibc
import LinuxSystem

/// The peer sockets that callers send from, in the process that holds them.
final class PeerSockets {
    private let transport: Transport
    /// The endpoint for `Transport.connect`.
    let endpoint: String
    private let listener: OwnedDescriptor
    private var sockets: [CInt]
    private var addresses: [sockaddr_in]
    private var calledAt: [Int64]
    private let handshakes = PendingHandshakes()
    private(set) var connected = 0

    /// - Parameter count: sleepers that connect have indices below it.
    init(_ transport: Transport, slots count: Int, path: String) throws(LoadError) {
        self.transport = transport
        listener = try transport.makeSocket()
        endpoint = try transport.bind(listener.rawValue, transport == .unix ? path : "0")
        if transport.isStream {
            guard listen(listener.rawValue, 4_096) == 0 else { throw LoadError(failed: "listen") }
        }
        if transport == .unix { chmod(endpoint, 0o777) }
        guard fcntl(listener.rawValue, F_SETFL, O_NONBLOCK) == 0 else { throw LoadError(failed: "fcntl") }
        sockets = Array(repeating: -1, count: count)
        addresses = Array(repeating: sockaddr_in(), count: transport.isStream ? 0 : count)
        calledAt = Array(repeating: 0, count: count)
    }

    deinit { for socket in sockets where socket >= 0 && transport.isStream { close(socket) } }

    /// Readable when a connection is pending.
    var descriptor: CInt { listener.rawValue }
    /// Whether a connection has not sent its handshake yet.
    var hasPendingHandshakes: Bool { !handshakes.isEmpty }

    // MARK: Accepting

    /// Accepts pending connections.
    func acceptConnections() throws(LoadError) {
        guard transport.isStream else { return try acceptDatagramSenders() }
        while true {
            let socket = cfloors_accept(listener.rawValue)
            guard socket >= 0 else { break }
            handshakes.await(socket)
        }
        try requireNothingThere("accept")
        while let (index, socket) = handshakes.next() {
            try acceptConnections(index, socket)
            var yes: CInt = 1
            if transport == .tcp { setsockopt(socket, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, 4) }
        }
    }

    private func acceptDatagramSenders() throws(LoadError) {
        while true {
            var index: UInt64 = .max
            var address = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let received = withUnsafeMutableBytes(of: &address) {
                recvfrom(
                    listener.rawValue, &index, PendingHandshakes.length, 0,
                    $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
            }
            guard received == PendingHandshakes.length else { return try requireNothingThere("recvfrom") }
            try acceptConnections(index, listener.rawValue)
            addresses[Int(index)] = address
        }
    }

    private func acceptConnections(_ index: UInt64, _ socket: CInt) throws(LoadError) {
        guard index < sockets.count, sockets[Int(index)] == -1 else {
            throw .missing("a stranger has connected to the callers")
        }
        sockets[Int(index)] = socket
        connected += 1
    }

    private func requireNothingThere(_ call: String) throws(LoadError) {
        guard errno == EAGAIN || errno == EINTR else { throw LoadError(failed: call) }
    }

    // MARK: Sending

    /// Sends a packet, with the present time, to a sleeper.
    func call(_ index: Int, sequence: UInt64) throws(LoadError) {
        let code: CInt
        if transport.isStream {
            code = cfloors_send(sockets[index], sequence, nil, 0)
        } else {
            var address = addresses[index]
            code = cfloors_send(
                sockets[index], sequence, &address, UInt32(MemoryLayout<sockaddr_in>.size))
        }
        guard code == 0 else { throw LoadError("send to sleeper \(index)", code: code) }
    }

    /// Waits for a sleeper to send a packet back. Returns the time since it was sent, in nanoseconds; nil: it
    /// did not come in time.
    func echo(_ index: Int, sequence: UInt64, within milliseconds: CInt) throws(LoadError) -> Int64? {
        var packet = cfloors_packet()
        let size = MemoryLayout<cfloors_packet>.size
        repeat {
            guard !Poll.wait(sockets[index], for: .readable, timeoutMilliseconds: milliseconds).isEmpty else {
                return nil
            }
            guard recv(sockets[index], &packet, size, CInt(MSG_WAITALL)) == size else {
                throw LoadError(failed: "the echo of program \(index)")
            }
            // An echo of an earlier packet, which came too late for it.
        } while packet.sequence < sequence
        return monotonicNow() - packet.sent_at
    }

    /// Calls a phone, which will answer.
    func callPhone(_ index: Int, number: UInt64) throws(LoadError) {
        var call = cphone_call(number: number)
        calledAt[index] = monotonicNow()
        guard send(sockets[index], &call, MemoryLayout<cphone_call>.size, CInt(MSG_NOSIGNAL)) > 0 else {
            throw LoadError(failed: "call phone \(index)")
        }
    }

    /// Waits for the answer of a phone that was called. Returns the time from before the call was sent until
    /// after a process had read it, in nanoseconds; nil: no answer came in time.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws(LoadError) -> Int64? {
        var answer = cphone_answer()
        let size = MemoryLayout<cphone_answer>.size
        repeat {
            guard !Poll.wait(sockets[index], for: .readable, timeoutMilliseconds: milliseconds).isEmpty else {
                return nil
            }
            guard recv(sockets[index], &answer, size, CInt(MSG_WAITALL)) == size else {
                throw LoadError(failed: "the answer of phone \(index)")
            }
            // An answer to an earlier call, which came too late for it.
        } while answer.number < number
        return answer.number == number ? answer.read_at - calledAt[index] : nil
    }
}
