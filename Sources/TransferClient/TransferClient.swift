package import LinuxSystem
import SwiftProtobuf
package import TransferWire

/// A connection to the transfer process, driven step by step by a thread that may wait: for tests and
/// measurements.
package final class TransferClient {
    /// The process has ended the connection.
    package struct Ended: Error {
        package init() {}
    }

    package struct Refused: Error {
        package let reason: String
    }

    /// No answer has come in time.
    package struct TimedOut: Error {
        package init() {}
    }

    /// A report that is no answer, and the file that came with it.
    package struct Event {
        package let report: WireTransferReport
        package let file: TransferredFile?
    }

    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)
    private var number: UInt64 = 0
    private var events: [Event] = []
    private var answers: [UInt64: WireTransferAnswer] = [:]

    /// In milliseconds.
    private static let answerTime: Int64 = 60_000

    /// - Parameter path: the process's socket.
    package init(path: String) throws(SystemError) { socket = try SeqPacketSocket.connect(path: path) }

    /// Opens a session.
    package func open(client: String, _ session: String) throws {
        try request {
            $0.open.client = client
            $0.open.identifier = session
        }
    }

    /// Sends a request without waiting for its answer.
    ///
    /// - Returns: its number.
    package func send(
        descriptors: [CInt] = [], _ change: (inout WireTransferRequest) -> Void
    ) throws -> UInt64 {
        number += 1
        var request = WireTransferRequest()
        request.number = number
        change(&request)
        let bytes: [UInt8] = try request.serializedBytes()
        while true {
            do throws(SystemError) {
                if try socket.send(bytes, descriptors: descriptors) { return number }
            } catch {
                throw Ended()
            }
            // It may wait for this end to read.
            try receive(within: 10)
        }
    }

    @discardableResult
    package func request(
        descriptors: [CInt] = [], _ change: (inout WireTransferRequest) -> Void
    ) throws -> WireTransferAnswer {
        try answer(try send(descriptors: descriptors, change))
    }

    /// Waits for the answer to a request.
    package func answer(_ number: UInt64) throws -> WireTransferAnswer {
        let deadline = BootClock.now() + Self.answerTime * 1_000_000
        while true {
            if let answer = answers.removeValue(forKey: number) {
                guard answer.refusal.isEmpty else { throw Refused(reason: answer.refusal) }
                return answer
            }
            guard BootClock.now() < deadline else { throw TimedOut() }
            try receive(within: 1_000)
        }
    }

    /// The next event; nil: none within the time.
    package func nextEvent(within milliseconds: Int64) throws -> Event? {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while events.isEmpty {
            let left = deadline - BootClock.now()
            guard left > 0 else { return nil }
            try receive(within: CInt(clamping: left / 1_000_000 + 1))
        }
        return events.removeFirst()
    }

    private func receive(within milliseconds: CInt) throws {
        switch try socket.receive(into: &buffer) {
        case .wouldBlock:
            _ = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
        case .end: throw Ended()
        case .packet:
            let report = try WireTransferReport(serializedBytes: buffer.bytes)
            if case .answer(let answer) = report.report {
                answers[answer.number] = answer
            } else if let descriptor = buffer.takeDescriptor() {
                events.append(Event(report: report, file: TransferredFile(descriptor)))
            } else {
                events.append(Event(report: report, file: nil))
            }
        }
    }
}

/// A file that was handed over.
package final class TransferredFile {
    private let descriptor: OwnedDescriptor

    package init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }

    package var rawValue: CInt { descriptor.rawValue }
}
