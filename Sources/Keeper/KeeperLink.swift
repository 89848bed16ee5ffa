import Glibc
package import LinuxSystem

/// The worker's end of the channel: messages sent here survive the worker.
///
/// One successful `sendmsg` is enough: the keeper reads messages in the kernel's queue even if the sender
/// dies, so the worker waits for nothing but room in the queue.
///
/// @unchecked: it belongs to one thread at a time, first the one that sets the worker up, then the loop's.
package final class KeeperLink: @unchecked Sendable {
    private let socket: SeqPacketSocket
    private var packet = ChannelPacket()
    /// The keeper's messages are short.
    private var buffer = PacketBuffer(capacity: 4_096)
    /// The keeper is gone: nothing outlives this process any more.
    package private(set) var isBroken = false

    package init(_ socket: consuming SeqPacketSocket) {
        self.socket = socket
    }

    package var rawValue: CInt { socket.rawValue }

    /// Whether messages are waiting to be sent.
    package var hasPending: Bool { !packet.isEmpty }

    // MARK: Sending

    /// The descriptor stays the caller's, and must stay open until `flush`.
    package func put(_ key: RecordKey, _ record: [UInt8], descriptor: CInt? = nil) {
        append(
            .put(key, record: record[...], hasDescriptor: descriptor != nil), record.count,
            descriptor: descriptor)
    }

    package func update(_ key: RecordKey, _ record: [UInt8]) {
        append(.update(key, record: record[...]), record.count)
    }

    package func remove(_ key: RecordKey) { append(.remove(key), 0) }

    /// Sends an item that is no record, at once and after everything before it.
    package func send(_ item: ChannelItem) {
        append(item, 1_024)
        flush()
    }

    private func append(_ item: ChannelItem, _ length: Int, descriptor: CInt? = nil) {
        precondition(length <= ChannelPacket.longestRecord, "a record is shorter than a packet")
        if packet.isFull(for: length, maximumDescriptors: SeqPacketSocket.maximumDescriptors) { flush() }
        packet.append(item, descriptor: descriptor)
    }

    /// Sends everything that is pending, if descriptors are. Call it before one of them may be closed.
    package func flushDescriptors() {
        if !packet.descriptors.isEmpty { flush() }
    }

    /// Sends everything that is pending. Blocks while the keeper's queue is full: the keeper does nothing but
    /// read it.
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
                // The user has too many descriptors in flight, without privileges: they arrive in a moment.
                guard error.code == ETOOMANYREFS else { return isBroken = true }
                _ = Poll.wait(socket.rawValue, for: .peerClosed, timeoutMilliseconds: 1)
            }
        }
    }

    // MARK: Receiving

    package enum Received: Sendable, Equatable {
        case item(ChannelItem)
        case nothing
        /// The keeper is gone.
        case end
    }

    /// The keeper's next message, without waiting. A packet of the keeper's holds one.
    package func receive() -> Received {
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

    /// As `receive`, but waits for a message.
    package func waitAndReceive() -> Received {
        while true {
            let received = receive()
            if received != .nothing { return received }
            _ = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: -1)
        }
    }
}
