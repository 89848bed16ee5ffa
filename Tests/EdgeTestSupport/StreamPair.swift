import Glibc
package import LinuxSystem

/// A connected pair of streams; the far end is the peer.
package final class StreamPair {
    package let near: OwnedDescriptor
    private var far: OwnedDescriptor?

    package init() throws {
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        _ = try systemCall("socketpair") { socketpair(AF_UNIX, type, 0, &ends) }
        near = OwnedDescriptor(adopting: ends[0])
        far = OwnedDescriptor(adopting: ends[1])
    }

    package var rawValue: CInt { near.rawValue }

    package func send() { precondition(write(far?.rawValue ?? -1, "x", 1) == 1) }
    package func sendUrgent() {
        precondition(Glibc.send(far?.rawValue ?? -1, "!", 1, CInt(MSG_OOB)) == 1)
    }
    package func endOutput() { precondition(shutdown(far?.rawValue ?? -1, CInt(SHUT_WR)) == 0) }
    package func close() { far = nil }

    package func drain() {
        var bytes = [UInt8](repeating: 0, count: 16)
        _ = recv(near.rawValue, &bytes, bytes.count, CInt(MSG_DONTWAIT))
    }
}
