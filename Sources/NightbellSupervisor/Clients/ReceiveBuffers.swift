import Glibc
import Keeper
import LinuxSystem
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// A datagram socket with a larger receive buffer, as its owner asked, while the owner sleeps.
struct ReceiveBuffer: Sendable, Hashable {
    let owner: ClientID
    /// In bytes, as the owner asked for it.
    let wanted: Int32
    /// The original size, and the size that the kernel made of `wanted`, both as the kernel returns them:
    /// twice the value that is set. They stay when the buffer is set back, so that nothing has to be recorded
    /// at the next sleep.
    var former: Int32 = 0
    var raised: Int32 = 0
    /// The number of dropped datagrams when the owner fell asleep.
    var dropsBefore: UInt32 = 0
    /// Currently raised by us.
    var isRaised = false
}

/// The sockets with a receive buffer for their owner's sleep. Most have none, and are not in here.
struct ReceiveBufferTable {
    private var buffers = SideTable<ReceiveBuffer>()
    /// By the slots of their owners.
    private var tokens: [UInt32: [SocketToken]] = [:]

    var isEmpty: Bool { buffers.isEmpty }

    func tokens(of client: ClientID) -> [SocketToken] { tokens[client.slot] ?? [] }

    func contains(_ token: SocketToken) -> Bool { buffers.contains(token.slot) }

    subscript(token: SocketToken) -> ReceiveBuffer {
        _read { yield buffers[token.slot] }
        _modify { yield &buffers[token.slot] }
    }

    mutating func insert(_ buffer: ReceiveBuffer, _ token: SocketToken) {
        buffers.insert(buffer, at: token.slot)
        tokens[buffer.owner.slot, default: []].append(token)
    }

    mutating func remove(_ token: SocketToken) {
        guard let buffer = buffers.remove(token.slot) else { return }
        tokens[buffer.owner.slot]?.removeAll { $0 == token }
        if tokens[buffer.owner.slot]?.isEmpty == true { tokens[buffer.owner.slot] = nil }
    }
}

/// `SO_RCVBUF` is an option of the socket, which its owner shares: it is set only where the owner asked for
/// it, and set back only if it has not been changed since.
extension Supervisor {
    /// Whether a socket can have a larger receive buffer while its owner sleeps: for streams the kernel would
    /// stop adapting it.
    func inspectReceiveBuffer(
        of socket: WireHandOver.Socket, _ descriptor: CInt, _ offer: inout SocketOffer,
        _ details: inout HandOverDetails, at index: Int
    ) {
        guard SocketFacts.isDatagram(descriptor) else {
            return offer.profileRefusal = .receiveBufferNotForThis
        }
        details.setReceiveBuffer(Int32(clamping: socket.receiveBuffer), at: index)
    }

    /// Call it before the owner is told that the socket is adopted.
    func storeReceiveBuffer(_ token: SocketToken, _ wanted: Int32, of client: ClientID) {
        let buffer = ReceiveBuffer(owner: client, wanted: wanted)
        receiveBuffers.insert(buffer, token)
        journal?.store(buffer, of: token)
    }

    func adjustReceiveBuffers(_ client: ClientID, _ from: ClientState?, _ to: ClientState) {
        let wasAsleep = from.map(Self.leavesSocketsAlone) ?? false
        let isAsleep = Self.leavesSocketsAlone(to)
        for token in receiveBuffers.tokens(of: client) {
            guard let descriptor = parked.descriptor(of: token) else { continue }
            if !isAsleep {
                lower(token, descriptor)
            } else if !receiveBuffers[token].isRaised {
                raise(token, descriptor, fallsAsleep: !wasAsleep)
            }
        }
    }

    private static func leavesSocketsAlone(_ state: ClientState) -> Bool {
        switch state {
        case .suspended, .dormant, .launching: true
        case .notRunning, .inactive, .active, .background, .suspending, .terminating: false
        }
    }

