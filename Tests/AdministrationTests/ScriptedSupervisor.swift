import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Synchronization

/// Listens like a supervisor and answers as scripted by the test, on a thread of its own.
final class ScriptedSupervisor: Sendable {
    /// The answer to a message; nil closes the connection.
    typealias Script = @Sendable (WireClientMessage) -> [WireSupervisorMessage]?

    let path: String
    let received = Mutex<[WireClientMessage]>([])
    private let script: Script
    private let stop: EventDescriptor

    init(_ script: @escaping Script) throws {
        path = "/tmp/nightbell-administration-\(getpid())-\(UInt64.random(in: 0 ... .max))"
        self.script = script
        stop = try EventDescriptor()
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600).takeDescriptor().take()
        let context = Unmanaged.passRetained(Context(supervisor: self, listener: listener))
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { context in
                if let context { Unmanaged<Context>.fromOpaque(context).takeRetainedValue().serve() }
                return nil
            }, context.toOpaque())
        guard code == 0 else { throw SystemError(code: code, call: "pthread_create") }
        pthread_detach(thread)
    }

    /// Ends the thread and closes every connection.
    func end() throws {
        unlink(path)
        try stop.signal()
    }

    private final class Context: Sendable {
        let supervisor: ScriptedSupervisor
        let listener: CInt

        init(supervisor: ScriptedSupervisor, listener: CInt) {
            self.supervisor = supervisor
            self.listener = listener
        }

        /// The tests need only one connection at a time.
        func serve() {
            let socket = SeqPacketSocket(adopting: OwnedDescriptor(adopting: listener))
            do {
                while supervisor.waits(for: socket.rawValue) {
                    guard let connection = try socket.accept() else { continue }
                    try supervisor.converse(connection)
                }
            } catch {
                fatalError("the scripted supervisor failed: \(error)")
            }
        }
    }

    /// False when it is time to end.
    private func waits(for descriptor: CInt) -> Bool {
        var entries = [
            pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0),
            pollfd(fd: stop.rawValue, events: CShort(POLLIN), revents: 0),
        ]
        while poll(&entries, 2, -1) < 0 {}
        return entries[1].revents == 0
    }

    private func converse(_ connection: borrowing SeqPacketSocket) throws {
        var buffer = PacketBuffer()
        while waits(for: connection.rawValue) {
            switch try connection.receive(into: &buffer) {
            case .wouldBlock: continue
            case .end: return
            case .packet:
                let message = try WireClientMessage(serializedBytes: buffer.bytes)
                received.withLock { $0.append(message) }
                guard let answers = script(message) else { return }
                for answer in answers {
                    let bytes: [UInt8] = try answer.serializedBytes()
                    guard try delivers(bytes, connection) else { return }
                }
            }
        }
    }

    /// False when the other end is closed.
    private func delivers(
        _ bytes: [UInt8], _ connection: borrowing SeqPacketSocket
    ) throws(SystemError) -> Bool {
        do {
            return try connection.send(bytes)
        } catch {
            if error.code == EPIPE { return false }
            throw error
        }
    }
}

func answer(
    _ request: WireClientMessage, _ body: WireSupervisorMessage.OneOf_Body
) -> WireSupervisorMessage {
    var message = WireSupervisorMessage()
    message.request = request.request
    message.body = body
    return message
}

func refusal(_ code: WireErrorCode, _ text: String) -> WireSupervisorMessage.OneOf_Body {
    var error = WireError()
    error.code = code
    error.message = text
    return .error(error)
}
