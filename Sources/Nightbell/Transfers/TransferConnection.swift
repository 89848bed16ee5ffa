import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferWire

/// One connection. Any thread may send; one at a time reads.
final class TransferConnection: Sendable {
    private let socket: SeqPacketSocket
    private let buffer = Monitor(PacketBufferBox())

    private final class PacketBufferBox {
        var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)
    }

    init(_ socket: consuming SeqPacketSocket) { self.socket = socket }

    /// False: the process has to read first.
    func send(_ request: WireTransferRequest, _ descriptors: [CInt]) throws(SystemError) -> Bool {
        let bytes: [UInt8]
        do {
            bytes = try request.serializedBytes()
        } catch {
            throw SystemError(code: EINVAL, call: "encoding a request")
        }
        guard bytes.count <= TransferPacket.maximumBytes else {
            throw SystemError(code: EMSGSIZE, call: "a request of \(bytes.count) bytes")
        }
        return try socket.send(bytes, descriptors: descriptors)
    }

    /// False: nothing has arrived in this time; -1: it has none.
    @discardableResult
    func wait(milliseconds: CInt) -> Bool {
        !Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty
    }

    /// The reports that have arrived; nil: the connection is at its end, or useless.
    func receive(atMost count: Int) -> [(report: WireTransferReport, file: TransferFile?)]? {
        buffer.withLock { box -> [(report: WireTransferReport, file: TransferFile?)]? in
            var reports: [(report: WireTransferReport, file: TransferFile?)] = []
            while reports.count < count {
                guard let reception = try? socket.receive(into: &box.buffer) else { return nil }
                switch reception {
                case .wouldBlock: return reports
                case .end: return reports.isEmpty ? nil : reports
                case .packet(_, let truncated, let controlTruncated):
                    // A result without its file would be released unread.
                    guard !truncated, !controlTruncated,
                        let report = try? WireTransferReport(serializedBytes: box.buffer.bytes)
                    else { return nil }
                    let descriptor = box.buffer.takeDescriptor()
                    reports.append((report, TransferFile(descriptor)))
                }
            }
            return reports
        }
    }

    /// Has the thread that reads find the end.
    func shutDown() { _ = shutdown(socket.rawValue, CInt(SHUT_RDWR)) }
}

/// A file that was handed over; closed with this value.
final class TransferFile: Sendable {
    private let descriptor: OwnedDescriptor

    /// nil: there is none.
    init?(_ descriptor: consuming OwnedDescriptor?) {
        guard let descriptor else { return nil }
        self.descriptor = descriptor
    }

    var rawValue: CInt { descriptor.rawValue }
}
