import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// A connection that sends one request at a time and waits for its answer.
struct AdministrationConnection: ~Copyable {
    enum Arrival {
        case message(WireSupervisorMessage)
        case nothing
        case end
    }

    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: 131_072)
    var requestTimeout: Duration
    private var lastRequest: UInt64 = 0

    var rawValue: CInt { socket.rawValue }

    init(path: String, requestTimeout: Duration) throws(NightbellError) {
        self.requestTimeout = requestTimeout
        let deadline = Deadline(requestTimeout)
        while true {
            do {
                socket = try SeqPacketSocket.connect(path: path)
                return
            } catch  where error.code == EAGAIN && !deadline.isOver {
                // The listen queue is full: the supervisor is there, but busy. No descriptor signals that
                // there is room, so retry soon.
                usleep(5_000)
            } catch {
                throw NightbellError(
                    .cannotConnect, "\(path): \(SystemError.message(for: error.code))",
                    errorNumber: error.code)
            }
        }
    }

    /// Sends a request and returns its number.
    mutating func send(_ body: WireClientMessage.OneOf_Body) throws(NightbellError) -> UInt64 {
        lastRequest += 1
        var message = WireClientMessage()
        message.request = lastRequest
        message.body = body
        let deadline = Deadline(requestTimeout)
        do {
            let bytes: [UInt8] = try message.serializedBytes()
            while try !socket.send(bytes) {
                let readiness = Poll.wait(
                    rawValue, for: .writable, timeoutMilliseconds: deadline.remainingMilliseconds)
                if readiness.isEmpty { throw NightbellError(.requestTimedOut, "it does not read") }
            }
        } catch let error as NightbellError {
            throw error
        } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
            // The supervisor's reason for closing the connection may still wait to be read.
            return lastRequest
        } catch let error as SystemError {
            throw NightbellError(.system, error.description, errorNumber: error.code)
        } catch {
            throw NightbellError(.invalidArgument, "\(error)")
        }
        return lastRequest
    }

    /// Waits for the next message that answers this request. Messages that the supervisor sends unasked are
    /// skipped, except an error, which ends the connection.
    mutating func answer(to request: UInt64) throws(NightbellError) -> WireSupervisorMessage.OneOf_Body? {
        let deadline = Deadline(requestTimeout)
        while true {
            switch try receive() {
            case .message(let message):
                if case .error(let error)? = message.body, message.request == request || message.request == 0
                {
                    throw NightbellError(error)
                }
                if message.request == request { return message.body }
            case .nothing:
                guard !deadline.isOver else { throw NightbellError(.requestTimedOut, "") }
                _ = Poll.wait(
                    rawValue, for: .readable, timeoutMilliseconds: deadline.remainingMilliseconds)
            case .end:
                throw NightbellError(.connectionLost, "before it answered")
            }
        }
    }

    mutating func ask(
        _ body: WireClientMessage.OneOf_Body
    ) throws(NightbellError) -> WireSupervisorMessage.OneOf_Body? {
        try answer(to: try send(body))
    }

    mutating func expectDone(_ body: WireClientMessage.OneOf_Body, _ name: String) throws(NightbellError) {
        guard case .done? = try ask(body) else {
            throw NightbellError(.malformedAnswer, "the answer to \(name) is of another kind")
        }
    }

    /// Receives one message if one has arrived.
    mutating func receive() throws(NightbellError) -> Arrival {
        do {
            switch try socket.receive(into: &buffer) {
            case .wouldBlock: return .nothing
            case .end: return .end
            case .packet(_, truncated: true, _):
                throw NightbellError(.malformedAnswer, "a packet is longer than 131,072 bytes")
            case .packet:
                return .message(try WireSupervisorMessage(serializedBytes: buffer.bytes))
            }
        } catch let error as NightbellError {
            throw error
        } catch let error as SystemError {
            throw NightbellError(.connectionLost, error.description, errorNumber: error.code)
        } catch {
            throw NightbellError(.malformedAnswer, "a packet does not decode")
        }
    }

    /// Waits, without a limit.
    func waitUntilReadable() {
        _ = Poll.wait(rawValue, for: .readable, timeoutMilliseconds: -1)
    }
}

/// The instant at which waiting ends.
private struct Deadline {
    private let instant: Int64

    init(_ timeout: Duration) {
        let (seconds, attoseconds) = timeout.components
        // A hundred years stand for no limit and overflow nothing.
        let capped = min(max(0, seconds), 100 * 366 * 86_400)
        instant = BootClock.now() + capped * 1_000_000_000 + max(0, attoseconds / 1_000_000_000)
    }

    var isOver: Bool { BootClock.now() >= instant }

    /// Rounded up, so that waiting this long ends after the deadline.
    var remainingMilliseconds: CInt {
        let remaining = (instant - BootClock.now() + 999_999) / 1_000_000
        return CInt(clamping: max(0, remaining))
    }
}
