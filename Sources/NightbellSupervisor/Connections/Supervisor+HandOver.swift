import Glibc
import LinuxSystem
import NightbellCore
import NightbellWire

/// Sockets that clients hand over, inspected before the core sees them.
extension Supervisor {
    /// - Parameter isPlain: whether no socket has a profile or a receive buffer.
    func handleHandOver(
        _ handOver: WireHandOver, _ connection: Connection, _ request: UInt64, isPlain: Bool = false,
        isRepeated: Bool = false, controlTruncated: Bool
    ) {
        guard let client = speaker(connection) else {
            return protocolViolation(
                connection, WireError(.helloRequired, "Hello comes first"), request: request)
        }
        guard request != 0 else {
            packet.discardDescriptors()
            return answer(connection, request, .error(.needsRequest))
        }
        guard !controlTruncated else {
            // Find the reason before those that did arrive are closed.
            let error = truncationError()
            packet.discardDescriptors()
            return answer(connection, request, .error(error))
        }
        guard packet.descriptorCount == handOver.sockets.count else {
            let error = WireError(.malformedPacket, "a HandOver has one descriptor for each of its sockets")
            return protocolViolation(connection, error, request: request)
        }
        let count = handOver.sockets.count
        guard hasDescriptors(for: connection.credentials, count, leaving: .administration) else {
            let error = WireError(.outOfDescriptors, "the supervisor has no descriptor left for this user")
            let pending = ForeignDescriptor.pendingCount
            packet.discardDescriptors()
            // It sends descriptors that cannot be closed at once: if it went on, it would use up all there
            // are.
            guard ForeignDescriptor.pendingCount <= pending else {
                return protocolViolation(connection, error, request: request)
            }
            return answer(connection, request, .error(error))
        }
        guard handOver.sockets.allSatisfy({ $0.name.utf8.count <= Self.longestName }) else {
            packet.discardDescriptors()
            let error = WireError(.invalidArgument, "a name has at most \(Self.longestName) bytes")
            return answer(connection, request, .error(error))
        }
        var context = RequestContext()
        let uid = connection.credentials.uid
        switch inspectHandOver(handOver, isPlain: isPlain, uid: uid, &context.handOver) {
        case .success(let offers):
            let key = RequestKey(connection: connection.key, request: request, isRepeated: isRepeated)
            feed(.message(.handOver(offers), from: client.id, key), &context)
        case .failure(let error):
            answer(connection, request, .error(error.wire))
        }
        // Descriptors that were not adopted must be gone before the next HandOver comes.
        packet.discardDescriptors()
    }

    /// Inspects the descriptors in the packet.
    private func inspectHandOver(
        _ handOver: WireHandOver, isPlain: Bool, uid: uid_t, _ details: inout HandOverDetails
    ) -> Result<[SocketOffer], InvalidMessage> {
        let descriptors = packet.descriptorNumbers
        let facts: [SocketFacts.Brief?]
        do {
            facts = try SocketFacts.Brief.inspect(descriptors)
        } catch {
            let error = WireError(.outOfDescriptors, "the supervisor has no descriptor left")
            return .failure(InvalidMessage(wire: error))
        }
        var offers: [SocketOffer] = []
        offers.reserveCapacity(facts.count)
        for (index, facts) in facts.enumerated() {
            let socket = handOver.sockets[index]
            guard let tag = SocketTag(socket.tag) else {
                return .failure(InvalidMessage(wire: WireError(.invalidArgument, "unknown tag")))
            }
            details.names.append(socket.name)
            var offer = SocketOffer(tag: tag, facts)
            offer.survives = socket.survives
            offer.isRouted = tag == .voip && offer.isSocket && socket.routed
            // Even to ask whether there is a profile copies it.
            if !isPlain, socket.hasProfile {
                inspectProfile(of: socket, descriptors[index], &offer, uid: uid, &details, at: index)
            }
            if !isPlain, socket.receiveBuffer > 0, offer.profileRefusal == nil {
                inspectReceiveBuffer(of: socket, descriptors[index], &offer, &details, at: index)
            }
            offers.append(offer)
        }
        return .success(offers)
    }

    /// Why the kernel dropped descriptors: our table is full, or the packet was truncated.
    private func truncationError() -> WireError {
        do {
            _ = try EventDescriptor()
            return WireError(.truncatedDescriptors, "the kernel dropped descriptors of this packet")
        } catch {
            return WireError(.outOfDescriptors, "the supervisor has no descriptor left")
        }
    }
}

extension SocketOffer {
    fileprivate init(tag: SocketTag, _ facts: SocketFacts.Brief?) {
        guard let facts else {
            self.init(tag: tag, isPollable: false)
            return
        }
        self.init(
            tag: tag, isPollable: facts.isPollable, isSocket: facts.isSocket, isStream: facts.isStream,
            isListening: facts.isListening, isConnected: facts.isConnected,
            hasPendingError: facts.hasPendingError)
    }
}
