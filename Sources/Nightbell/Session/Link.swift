import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// One connection to a supervisor. It closes when the last thread that uses it releases it.
// @unchecked: the buffer is touched only by the thread that has the right to read, of which there is one
// (`Session.Core.isReading`); the socket's calls are system calls.
final class Link: @unchecked Sendable {
    /// The protocol's limit.
    static let packetCapacity = 131_072

    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: packetCapacity)
    /// The sockets of the last process were taken over.
    var hasTakenSockets = false

    init(_ socket: consuming SeqPacketSocket) {
        self.socket = socket
    }

    static func connect(path: String) throws(NightbellError) -> Link {
        do {
            return Link(try SeqPacketSocket.connect(path: path))
        } catch {
            throw NightbellError(.cannotConnect, error)
        }
    }

    var rawValue: CInt { socket.rawValue }

    /// False: the supervisor's queue is full now.
    func send(_ message: WireClientMessage, descriptors: [CInt] = []) throws(NightbellError) -> Bool {
        let bytes = Self.encode(message)
        guard bytes.count <= Self.packetCapacity else {
            throw NightbellError(.invalidArgument, "\(bytes.count) bytes are more than a packet may have")
        }
        do {
            return try socket.send(bytes, descriptors: descriptors)
        } catch {
            switch error.code {
            case EPIPE, ECONNRESET, ENOTCONN:
                throw NightbellError(.connectionLost, error)
            default:
                throw NightbellError(.system, error)
            }
        }
    }

    /// False: the supervisor's queue is full, or an error occurred, which sending the message again will
    /// report.
    func send(_ packet: ReadyPacket) -> Bool {
        unsafe packet.withBytes { bytes in unsafe (try? socket.send(bytes)) ?? false }
    }

    enum Reception {
        case message(WireSupervisorMessage)
        case nothing
    }

    /// Receives one packet if there is one. Throws when the connection is unusable.
    func receive() throws(NightbellError) -> Reception {
        let reception: LinuxSystem.Reception
        do {
            reception = try socket.receive(into: &buffer)
        } catch {
            throw NightbellError(.connectionLost, error)
        }
        switch reception {
        case .wouldBlock:
            return .nothing
        case .end:
            throw NightbellError(.connectionLost, "the supervisor closed it")
        case .packet(_, let truncated, _):
            guard !truncated else { throw NightbellError(.malformedAnswer, "a packet that is too long") }
            return .message(try Self.decode(buffer.bytes))
        }
    }

    /// The wake word that came with the message just received, if any. Without it the client waits for
    /// messages.
    func takeWakeWord(of message: WireSupervisorMessage) -> WakeWord? {
        let index: UInt32
        var sockets = 0
        switch message.body {
        case .welcome(let welcome):
            index = welcome.wakeWord
            // The descriptors of sockets come after it.
            sockets = welcome.previousProcess.areInherited ? 0 : welcome.previousProcess.sockets.count
        case .supervisorRestarted(let restarted): index = restarted.wakeWord
        default: return nil
        }
        guard buffer.descriptorCount > sockets, let descriptor = buffer.takeDescriptor() else { return nil }
        do {
            return WakeWord(try SharedWord(mapping: descriptor, at: Int(index)))
        } catch {
            return nil
        }
    }

    func takeDescriptor() -> OwnedDescriptor? { buffer.takeDescriptor() }

    /// Also ends it for threads that read or write at this moment.
    func shutDown() {
        _ = Glibc.shutdown(socket.rawValue, CInt(SHUT_RDWR))
    }

    private static func encode(_ message: WireClientMessage) -> [UInt8] {
        do {
            return try message.serializedBytes()
        } catch {
            // Only proto2's required fields and `Any` can fail, and the schema has neither.
            preconditionFailure("the schema does not allow this message: \(error)")
        }
    }

    private static func decode(_ bytes: [UInt8]) throws(NightbellError) -> WireSupervisorMessage {
        if let wake = WireWake(packet: bytes) { return .with { $0.wake = wake } }
        do {
            return try WireSupervisorMessage(serializedBytes: bytes)
        } catch {
            throw NightbellError(.malformedAnswer, "a packet of \(bytes.count) bytes does not decode")
        }
    }
}

extension FileIdentity {
    /// Throws the error of `fstat`: `EBADF` if nothing is open under this number.
    init(of descriptor: CInt) throws(SystemError) {
        var status = stat()
        _ = try systemCall("fstat of descriptor \(descriptor)") { unsafe fstat(descriptor, &status) }
        self.init(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
    }
}
