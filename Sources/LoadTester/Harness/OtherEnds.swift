import CFloors
import CPhone
import Descriptors
import Glibc

/// The other ends of sockets, which callers speak from, in the process that holds them.
final class OtherEnds {
    private let transport: Transport
    /// For `Transport.connect`.
    let place: String
    private let listener: OwnedDescriptor
    private var sockets: [CInt]
    private var addresses: [sockaddr_in]
    private var rangAt: [Int64]
    private let greetings = Greetings()
    private(set) var connected = 0

    /// - Parameter count: numbers of those who connect are below it.
    init(_ transport: Transport, slots count: Int, path: String) throws(LoadError) {
        self.transport = transport
        listener = try transport.makeSocket()
        place = try transport.bind(listener.rawValue, transport == .unix ? path : "0")
        if transport.isStream {
            guard listen(listener.rawValue, 4_096) == 0 else { throw LoadError(failed: "listen") }
        }
        if transport == .unix { chmod(place, 0o777) }
        guard fcntl(listener.rawValue, F_SETFL, O_NONBLOCK) == 0 else { throw LoadError(failed: "fcntl") }
        sockets = Array(repeating: -1, count: count)
        addresses = Array(repeating: sockaddr_in(), count: transport.isStream ? 0 : count)
        rangAt = Array(repeating: 0, count: count)
    }

    deinit { for socket in sockets where socket >= 0 && transport.isStream { close(socket) } }

    /// Ready when somebody connects.
    var descriptor: CInt { listener.rawValue }
    /// Whether somebody has connected who has not said yet who it is.
    var isExpectingGreetings: Bool { !greetings.isEmpty }

    // MARK: Those who connect

    /// Takes in whoever has connected.
    func takeIn() throws(LoadError) {
        guard transport.isStream else { return try takeInDatagrams() }
        while true {
            let socket = cfloors_accept(listener.rawValue)
            guard socket >= 0 else { break }
            greetings.await(socket)
        }
        try requireNothingThere("accept")
        while let (index, socket) = greetings.next() {
            try takeIn(index, socket)
            var yes: CInt = 1
            if transport == .tcp { setsockopt(socket, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, 4) }
        }
    }

    private func takeInDatagrams() throws(LoadError) {
        while true {
            var index: UInt64 = .max
            var address = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let received = withUnsafeMutableBytes(of: &address) {
                recvfrom(
                    listener.rawValue, &index, Greetings.length, 0,
                    $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
            }
            guard received == Greetings.length else { return try requireNothingThere("recvfrom") }
            try takeIn(index, listener.rawValue)
            addresses[Int(index)] = address
        }
    }

    private func takeIn(_ index: UInt64, _ socket: CInt) throws(LoadError) {
        guard index < sockets.count, sockets[Int(index)] == -1 else {
            throw .missing("a stranger has connected to the callers")
        }
        sockets[Int(index)] = socket
        connected += 1
    }

    private func requireNothingThere(_ call: String) throws(LoadError) {
        guard errno == EAGAIN || errno == EINTR else { throw LoadError(failed: call) }
    }

    // MARK: Speaking

    /// Sends a packet to a sleeper; its time is that of this moment.
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

    /// Calls a phone, which will answer.
    func ring(_ index: Int, number: UInt64) throws(LoadError) {
        var call = cphone_call(number: number)
        rangAt[index] = monotonicNow()
        guard send(sockets[index], &call, MemoryLayout<cphone_call>.size, CInt(MSG_NOSIGNAL)) > 0 else {
            throw LoadError(failed: "call phone \(index)")
        }
    }

    /// Waits for the answer of a phone that was called. From the moment before the call was sent to the moment after
    /// a process had read it, in nanoseconds; nil: no answer came in time.
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
            // One to an earlier call came too late for it.
        } while answer.number < number
        return answer.number == number ? answer.read_at - rangAt[index] : nil
    }
}
