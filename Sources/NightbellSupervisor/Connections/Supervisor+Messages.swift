import EventLoop
import Glibc
import Keeper
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension
import SwiftProtobuf

/// Messages from clients, decoded and checked before the core sees them.
extension Supervisor {
    /// The limit for texts that are only shown.
    static let longestName = 64

    /// Reads what a connection has sent; the rest of a flood waits for the next turn.
    ///
    /// - Parameter deadline: when to leave the rest, of `BootClock`; one packet is always read.
    func receiveMessages(
        _ connection: Connection, atMost mostBytes: Int = .max, until deadline: Int64 = .max
    ) {
        var bytes = 0
        var readsFromSleeper = false
        connection.isServed = true
        defer {
            connection.isServed = false
            sendAnswers(connection)
            if readsFromSleeper { finishReading() }
        }
        for number in 0..<configuration.messagesPerTurn {
            if number > 0, bytes >= mostBytes || deadline != .max && BootClock.now() >= deadline { return }
            guard connections[connection.key] === connection, connection.listing == nil,
                !connection.isPaused, !connection.isHungUp
            else { return }
            // The kernel would close descriptors that do not fit into our table on this thread, however long
            // that takes. A user with many that cannot be closed is to send no more.
            let user = connection.credentials.uid
            if !hasDescriptors(for: connection.credentials, 0, leaving: .nothing)
                || ForeignDescriptor.pendingCount(of: user) >= mostToBeClosed,
                connection.socket.nextPacketCarriesDescriptors()
            {
                let error = WireError(
                    .outOfDescriptors, "the supervisor has no descriptor left for this user")
                return disconnect(connection, with: error)
            }
            // A packet may begin the suspension that the next one was sent before.
            if !readsFromSleeper, let client = connection.client?.id {
                readsFromSleeper = beginReading(from: client)
            }
            do {
                packet.user = user
                defer { packet.discardDescriptors() }
                switch try connection.socket.receive(into: &packet) {
                case .wouldBlock:
                    return
                case .end:
                    connection.hasEnded = true
                    return hungUp(connection)
                case .packet(_, let truncated, let controlTruncated):
                    if readsFromSleeper { FaultInjection.point("after a sleeper was heard") }
                    bytes += packet.count
                    handlePacket(connection, truncated: truncated, controlTruncated: controlTruncated)
                }
            } catch {
                logger.debug("\(name(of: connection)): \(error)")
                return hungUp(connection)
            }
        }
    }

    private func handlePacket(_ connection: Connection, truncated: Bool, controlTruncated: Bool) {
        connection.hasSpoken = true
        guard !truncated else {
            let limit = Self.maximumPacket
            return protocolViolation(
                connection, WireError(.malformedPacket, "a packet holds at most \(limit) bytes"))
        }
        let bytes = packet.bytes
        guard isWorthDecoding(bytes, connection, controlTruncated: controlTruncated) else { return }
        if let fast = HandOverPacket(bytes, count: packet.descriptorCount) {
            // A repeated HandOver is left to the general decoder.
            return handleHandOver(
                fast.handOver, connection, fast.request, isPlain: true, controlTruncated: controlTruncated)
        }
        let message: WireClientMessage
        do {
            message = try WireClientMessage(serializedBytes: bytes)
        } catch {
            return protocolViolation(connection, WireError(.malformedPacket, "the packet does not decode"))
        }
        guard let body = message.body else {
            let error = WireError(.unknownMessage, "the message is of an unknown kind")
            return protocolViolation(connection, error, request: message.request)
        }
        switch body {
        case .handOver(let handOver):
            handleHandOver(
                handOver, connection, message.request, isRepeated: message.isRepeated,
                controlTruncated: controlTruncated)
        default:
            guard packet.descriptorCount == 0, !controlTruncated else {
                let error = WireError(.malformedPacket, "only HandOver carries descriptors")
                return protocolViolation(connection, error, request: message.request)
            }
            handle(body, connection, message)
        }
    }

    /// Checks what a packet claims to hold, which costs next to nothing. False: it was refused.
    private func isWorthDecoding(
        _ bytes: [UInt8], _ connection: Connection, controlTruncated: Bool
    ) -> Bool {
        let scan: PacketScan
        do throws(PacketScan.Refusal) {
            scan = try PacketScan(bytes)
        } catch {
            switch error {
            case .malformed:
                protocolViolation(connection, WireError(.malformedPacket, "the packet does not decode"))
            case .excessive(let limit): protocolViolation(connection, WireError(.malformedPacket, limit))
            }
            return false
        }
        guard !scan.isForClients || speaker(connection) != nil else {
            protocolViolation(
                connection, WireError(.helloRequired, "Hello comes first"), request: scan.request)
            return false
        }
        // Fewer sockets than descriptors are detected later, by the decoder.
        if let sockets = scan.sockets, sockets > packet.descriptorCount, !controlTruncated {
            let error = WireError(.malformedPacket, "a HandOver has one descriptor for each of its sockets")
            protocolViolation(connection, error, request: scan.request)
            return false
        }
        return true
    }

