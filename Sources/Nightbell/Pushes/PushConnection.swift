import Glibc
import LinuxSystem
package import NightbellWire
import SwiftProtobuf
import Synchronization

/// A connection to the push service, which sends one request at a time and waits for its answer.
package final class PushConnection: Sendable {
    private struct Core: ~Copyable {
        let socket: SeqPacketSocket
        var buffer = PacketBuffer(capacity: 131_072)
        var lastNumber: UInt64 = 0
    }

    private let client: String
    private let user: UInt32?
    private let timeout: Int64
    private let core: Mutex<Core>

    /// - Parameters:
    ///   - user: the user of the client; nil: that of this process.
    ///   - timeout: for each answer, in nanoseconds.
    package init(
        path: String, client: String, user: UInt32? = nil, timeout: Int64
    ) throws(NightbellError) {
        guard !path.isEmpty else { throw NightbellError(.pushUnavailable, "") }
        self.client = client
        self.user = user
        self.timeout = timeout
        do throws(SystemError) {
            core = Mutex(Core(socket: try SeqPacketSocket.connect(path: path)))
        } catch {
            throw NightbellError(
                .pushUnavailable, "\(path): \(SystemError.message(for: error.code))", errorNumber: error.code)
        }
    }

    /// - Throws: ``NightbellError/Code/pushUnavailable`` if the service does not answer,
    ///   ``NightbellError/Code/pushRefused`` if it refuses.
    package func ask(
        _ body: WirePushRequest.OneOf_Body
    ) throws(NightbellError) -> WirePushAnswer.OneOf_Body? {
        // The others wait for their turn.
        try core.withLock { core throws(NightbellError) in try ask(body, &core) }
    }

    private func ask(
        _ body: WirePushRequest.OneOf_Body, _ core: inout Core
    ) throws(NightbellError) -> WirePushAnswer.OneOf_Body? {
        core.lastNumber += 1
        let number = core.lastNumber
        let request = WirePushRequest.with {
            $0.number = number
            $0.client = client
            if let user { $0.uid = user }
            $0.body = body
        }
        do {
            let deadline = BootClock.now() + timeout
            let bytes: [UInt8] = try request.serializedBytes()
            while try !core.socket.send(bytes) { try wait(.writable, core.socket, deadline) }
            while true {
                switch try core.socket.receive(into: &core.buffer) {
                case .wouldBlock: try wait(.readable, core.socket, deadline)
                case .end: throw NightbellError(.pushUnavailable, "it has ended the connection")
                case .packet(_, let isTruncated, _):
                    let answer = try WirePushAnswer(serializedBytes: core.buffer.bytes)
                    guard !isTruncated, answer.number == number else { continue }
                    guard case .refusal(let refusal)? = answer.body else { return answer.body }
                    throw NightbellError(.pushRefused, refusal.message)
                }
            }
        } catch let error as NightbellError {
            throw error
        } catch let error as SystemError {
            throw NightbellError(.pushUnavailable, error.description, errorNumber: error.code)
        } catch {
            throw NightbellError(.malformedAnswer, "a packet of the push service does not decode")
        }
    }

    private func wait(
        _ readiness: Readiness, _ socket: borrowing SeqPacketSocket, _ deadline: Int64
    ) throws(NightbellError) {
        let left = deadline - BootClock.now()
        guard left > 0 else { throw NightbellError(.pushUnavailable, "it does not answer") }
        _ = Poll.wait(
            socket.rawValue, for: readiness, timeoutMilliseconds: CInt(clamping: left / 1_000_000 + 1))
    }
}
