import Glibc

/// Connections that have not said yet whose they are. One that says nothing keeps nobody waiting.
final class Greetings {
    /// A greeting is the number of whoever connects.
    static let length = MemoryLayout<UInt64>.size

    private var silent: [CInt] = []

    deinit { for socket in silent { close(socket) } }

    var isEmpty: Bool { silent.isEmpty }

    func await(_ socket: CInt) { silent.append(socket) }

    /// One that has said it in the meantime.
    func next() -> (index: UInt64, socket: CInt)? {
        for place in silent.indices.reversed() {
            let socket = silent[place]
            var index: UInt64 = .max
            let count = recv(socket, &index, Self.length, CInt(MSG_DONTWAIT | MSG_PEEK))
            if count == Self.length {
                // The same bytes again, taken this time.
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
