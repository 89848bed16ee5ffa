import CFloors
import Glibc

/// The peer sockets of a chaos run: endless streams, each with bytes of its own.
final class ChaosCallers {
    let transport: Transport
    private let listener: StreamListener
    private var sockets: [CInt]
    private(set) var sent: [UInt64]
    private var generations: [UInt64]
    private(set) var connected = 0
    /// Streams that ended although the harness did not end their client.
    private(set) var lost = 0
    private(set) var bytes: UInt64 = 0
    /// Wrong bytes that clients of former generations recorded.
    private(set) var wrongBefore: UInt64 = 0
    private var handshakes = PendingHandshakes()

    init(_ transport: Transport, sockets count: Int, directory: String) throws(LoadError) {
        self.transport = transport
        listener = try transport.makeListener(in: directory)
        sockets = Array(repeating: -1, count: count)
        sent = Array(repeating: 0, count: count)
        generations = Array(repeating: 0, count: count)
    }

    /// The endpoint that clients connect to.
    var endpoint: String { listener.endpoint }

    deinit { for socket in sockets where socket >= 0 { close(socket) } }

    /// Accepts connections: the sockets of a client in its present generation.
    func acceptConnections(_ sharedMemory: ChaosSharedMemory) throws(LoadError) {
        while let socket = try listener.accept() { handshakes.await(socket) }
        while let (number, socket) = handshakes.next() {
            let index = Int(number)
            guard number < UInt64(sockets.count) else {
                throw .missing("a stranger has connected to the callers")
            }
            if sockets[index] >= 0 { close(sockets[index]) } else { connected += 1 }
            sockets[index] = socket
            sent[index] = 0
            generations[index] = sharedMemory[index / sharedMemory.socketsPerClient, .generation]
        }
    }

    /// Closes the sockets of a client that is about to be killed: nothing is expected of it any more.
    func disconnect(_ client: Int, _ sharedMemory: ChaosSharedMemory) {
        for index in client * sharedMemory.socketsPerClient..<(client + 1) * sharedMemory.socketsPerClient
        where sockets[index] >= 0 {
            close(sockets[index])
            sockets[index] = -1
            connected -= 1
        }
    }

    /// Resets the words of a client's sockets. Its process, their only writer, has ended, and the next
    /// generation begins at zero; wrong bytes stay counted.
    func resetCounters(_ client: Int, _ sharedMemory: ChaosSharedMemory) {
        for index in client * sharedMemory.socketsPerClient..<(client + 1) * sharedMemory.socketsPerClient {
            wrongBefore += sharedMemory[socket: index, .wrong]
            for word in ChaosSharedMemory.SocketWord.allCases { sharedMemory[socket: index, word] = 0 }
        }
    }

    /// The wrong bytes of all generations.
    func wrongBytes(_ sharedMemory: ChaosSharedMemory) -> UInt64 {
        sockets.indices.reduce(wrongBefore) { $0 + sharedMemory[socket: $1, .wrong] }
    }

    func isConnected(_ index: Int) -> Bool { sockets[index] >= 0 }

    /// Sends the next bytes of a stream, as many as its buffer takes.
    func sendBytes(_ index: Int, _ count: Int) {
        guard sockets[index] >= 0 else { return }
        let bytes = (0..<UInt64(count)).map {
            ChaosSharedMemory.byte(index, generations[index], sent[index] + $0)
        }
        let written = send(sockets[index], bytes, count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL))
        if written > 0 {
            sent[index] += UInt64(written)
            self.bytes += UInt64(written)
        } else if written < 0, errno != EAGAIN, errno != EINTR {
            noteEnd(index)
        }
    }

    /// Checks whether a stream has ended: its client never sends anything.
    func checkForEnd(_ index: Int) {
        guard sockets[index] >= 0 else { return }
        var byte: UInt8 = 0
        let count = recv(sockets[index], &byte, 1, CInt(MSG_DONTWAIT | MSG_PEEK))
        if count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) { noteEnd(index) }
    }

    private func noteEnd(_ index: Int) {
        lost += 1
        close(sockets[index])
        sockets[index] = -1
        connected -= 1
    }
}