    func protocolViolation(_ connection: Connection, _ error: WireError, request: UInt64 = 0) {
        connections.protocolErrors += 1
        disconnect(connection, with: error, request: request)
    }

    /// All messages but HandOver.
    private func handle(
        _ body: WireClientMessage.OneOf_Body, _ connection: Connection, _ whole: WireClientMessage
    ) {
        let request = whole.request
        switch body {
        case .hello(let hello):
            if whole.isRepeated, let record = connection.client {
                welcome(record.id, record, connection, request)
                return
            }
            handleHello(hello, connection, request)
        case .restartNoted(let message):
            rejoinSilently(connection)
            // An answer to an earlier restart says nothing about this one.
            guard let client = connection.client, message.restart == journal?.restarts else {
                if request != 0 { answer(connection, request, .done(WireDone())) }
                return
            }
            feed(
                .message(
                    .restartNoted, from: client.id, RequestKey(connection: connection.key, request: request)))
        case .status, .list, .show, .watch, .wakeClient, .suspendClient, .quitClient, .launchClient,
            .forgetClient, .relieveMemory, .simulate, .pushesWaiting, .showNotifications, .upgrade, .reload:
            administrate(body, connection, request)
        case .handOver, .release, .enterBackground, .backgroundEntered, .enterForeground,
            .setKeepAliveTimeout, .clearKeepAliveTimeout_p, .beginBackgroundTask, .endBackgroundTask,
            .backgroundTimeRemaining, .mediaActivity, .readyToSuspend, .wakeDone, .saveState, .hibernate,
            .setMinimumFetchInterval, .fetchDone, .pushDone, .observe, .stopObserving, .awakeReason,
            .pagedOut,
            .scheduleNotification, .cancelNotifications, .listNotifications, .setBadge:
            guard let client = speaker(connection) else {
                return protocolViolation(
                    connection, WireError(.helloRequired, "Hello comes first"), request: request)
            }
            if noteReport(body, of: client, connection) {
                if request != 0 { answer(connection, request, .done(WireDone())) }
                return
            }
            if request == 0, body.isQuestion { return answer(connection, request, .error(.needsRequest)) }
            if case .listNotifications(let message) = body {
                return list(message, of: client.id, connection, request)
            }
            let key = RequestKey(
                connection: connection.key, request: request, isRepeated: whole.isRepeated)
            if case .readyToSuspend(let ready) = body,
                let error = takeDelegated(ready.delegated, from: client.id)
            {
                return answer(connection, request, .error(error))
            }
            var context = RequestContext()
            if case .saveState(let message) = body { context.state = Array(message.state) }
            switch ClientMessage.make(body, longestName: Self.longestName) {
            case .success(let message):
                // Its socket is there when the client is answered.
                if case .observe(_, .transfers) = message { serveTransfers(of: connection.credentials.uid) }
                // Its time is known when it is scheduled.
                if case .schedule = message { lookAtClock(isNeeded: true) }
                feed(.message(message, from: client.id, key), &context)
                // A request has cancelled the suspension. Any other message was sent before it was stopped,
                // or shows that it runs.
                inspectSleeper(client.id)
            case .failure(let error): answer(connection, request, .error(error.wire))
            }
        }
    }

    func answer(
        _ connection: Connection, _ request: UInt64, _ body: WireSupervisorMessage.OneOf_Body
    ) {
        send(WireSupervisorMessage(request: request, body), to: connection)
    }
}

extension WireClientMessage.OneOf_Body {
    /// Whether it is of no use without an answer.
    fileprivate var isQuestion: Bool {
        switch self {
        case .beginBackgroundTask, .backgroundTimeRemaining, .scheduleNotification, .listNotifications: true
        default: false
        }
    }
}

extension WireError {
    /// To a process of a launch that was quit.
    static var askedToEnd: WireError {
        WireError(.identifierInUse, "this process was asked to end, because its client was quit")
    }

    static var needsRequest: WireError {
        WireError(.invalidArgument, "this needs a request number other than 0 for its answer")
    }
}

/// A message that decodes but says something impossible.
struct InvalidMessage: Error {
    let wire: WireError
}

