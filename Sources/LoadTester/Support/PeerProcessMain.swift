import CFloors
import Glibc
import LinuxSystem

/// The main function of a process that holds peer sockets for the harness. Any failure ends it, which the
/// harness notices.
///
/// Inherits the socket for requests as descriptor 3; ends with it.
struct PeerProcessMain {
    private let control: CInt = 3
    private let ends: PeerSockets

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 3, let transport = Transport(rawValue: arguments[0]),
            let count = Int(arguments[1])
        else { throw .missing("arguments") }
        _ = cfloors_raise_descriptor_limit()
        ends = try PeerSockets(transport, slots: count, path: arguments[2])
    }

    func run() throws {
        let endpoint = Array(ends.endpoint.utf8)
        guard send(control, endpoint, endpoint.count, CInt(MSG_NOSIGNAL)) == endpoint.count else {
            throw LoadError(failed: "send")
        }
        var requests = [PeerRequest](repeating: PeerRequest(.report), count: PeerRequest.mostInPacket)
        var waiting = [control, ends.descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while true {
            let ready = poll(&waiting, 2, ends.hasPendingHandshakes ? 2 : -1)
            guard ready >= 0 else {
                guard errno == EINTR else { throw LoadError(failed: "poll") }
                continue
            }
            if waiting[0].revents != 0 {
                let length = requests.withUnsafeMutableBytes { recv(control, $0.baseAddress, $0.count, 0) }
                guard length > 0 else { return }
                for request in requests[..<(length / MemoryLayout<PeerRequest>.stride)] {
                    try perform(request)
                }
            }
            if waiting[1].revents != 0 || ends.hasPendingHandshakes { try ends.acceptConnections() }
        }
    }

    private func perform(_ request: PeerRequest) throws {
        switch request.kind {
        case .call: try ends.call(request.index, sequence: request.number)
        case .callPhone: try ends.callPhone(request.index, number: request.number)
        case .answer:
            let answer = try ends.answer(
                request.index, number: request.number, within: CInt(request.milliseconds))
            try reply(answer ?? .min)
        case .count:
            try ends.acceptConnections()
            try reply(Int64(ends.connected))
        case .report: try reply(0)
        case nil: throw LoadError.missing("a request that is none")
        }
    }

    private func reply(_ answer: Int64) throws(LoadError) {
        var answer = answer
        guard send(control, &answer, MemoryLayout<Int64>.size, CInt(MSG_NOSIGNAL)) > 0 else {
            throw LoadError(failed: "send")
        }
    }
}
