import Glibc

/// Connections that have not yet sent their index. A silent one delays no other.
final class PendingHandshakes {
    /// A handshake is the index of the connecting sleeper.
    static let length = MemoryLayout<UInt64>.size

    private var silent: [CInt] = []

    deinit { for socket in silent { close(socket) } }

    var isEmpty: Bool { silent.isEmpty }

    func await(_ socket: CInt) { silent.append(socket) }

    /// A connection with a complete handshake, if any.
    func next() -> (index: UInt64, socket: CInt)? {
        for place in silent.indices.reversed() {
            let socket = silent[place]
            var index: UInt64 = .max
            let count = recv(socket, &index, Self.length, CInt(MSG_DONTWAIT | MSG_PEEK))
            if count == Self.length {
                // Takes the bytes that were only peeked at.
                recv(socket, &index, Self.length, CInt(MSG_DONTWAIT))
                silent.remove(at: place)
                return (index, socket)
            }
            if count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) {
                close(socket)
                silent.remove(at: place)
            }
        }
        return nil
    }
}