    private func raise(_ token: SocketToken, _ descriptor: CInt, fallsAsleep: Bool) {
        var buffer = receiveBuffers[token]
        if fallsAsleep { buffer.dropsBefore = SocketMemory.drops(of: descriptor) ?? 0 }
        guard let now = SocketOption.receiveBuffer.value(of: descriptor), now / 2 < buffer.wanted else {
            return record(buffer, of: token)
        }
        buffer.former = now
        // Record first, then change: the next worker sets it back.
        record(buffer, of: token)
        SocketOption.receiveBuffer.set(buffer.wanted, on: descriptor)
        buffer.raised = SocketOption.receiveBuffer.value(of: descriptor) ?? 0
        buffer.isRaised = true
        record(buffer, of: token)
    }

    private func lower(_ token: SocketToken, _ descriptor: CInt) {
        guard receiveBuffers[token].isRaised else { return }
        receiveBuffers[token].isRaised = false
        let buffer = receiveBuffers[token]
        guard SocketOption.receiveBuffer.value(of: descriptor) == buffer.raised else { return }
        SocketOption.receiveBuffer.set(buffer.former / 2, on: descriptor)
    }

    /// Records a change only: buffers are mostly as large as at the last sleep.
    private func record(_ buffer: ReceiveBuffer, of token: SocketToken) {
        var (old, new) = (receiveBuffers[token], buffer)
        (old.isRaised, new.isRaised) = (false, false)
        guard let journal, old != new else { return receiveBuffers[token] = buffer }
        receiveBuffers[token] = buffer
        journal.store(buffer, of: token)
        journal.link.flush()
    }

    // MARK: Reporting

    /// Datagrams of this socket that the kernel has dropped since the owner fell asleep; nil: it asked for no
    /// buffer.
    func dropsAsleep(_ token: SocketToken) -> UInt32? {
        guard receiveBuffers.contains(token), let descriptor = parked.descriptor(of: token),
            let drops = SocketMemory.drops(of: descriptor)
        else { return nil }
        return drops &- receiveBuffers[token].dropsBefore
    }

    func withDrops(_ message: WireSupervisorMessage) -> WireSupervisorMessage {
        guard case .wake(var wake) = message.body else { return message }
        for index in wake.sockets.indices {
            let token = SocketToken(rawValue: wake.sockets[index].token)
            if let drops = dropsAsleep(token) { wake.sockets[index].dropped = drops }
        }
        var message = message
        message.wake = wake
        return message
    }

    // MARK: Recovery

    /// Continues with a buffer of the previous worker, raised or not.
    func recoverReceiveBuffer(_ record: ReceiveBuffer, of token: SocketToken) {
        guard let descriptor = parked.descriptor(of: token) else { return }
        var buffer = record
        let now = SocketOption.receiveBuffer.value(of: descriptor)
        // The previous worker may have died before it recorded the outcome.
        buffer.isRaised =
            buffer.former != 0 && now != buffer.former && (buffer.raised == 0 || now == buffer.raised)
        if buffer.isRaised, let now { buffer.raised = now }
        receiveBuffers.insert(buffer, token)
    }
}

extension RecordKey {
    static func receiveBuffer(_ token: SocketToken) -> RecordKey {
        RecordKey(.receiveBuffers, id: token.rawValue)
    }
}

extension Journal {
    func store(_ buffer: ReceiveBuffer, of token: SocketToken) {
        let stored = StoredReceiveBuffer.with {
            $0.owner = buffer.owner.rawValue
            $0.wanted = buffer.wanted
            $0.former = buffer.former
            $0.raised = buffer.raised
            $0.dropsBefore = buffer.dropsBefore
        }
        link.put(.receiveBuffer(token), stored.record)
    }

    func forgetReceiveBuffer(_ token: SocketToken) { link.remove(.receiveBuffer(token)) }

    static func receiveBuffer(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> ReceiveBuffer {
        let stored = try StoredReceiveBuffer(key, record)
        return ReceiveBuffer(
            owner: ClientID(rawValue: stored.owner), wanted: stored.wanted, former: stored.former,
            raised: stored.raised, dropsBefore: stored.dropsBefore)
    }
}
