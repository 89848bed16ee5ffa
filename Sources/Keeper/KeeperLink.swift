package import Descriptors
import Glibc

/// The worker's end of the channel: what is said here survives the worker.
///
/// One successful `sendmsg` is all that it takes: what lies in the kernel's queue is read by the keeper whatever
/// becomes of the sender, so nothing is waited for but room in the queue.
///
/// @unchecked: it belongs to one thread at a time, that which sets the worker up and then that of the loop.
package final class KeeperLink: @unchecked Sendable {
    private let socket: SeqPacketSocket
    private var packet = ChannelPacket()
    /// What a keeper says is short.
    private var buffer = PacketBuffer(capacity: 4_096)
    /// The keeper is gone: nothing outlives us any more.
    package private(set) var isBroken = false

    package init(_ socket: consuming SeqPacketSocket) {
        self.socket = socket
    }

    package var rawValue: CInt { socket.rawValue }

    /// Whether something waits to be said.
    package var hasPending: Bool { !packet.isEmpty }

    // MARK: Saying

    /// The descriptor stays the caller's, and open until `flush`.
    package func put(_ key: RecordKey, _ record: [UInt8], descriptor: CInt? = nil) {
        append(
            .put(key, record: record[...], hasDescriptor: descriptor != nil), record.count,
            descriptor: descriptor)
    }

    package func update(_ key: RecordKey, _ record: [UInt8]) {
        append(.update(key, record: record[...]), record.count)
    }

    package func remove(_ key: RecordKey) { append(.remove(key), 0) }

    /// Something that is no record, at once and after everything before it.
    package func say(_ item: ChannelItem) {
        append(item, 1_024)
        flush()
    }

    private func append(_ item: ChannelItem, _ length: Int, descriptor: CInt? = nil) {
        precondition(length <= ChannelPacket.longestRecord, "a record is shorter than a packet")
        if packet.isFull(for: length, maximumDescriptors: SeqPacketSocket.maximumDescriptors) { flush() }
        packet.append(item, descriptor: descriptor)
    }

    /// Says everything that waits. Blocks while the keeper's queue is full: it does nothing but read it.
    package func flush() {
        guard !packet.isEmpty else { return }
        defer { packet.removeAll() }
        while !isBroken {
            FaultInjection.point("before saying it to the keeper")
            do {
                if try socket.send(packet.bytes, descriptors: packet.descriptors) {
                    return FaultInjection.point("after saying it to the keeper")
                }
                _ = Poll.wait(socket.rawValue, for: .writable, timeoutMilliseconds: -1)
            } catch {
                // Too many descriptors are under way for a user without privileges: they arrive in a moment.
                guard error.code == ETOOMANYREFS else { return isBroken = true }
                _ = Poll.wait(socket.rawValue, for: .peerClosed, timeoutMilliseconds: 1)
            }
        }
    }

    // MARK: Hearing

    package enum Heard: Sendable, Equatable {
        case item(ChannelItem)
        case nothing
        /// The keeper is gone.
        case end
    }

    /// What the keeper says, without waiting. It says one thing a packet.
    package func hear() -> Heard {
        do {
            switch try socket.receive(into: &buffer) {
            case .wouldBlock:
                return .nothing
            case .end:
                isBroken = true
                return .end
            case .packet:
                let items = try ChannelPacket.items(in: buffer.bytes)
                return items.first.map { .item($0) } ?? .nothing
            }
        } catch {
            isBroken = true
            return .end
        }
    }

    /// As `hear`, but waits for something.
    package func waitAndHear() -> Heard {
        while true {
            let heard = hear()
            if heard != .nothing { return heard }
            _ = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: -1)
        }
    }
}