extension WireLaunchSpecification {
    /// Whether its encoding is no longer than this.
    func isWithin(_ limit: Int) -> Bool { bytes.map { $0.count <= limit } ?? false }

    /// nil: it cannot be encoded.
    var bytes: [UInt8]? {
        do {
            return try serializedBytes()
        } catch {
            return nil
        }
    }
}

extension ClientMessage {
    fileprivate static func make(
        _ body: WireClientMessage.OneOf_Body, longestName: Int
    ) -> Result<ClientMessage, InvalidMessage> {
        switch body {
        case .release(let release):
            return .success(.release(SocketToken(rawValue: release.token)))
        case .enterBackground:
            return .success(.enterBackground)
        case .backgroundEntered:
            return .success(.backgroundEntered)
        case .enterForeground:
            return .success(.enterForeground)
        case .setKeepAliveTimeout(let message):
            return .success(.setKeepAliveTimeout(Duration(wireMilliseconds: message.timeoutMs)))
        case .clearKeepAliveTimeout_p:
            return .success(.clearKeepAliveTimeout)
        case .setMinimumFetchInterval(let message):
            let milliseconds = message.intervalMs
            return .success(
                .setMinimumFetchInterval(
                    milliseconds < 0
                        ? .never
                        : milliseconds == 0
                            ? .minimum : .atLeast(Duration(wireMilliseconds: UInt64(milliseconds)))))
        case .fetchDone(let message):
            guard let result = FetchResult(message.result) else {
                let error = WireError(.invalidArgument, "an unknown result of a fetch")
                return .failure(InvalidMessage(wire: error))
            }
            return .success(.fetchDone(wakeID: message.wakeID, result))
        case .pushDone(let message):
            guard let result = FetchResult(message.result) else {
                let error = WireError(.invalidArgument, "an unknown result of a push")
                return .failure(InvalidMessage(wire: error))
            }
            return .success(.pushDone(wakeID: message.wakeID, result))
        case .observe(let message):
            let longest = Observation.longestName
            guard (1...longest).contains(message.name.utf8.count) else {
                let error = WireError(.invalidArgument, "an observation has a name of 1 to \(longest) bytes")
                return .failure(InvalidMessage(wire: error))
            }
            guard let subject = Subject(message) else {
                let error = WireError(.invalidArgument, "an unknown subject, or a value out of its range")
                return .failure(InvalidMessage(wire: error))
            }
            return .success(.observe(name: message.name, subject))
        case .stopObserving(let message):
            return .success(.stopObserving(name: message.name))
        case .scheduleNotification(let message):
            do throws(InvalidMessage) {
                return .success(.schedule(try LocalNotification(message.notification)))
            } catch {
                return .failure(error)
            }
        case .cancelNotifications(let message):
            guard message.identifiers.count <= WireCancelNotifications.mostIdentifiers else {
                let error = WireError(.invalidArgument, "too many identifiers")
                return .failure(InvalidMessage(wire: error))
            }
            return .success(.cancelNotifications(message.all ? nil : message.identifiers))
        case .setBadge(let message):
            return .success(.setBadge(message.count))
        case .beginBackgroundTask(let message):
            guard message.name.utf8.count <= longestName else {
                let error = WireError(.invalidArgument, "a name has at most \(longestName) bytes")
                return .failure(InvalidMessage(wire: error))
            }
            return .success(.beginBackgroundTask(name: message.name))
        case .endBackgroundTask(let message):
            return .success(.endBackgroundTask(message.taskID))
        case .backgroundTimeRemaining:
            return .success(.backgroundTimeRemaining)
        case .mediaActivity:
            return .success(.mediaActivity)
        case .readyToSuspend(let message):
            let notIdle = message.notIdle.map(SocketToken.init(rawValue:))
            return .success(.readyToSuspend(epoch: message.epoch, notIdle: notIdle))
        case .wakeDone(let message):
            return .success(.wakeDone(wakeID: message.wakeID))
        case .saveState(let message):
            return .success(.saveState(byteCount: message.state.count))
        case .hibernate:
            return .success(.hibernate)
        case .hello, .handOver, .restartNoted, .awakeReason, .pagedOut, .status, .list, .show, .watch,
            .wakeClient,
            .suspendClient,
            .quitClient, .launchClient, .forgetClient, .relieveMemory, .simulate, .upgrade, .reload,
            .listNotifications, .pushesWaiting, .showNotifications:
            preconditionFailure("these have paths of their own")
        }
    }
}

extension FetchResult {
    /// nil: it is unknown.
    fileprivate init?(_ wire: WireFetchResult) {
        switch wire {
        case .newData: self = .newData
        case .noData: self = .noData
        case .failed: self = .failed
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}
