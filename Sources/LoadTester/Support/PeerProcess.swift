import CFloors
import Glibc
import LinuxSystem

/// A request to a peer process; a packet holds an array of them.
struct PeerRequest {
    enum Kind: UInt32 {
        /// Send a packet to a sleeper.
        case call
        /// Call a phone.
        case callPhone
        /// Wait for a phone's answer, and reply with its latency.
        case answer
        /// Reply with the number of connections.
        case count
        /// Reply when all earlier requests are done.
        case report
    }

    private var kindNumber: UInt32
    private var indexNumber: UInt32 = 0
    var number: UInt64 = 0
    var milliseconds: Int64 = 0

    init(_ kind: Kind) { kindNumber = kind.rawValue }

    static func call(_ index: Int, sequence: UInt64) -> PeerRequest { PeerRequest(.call, index, sequence) }
    static func callPhone(_ index: Int, number: UInt64) -> PeerRequest {
        PeerRequest(.callPhone, index, number)
    }
    static func answer(_ index: Int, number: UInt64, within milliseconds: CInt) -> PeerRequest {
        var request = PeerRequest(.answer, index, number)
        request.milliseconds = Int64(milliseconds)
        return request
    }

    private init(_ kind: Kind, _ index: Int, _ number: UInt64) {
        (kindNumber, indexNumber, self.number) = (kind.rawValue, UInt32(index), number)
    }

    var kind: Kind? { Kind(rawValue: kindNumber) }
    var index: Int { Int(indexNumber) }

    /// The most requests in a packet: they fit whatever the kernel's limit of a socket's buffer is.
    static let mostInPacket = 1_024
}

/// A process that holds peer sockets and sends on request. The harness does not wait for it while it
/// measures: each packet carries the time at which it was sent.
final class PeerProcess {
    private(set) var endpoint = ""
    private let control: OwnedDescriptor
    private let process: ChildProcess
    private let runDirectory: RunDirectory

    init(_ runDirectory: RunDirectory, _ transport: Transport, slots count: Int, path: String)
        throws(LoadError)
    {
        self.runDirectory = runDirectory
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw LoadError(failed: "socketpair") }
        control = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])
        process = try runDirectory.start(
            .peers, [transport.rawValue, "\(count)", path], descriptors: [theirs.rawValue])
        theirs.close()
        var bytes = [UInt8](repeating: 0, count: 256)
        guard try isReadable(within: .seconds(20)) else { throw .timedOut("a peer process") }
        let length = recv(control.rawValue, &bytes, bytes.count, 0)
        guard length > 0 else { throw try exitError() }
        endpoint = String(decoding: bytes[..<length], as: UTF8.self)
    }

    func requireRunning() throws(LoadError) {
        do throws(LoadError) {
            try process.requireRunning()
        } catch {
            throw .supervisor("\(error): \(runDirectory.lastLines(of: .peers))")
        }
    }

    /// Sends requests without waiting for them to be done.
    func submit(_ requests: [PeerRequest]) throws(LoadError) {
        var rest = requests[...]
        while !rest.isEmpty {
            let part = Array(rest.prefix(PeerRequest.mostInPacket))
            rest = rest.dropFirst(part.count)
            let length = part.count * MemoryLayout<PeerRequest>.stride
            while send(control.rawValue, part, length, CInt(MSG_NOSIGNAL)) != length {
                guard errno == EINTR else { throw try exitError() }
                try pause(nanoseconds: 0)
            }
        }
    }

    func waitUntilDone() throws(LoadError) { _ = try ask(PeerRequest(.report)) }

    func connected() throws(LoadError) -> Int { Int(try ask(PeerRequest(.count))) }

    /// See `PeerSockets.answer`.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws(LoadError) -> Int64? {
        let answer = try ask(.answer(index, number: number, within: milliseconds))
        return answer == .min ? nil : answer
    }

    private func ask(_ request: PeerRequest) throws(LoadError) -> Int64 {
        try submit([request])
        var answer: Int64 = 0
        let size = MemoryLayout<Int64>.size
        guard try isReadable(within: .seconds(60)) else { throw .timedOut("a peer process") }
        if recv(control.rawValue, &answer, size, 0) == size { return answer }
        throw try exitError()
    }

    /// The error for a process that has closed its end, and so ends or has ended.
    private func exitError() throws(LoadError) -> LoadError {
        let deadline = monotonicNow() + 1_000_000_000
        while process.isRunning, monotonicNow() < deadline { try pause(nanoseconds: 1_000_000) }
        try requireRunning()
        return .timedOut("the end of a peer process")
    }

    private func isReadable(within limit: Duration) throws(LoadError) -> Bool {
        let deadline = monotonicNow() + limit.wholeNanoseconds
        var waiting = pollfd(fd: control.rawValue, events: Int16(POLLIN), revents: 0)
        repeat {
            if poll(&waiting, 1, 1_000) > 0 { return true }
            // The user may have interrupted the run.
            try pause(nanoseconds: 0)
        } while monotonicNow() < deadline
        return false
    }
}
