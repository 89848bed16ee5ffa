import CFloors
import Descriptors
import Glibc

/// What a peer process is told; a packet has a row of them.
struct PeerRequest {
    enum Kind: UInt32 {
        /// Send a packet to a sleeper.
        case call
        /// Call a phone.
        case ring
        /// Wait for a phone's answer, and tell how long it took.
        case answer
        /// Tell how many have connected.
        case count
        /// Tell when all that was asked before is done.
        case report
    }

    private var kindNumber: UInt32
    private var indexNumber: UInt32 = 0
    var number: UInt64 = 0
    var milliseconds: Int64 = 0

    init(_ kind: Kind) { kindNumber = kind.rawValue }

    static func call(_ index: Int, sequence: UInt64) -> PeerRequest { PeerRequest(.call, index, sequence) }
    static func ring(_ index: Int, number: UInt64) -> PeerRequest { PeerRequest(.ring, index, number) }
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

    /// As many fit into a packet, whatever the kernel's limit of a socket's buffer is.
    static let mostInPacket = 1_024
}

/// A process that holds the other ends of sockets and speaks when it is told to. It is told by packets, and is not
/// waited for where something is being measured: what it sends carries the time at which it was sent.
final class PeerProcess {
    private(set) var place = ""
    private let control: OwnedDescriptor
    private let process: ChildProcess
    private let bench: Workbench

    init(_ bench: Workbench, _ transport: Transport, slots count: Int, path: String) throws(LoadError) {
        self.bench = bench
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw LoadError(failed: "socketpair") }
        control = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])
        process = try bench.start(
            .peers, [transport.rawValue, "\(count)", path], descriptors: [theirs.rawValue])
        theirs.close()
        var bytes = [UInt8](repeating: 0, count: 256)
        guard try isReadable(within: .seconds(20)) else { throw .timedOut("a peer process") }
        let length = recv(control.rawValue, &bytes, bytes.count, 0)
        guard length > 0 else { throw try whyItEnded() }
        place = String(decoding: bytes[..<length], as: UTF8.self)
    }

    func requireRunning() throws(LoadError) {
        do throws(LoadError) {
            try process.requireRunning()
        } catch {
            throw .supervisor("\(error): \(bench.lastLines(of: .peers))")
        }
    }

    /// Has it do this, without waiting for it.
    func tell(_ requests: [PeerRequest]) throws(LoadError) {
        var rest = requests[...]
        while !rest.isEmpty {
            let part = Array(rest.prefix(PeerRequest.mostInPacket))
            rest = rest.dropFirst(part.count)
            let length = part.count * MemoryLayout<PeerRequest>.stride
            while send(control.rawValue, part, length, CInt(MSG_NOSIGNAL)) != length {
                guard errno == EINTR else { throw try whyItEnded() }
                try pause(nanoseconds: 0)
            }
        }
    }

    func waitUntilDone() throws(LoadError) { _ = try ask(PeerRequest(.report)) }

    func connected() throws(LoadError) -> Int { Int(try ask(PeerRequest(.count))) }

    /// See `OtherEnds.answer`.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws(LoadError) -> Int64? {
        let answer = try ask(.answer(index, number: number, within: milliseconds))
        return answer == .min ? nil : answer
    }

    private func ask(_ request: PeerRequest) throws(LoadError) -> Int64 {
        try tell([request])
        var answer: Int64 = 0
        let size = MemoryLayout<Int64>.size
        guard try isReadable(within: .seconds(60)) else { throw .timedOut("a peer process") }
        if recv(control.rawValue, &answer, size, 0) == size { return answer }
        throw try whyItEnded()
    }

    /// It has closed its end, and so it ends or has ended.
    private func whyItEnded() throws(LoadError) -> LoadError {
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
            // The user may want it to end.
            try pause(nanoseconds: 0)
        } while monotonicNow() < deadline
        return false
    }
}
