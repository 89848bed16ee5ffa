import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellParking
import NightbellProfiles
import NightbellWire
import SwiftProtobuf

/// Adding and removing the profiles of sockets.
extension Supervisor {
    /// The longest profile in a message.
    private static let longestProfile = 4_096

    /// Whether the profile that comes with a socket fits; the core may refuse it even if it does.
    ///
    /// - Parameter uid: the owner's.
    func inspectProfile(
        of socket: WireHandOver.Socket, _ descriptor: CInt, _ offer: inout SocketOffer, uid: uid_t,
        _ details: inout HandOverDetails, at index: Int
    ) {
        guard offer.tag == .voip, offer.isSocket, !offer.isListening else {
            return offer.profileRefusal = .profileNotForThis
        }
        if let problem = obstacle(to: descriptor, uid) {
            details.setProblem(problem, at: index)
            return offer.profileRefusal = .profileNotForThis
        }
        let transport: Transport = offer.isStream ? .stream : .datagram
        do {
            // Thousands of sockets may come with one each, and it is stored as received.
            let bytes: [UInt8] = try socket.profile.serializedBytes()
            guard bytes.count <= Self.longestProfile else {
                details.setProblem("a profile has at most \(Self.longestProfile) bytes", at: index)
                return offer.profileRefusal = .invalidProfile
            }
            let settings = try offload.settings(for: socket.profile, over: transport)
            if socket.encrypted, settings.needsPlainText, !TCPState.hasKernelTLS(descriptor) {
                return offer.profileRefusal = .opaqueSocket
            }
            do {
                _ = try Profile(settings, over: transport)
            } catch {
                details.setProblem("the profile \(settings.name): \(error)", at: index)
                return offer.profileRefusal = .profileNotForThis
            }
            if case .tcp = settings, TCPKeepAlive(of: descriptor) == nil {
                details.setProblem("the profile tcp: not a TCP connection", at: index)
                return offer.profileRefusal = .profileNotForThis
            }
            details.setProfile(
                OfferedProfile(settings: settings, transport: transport, bytes: bytes), at: index)
            offer.profile = settings.profileName.number
        } catch let problem as ProfileProblem {
            details.setProblem(problem.message, at: index)
            offer.profileRefusal = .invalidProfile
        } catch {
            offer.profileRefusal = .invalidProfile
        }
    }

    /// Why the supervisor must not write to a socket in its owner's name, if so: it may have more rights than
    /// the owner.
    private func obstacle(to descriptor: CInt, _ uid: uid_t) -> String? {
        switch ReplyAuthority(descriptor) {
        case .anyProcess: nil
        case .sameUser where uid == geteuid(): nil
        case .sameUser: "profiles on Unix sockets are for clients of the supervisor's own user"
        case .refused(let obstacle): obstacle.description
        }
    }

    /// Call it before the owner is told that the socket is adopted.
    func storeOffload(_ token: SocketToken, _ profile: OfferedProfile) {
        do {
            offload.insert(try OffloadedSocket(profile.settings, profile.transport), token)
        } catch {
            preconditionFailure("a profile that was made once can be made again: \(error)")
        }
        if supervision.survives(token) { offload[token].bytes = profile.bytes }
        journal?.storeOffload(token, profile.bytes, at: elapsedNow)
    }

    func removeOffload(_ token: SocketToken) {
        offload.remove(token)
        if offload.isEmpty { engine.giveMemoryBack() }
    }

    // MARK: Status

    func describeOffload(_ token: SocketToken) -> WireClientInfo.Socket.Offload? {
        guard offload.contains(token), let view = supervision.offload(of: token, at: now) else { return nil }
        var message = WireClientInfo.Socket.Offload()
        message.profile = offload[token].settings.name
        message.active = view.isActive
        message.counters = WireOffloadCounters(view.counters)
        message.awaitingAnswer = view.isAwaitingAnswer
        if let window = view.nextPing {
            message.nextPingInMs = window.latest.since(elapsedNow).wireMilliseconds
        }
        return message
    }

    /// The sum for all sockets of a client with a profile; nil: none has one.
    func offloadCounters(of client: ClientID) -> WireOffloadCounters? {
        let sockets = supervision.offloadedSockets(of: client)
        guard !sockets.isEmpty else { return nil }
        return WireOffloadCounters(
            sockets.reduce(into: OffloadCounters()) { sum, token in
                if let view = supervision.offload(of: token, at: now) { sum += view.counters }
            })
    }

    /// The profile of a socket that a process has left to its successor, if there is room for it.
    func profileOfPreviousProcess(_ token: SocketToken, room: inout Int) -> WireProfile? {
        guard offload.contains(token), !offload[token].bytes.isEmpty, offload[token].bytes.count <= room
        else { return nil }
        room -= offload[token].bytes.count
        do {
            return try WireProfile(serializedBytes: offload[token].bytes)
        } catch {
            preconditionFailure("what was encoded can be decoded: \(error)")
        }
    }

    // MARK: Recovery

    /// Continues with a socket's profile. False: this version of the program cannot decode it.
    func recoverProfile(
        _ bytes: [UInt8], _ former: TCPKeepAlive?, of socket: inout RecoverySnapshot.Socket
    ) -> Bool {
        let transport: Transport = socket.isStream ? .stream : .datagram
        do {
            let settings = try offload.settings(for: WireProfile(serializedBytes: bytes), over: transport)
            var taken = try OffloadedSocket(settings, transport)
            if socket.survives { taken.bytes = bytes }
            if socket.offload?.wasActive == true {
                taken.formerKeepAlive = former
                resume(&taken, socket)
            }
            offload.insert(taken, socket.token)
            socket.offload?.profile = settings.profileName.number
            return true
        } catch {
            log(.sockets, .error, "a profile cannot be decoded: \(error)")
            journal?.forgetOffload(socket.token)
            return false
        }
    }

    /// Restores the profile's state: the delegated state, and the ping under way.
    private func resume(_ taken: inout OffloadedSocket, _ socket: RecoverySnapshot.Socket) {
        guard let journal else { return }
        guard let delegated = journal.delegated(socket.token) else {
            taken.hasLost = true
            return
        }
        taken.delegated = delegated
        let isAwaiting = socket.offload?.wasAwaitingAnswer == true
        taken.pingRandom = journal.pingRandom(socket.token)
        taken.profile.begin(delegating: delegated)
        if isAwaiting, !taken.profile.isAwaitingAnswer {
            // Makes the same ping again without sending it, so that its answer is recognised.
            taken.profile.begin(delegating: delegated.beforePing)
            var ping: [UInt8] = []
            _ = taken.profile.ping(ProfileContext(random: taken.pingRandom), into: &ping)
        }
        taken.isActive = true
    }
}

extension DelegatedValues {
    /// A ping is a stanza, too.
    fileprivate var beforePing: DelegatedValues {
        switch self {
        case .stanzaCounters(let received, let sent): .stanzaCounters(received: received, sent: sent &- 1)
        case .nothing, .idle: self
        }
    }
}

extension WireOffloadCounters {
    init(_ counters: OffloadCounters) {
        self.init()
        sent = counters.sent
        confirmed = counters.confirmed
        answered = counters.answered
        absorbed = counters.absorbed
        wakesAvoided = counters.wakesAvoided
    }
}
