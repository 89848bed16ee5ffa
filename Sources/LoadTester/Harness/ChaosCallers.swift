import CFloors
import Glibc

/// The other ends of all sockets of a chaos run: endless streams, each with bytes of its own.
final class ChaosCallers {
    let transport: Transport
    private let listener: StreamListener
    private var sockets: [CInt]
    private(set) var sent: [UInt64]
    private var lives: [UInt64]
    private(set) var connected = 0
    /// Streams that ended though nobody has ended their client.
    private(set) var lost = 0
    private(set) var bytes: UInt64 = 0
    /// What clients of former lives have noted as wrong.
    private(set) var wrongBefore: UInt64 = 0
    private var greetings = Greetings()

    init(_ transport: Transport, sockets count: Int, directory: String) throws(LoadError) {
        self.transport = transport
        listener = try transport.makeListener(in: directory)
        sockets = Array(repeating: -1, count: count)
        sent = Array(repeating: 0, count: count)
        lives = Array(repeating: 0, count: count)
    }

    /// Where clients connect to.
    var place: String { listener.place }

    deinit { for socket in sockets where socket >= 0 { close(socket) } }

    /// Takes in whoever has connected: the sockets of a client in its present life.
    func takeIn(_ area: ChaosArea) throws(LoadError) {
        while let socket = try listener.accept() { greetings.await(socket) }
        while let (number, socket) = greetings.next() {
            let index = Int(number)
            guard number < UInt64(sockets.count) else {
                throw .missing("a stranger has connected to the callers")
            }
            if sockets[index] >= 0 { close(sockets[index]) } else { connected += 1 }
            sockets[index] = socket
            sent[index] = 0
            lives[index] = area[index / area.socketsPerClient, .life]
        }
    }

    /// Its client is about to be ended: nothing of it is expected any more.
    func letGo(_ client: Int, _ area: ChaosArea) {
        for index in client * area.socketsPerClient..<(client + 1) * area.socketsPerClient
        where sockets[index] >= 0 {
            close(sockets[index])
            sockets[index] = -1
            connected -= 1
        }
    }

    /// Its process is gone, and with it the only one who writes these words: the next life begins at none. What
    /// was wrong in this one stays known.
    func forget(_ client: Int, _ area: ChaosArea) {
        for index in client * area.socketsPerClient..<(client + 1) * area.socketsPerClient {
            wrongBefore += area[socket: index, .wrong]
            for word in ChaosArea.SocketWord.allCases { area[socket: index, word] = 0 }
        }
    }

    /// Of all lives.
    func wrongBytes(_ area: ChaosArea) -> UInt64 {
        sockets.indices.reduce(wrongBefore) { $0 + area[socket: $1, .wrong] }
    }

    func isConnected(_ index: Int) -> Bool { sockets[index] >= 0 }

    /// Says the next bytes of a stream, as many as there is room for.
    func speak(_ index: Int, _ count: Int) {
        guard sockets[index] >= 0 else { return }
        let bytes = (0..<UInt64(count)).map { ChaosArea.byte(index, lives[index], sent[index] + $0) }
        let written = send(sockets[index], bytes, count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL))
        if written > 0 {
            sent[index] += UInt64(written)
            self.bytes += UInt64(written)
        } else if written < 0, errno != EAGAIN, errno != EINTR {
            noteEnd(index)
        }
    }

    /// Looks whether a stream has ended: its client never says anything.
    func look(_ index: Int) {
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
