import Glibc
import LinuxSystem
import NightbellCore
import NightbellProfiles

/// The parts of an embedded supervisor: the core, the sockets, and one epoll set that watches all of them.
///
/// A libevent watch would cost this process 170 bytes for each socket. In an epoll set the kernel holds all
/// of that, and the whole set is one descriptor for the host's loop.
///
/// Sendable: mutable state is touched only with the lock held, or by the serving thread, of which there is
/// one at a time; events are delivered without the lock.
@safe
final class ParkingLoop: @unchecked Sendable {
    private let lock = Lock()
    private let watched: PollSet
    private let timer: TimerDescriptor
    /// Readable from `close` on.
    private let bell: EventDescriptor
    private let configuration: EmbeddedSupervisor.Configuration
    private let deliver: @Sendable ([ParkedEvent]) -> Void
    private let onClosed: @Sendable () -> Void

    private var parking: Parking
    private var held = HeldSockets()
    private var engine = OffloadEngine()
    /// Reused for each turn, unless that was a large one.
    private var actions: [Parking.Action] = []
    private var events: [ParkedEvent] = []
    /// Used by the serving thread only.
    private var found: [(token: SocketToken, readiness: Readiness)] = []
    private var told: [ParkedEvent] = []
    /// Sockets that the host is told of, still watched: it claims most of them at once.
    private var ignored: [SocketToken] = []
    private var armedDeadline: Instant?
    private var isClosed = false

    /// The most sockets that one turn handles.
    private static let enough = 256

    init(
        _ configuration: EmbeddedSupervisor.Configuration,
        deliver: @escaping @Sendable ([ParkedEvent]) -> Void,
        onClosed: @escaping @Sendable () -> Void
    ) throws(EmbeddedError) {
        self.configuration = configuration
        self.deliver = deliver
        self.onClosed = onClosed
        parking = Parking(settings: configuration.settings)
        do {
            watched = try PollSet()
            timer = try TimerDescriptor()
            bell = try EventDescriptor()
            try watched.add(timer.rawValue)
            try watched.add(bell.rawValue)
        } catch {
            throw EmbeddedError(.resources, error)
        }
    }

    var descriptor: CInt { watched.rawValue }

    func startThread() throws(EmbeddedError) {
        let code = Thread.start { [self] in
            while serve(waits: true) {}
        }
        guard code == 0 else {
            throw EmbeddedError(.resources, SystemError(code: code, call: "pthread_create"))
        }
    }

    // MARK: The host's calls

    func park(
        _ socket: CInt, _ profile: ParkingProfile?, _ idleTag: String?, _ keepAlive: Duration?,
        _ state: [UInt8]
    ) throws(EmbeddedError) -> SocketToken {
        guard state.count <= configuration.stateLimit else {
            throw EmbeddedError(
                .stateTooLarge, "\(state.count) bytes of state, but the limit is \(configuration.stateLimit)")
        }
        let delegated = try Self.delegated(idleTag, profile)
        let conversation = try profile.map { profile throws(EmbeddedError) in
            try begin(profile, delegated, socket)
        }
        lock.lock()
        defer { lock.unlock() }
        guard !isClosed else { throw .closed }
        guard parking.count < configuration.socketLimit else {
            throw EmbeddedError(.tooManySockets, "\(parking.count) sockets are parked already")
        }
        let terms = conversation.flatMap { OffloadEngine.terms(of: $0, socket) }
        let token = parking.park(
            hasProfile: conversation != nil, pinging: terms, keepAlive: keepAlive, at: now)
        do {
            // The beginning of a ping may lie in a socket for a while: it is to be reported once, and its
            // rest as well.
            try watched.add(socket, conversation == nil ? .once : .edges, mark: token.rawValue)
        } catch {
            _ = parking.remove(token, .withdrawn)
            throw EmbeddedError(error.code == EEXIST ? .alreadyParked : .notWatchable, error)
        }
        held.insert(socket, conversation, setKeepAlive(profile, socket), state: state, at: token.slot)
        setTimer()
        return token
    }

    private static func delegated(
        _ idleTag: String?, _ profile: ParkingProfile?
    ) throws(EmbeddedError) -> DelegatedValues {
        guard let idleTag else { return .nothing }
        guard let tag = Idle.Tag(idleTag) else {
            throw EmbeddedError(
                .profile, "an IMAP tag has 1 to \(Idle.Tag.longest) of the characters that RFC 9051 §9 allows"
            )
        }
        let delegated = DelegatedValues.idle(Idle(tag: tag, phase: .idling))
        guard profile?.settings.takes(delegated) == true else {
            throw EmbeddedError(.profile, "an IMAP tag is for the profile imap")
        }
        return delegated
    }

    private func begin(
        _ profile: ParkingProfile, _ delegated: DelegatedValues, _ socket: CInt
    ) throws(EmbeddedError) -> Profile {
        do {
            guard let facts = try SocketFacts.Brief.inspect([socket])[0] else {
                throw EmbeddedError(.notWatchable, "its properties cannot be read")
            }
            guard facts.isSocket, !facts.isListening else {
                throw EmbeddedError(.profile, "a profile is for a socket that is connected")
            }
            if case .refused(let obstacle) = ReplyAuthority(socket) {
                throw EmbeddedError(.profile, "\(obstacle)")
            }
            if case .tcp = profile.settings, TCPKeepAlive(of: socket) == nil {
                throw EmbeddedError(.profile, "the profile tcp: not a TCP connection")
            }
            var conversation = try Profile(profile.settings, over: facts.isStream ? .stream : .datagram)
            conversation.begin(delegating: delegated)
            return conversation
        } catch let error as SystemError {
            throw EmbeddedError(.notWatchable, error)
        } catch let error as EmbeddedError {
            throw error
        } catch {
            throw EmbeddedError(.profile, "the profile \(profile.name): \(error)")
        }
    }

    private func setKeepAlive(_ profile: ParkingProfile?, _ socket: CInt) -> TCPKeepAlive? {
        guard case .tcp(let settings) = profile?.settings, let former = TCPKeepAlive(of: socket) else {
            return nil
        }
        TCPKeepAlive(settings).apply(to: socket)
        return former
    }

    func claim(_ token: SocketToken) throws(EmbeddedError) -> ClaimedSocket {
        lock.lock()
        defer { lock.unlock() }
        return try take(token, .claimed)
    }

    func claimAll() -> [ClaimedSocket] {
        lock.lock()
        defer { lock.unlock() }
        return takeAll(.claimed)
    }

    func release(_ token: SocketToken) throws(EmbeddedError) {
        lock.lock()
        defer { lock.unlock() }
        let taken = try take(token, .released)
        ForeignDescriptor.close(OwnedDescriptor(adopting: taken.descriptor))
    }

    func send(_ bytes: [UInt8], to token: SocketToken) throws(EmbeddedError) -> Int {
        lock.lock()
        defer { lock.unlock() }
        guard parking.contains(token) else { throw .unknownToken }
        guard !parking.isHeld(token) else { return 0 }
        let taken = SocketTraffic.write(bytes, on: held.descriptor(token.slot))
        if taken > 0, taken < bytes.count {
            // Neither our messages nor the host's may get into the middle of it.
            parking.hold(token, into: &actions)
            perform()
        }
        return taken
    }

    /// Both steps under one lock.
    func sendOrClaim(_ bytes: [UInt8], to token: SocketToken) throws(EmbeddedError) -> UnsentRest? {
        lock.lock()
        defer { lock.unlock() }
        guard parking.contains(token) else { throw .unknownToken }
        let taken = parking.isHeld(token) ? 0 : SocketTraffic.write(bytes, on: held.descriptor(token.slot))
        guard taken < bytes.count else { return nil }
        return UnsentRest(socket: try take(token, .claimed), bytes: Array(bytes[taken...]))
    }

    var counters: EmbeddedCounters {
        lock.lock()
        defer { lock.unlock() }
        return EmbeddedCounters(
            sockets: parking.count, stateBytes: held.stateByteCount, parking: parking.counters,
            pings: parking.pingCounters)
    }

    func close() {
        lock.lock()
        let wasClosed = isClosed
        isClosed = true
        let left = takeAll(.released)
        lock.unlock()
        for socket in left { ForeignDescriptor.close(OwnedDescriptor(adopting: socket.descriptor)) }
        guard !wasClosed else { return }
        onClosed()
        do {
            try bell.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    private func take(
        _ token: SocketToken, _ departure: Parking.Departure
    ) throws(EmbeddedError) -> ClaimedSocket {
        let isInsideMessage = parking.isHeld(token)
        guard parking.remove(token, departure) else { throw .unknownToken }
        do {
            try watched.remove(held.descriptor(token.slot))
        } catch {
            // Its number is free now, or another file's, as far as the kernel tells.
            _ = held.remove(token.slot, isOurs: false)
            throw .broken(error)
        }
        let taken = held.remove(token.slot, isOurs: true)
        return ClaimedSocket(
            descriptor: taken.descriptor, state: taken.state, token: ParkingToken(token),
            isInsideMessage: isInsideMessage, idle: IMAPIdle(taken.delegated))
    }

    /// Leaves out sockets that other code has closed.
    private func takeAll(_ departure: Parking.Departure) -> [ClaimedSocket] {
        parking.tokens.compactMap { try? take($0, departure) }
    }

    // MARK: One turn

    /// False: there will never be work again.
    func serve(waits: Bool) -> Bool {
        found.removeAll(keepingCapacity: true)
        watched.collect(limit: Self.enough, waits: waits) { mark, readiness in
            found.append((SocketToken(rawValue: mark), readiness))
        }
        lock.lock()
        let isOver = isClosed
        if !isOver { turn() }
        lock.unlock()
        if !told.isEmpty { deliver(told) }
        told.removeAll(keepingCapacity: told.count <= Self.enough)
        if !ignored.isEmpty { ignoreUnclaimed() }
        return !isOver
    }

    private func ignoreUnclaimed() {
        lock.lock()
        defer { lock.unlock() }
        for token in ignored where parking.contains(token) { ignore(token) }
        ignored.removeAll(keepingCapacity: ignored.count <= Self.enough)
    }

    private func turn() {
        clearTimer()
        for (token, readiness) in found {
            // It may have been claimed since the kernel was asked.
            guard parking.contains(token) else { continue }
            if parking.isInspecting(token) {
                inspect(token, Conditions(readiness))
            } else {
                parking.fired(token, Conditions(readiness), into: &actions)
            }
        }
        parking.endTurn(at: now, into: &actions)
        perform(inTurn: true)
        setTimer()
        // Not empty if `deliver` has called `serve`.
        told.removeAll(keepingCapacity: true)
        swap(&told, &events)
    }

    /// - Parameter conditions: as the kernel has just reported them. It reports later ones by themselves.
    private func inspect(_ token: SocketToken, _ conditions: Conditions) {
        let (descriptor, isLocal) = (held.descriptor(token.slot), held.isLocal(token.slot))
        let inspection = engine.inspect(
            descriptor, &held[profile: token.slot], peer: peer(of: descriptor, token),
            isLocal: isLocal,
            allowance: parking.noiseAllowance(token, at: now), conditions)
        parking.inspected(token, inspection, at: now, into: &actions)
    }

    /// The other end, if its address matters.
    private func peer(of descriptor: CInt, _ token: SocketToken) -> Endpoint? {
        let profile = held[profile: token.slot]
        guard profile.usesPeer || profile.transport == .datagram else { return nil }
        return SocketAddress(peerOf: descriptor).flatMap { Endpoint($0) }
    }

    /// Actions may cause further actions.
    ///
    /// - Parameter inTurn: the caller is the serving thread, which calls `ignoreUnclaimed` afterwards.
    private func perform(inTurn: Bool = false) {
        var index = 0
        while index < actions.count {
            switch actions[index] {
            case .notify(let token, let reasons):
                events.append(ParkedEvent(token: ParkingToken(token), reasons: reasons))
            case .watch(let token):
                watch(token)
            case .ignore(let token):
                if inTurn { ignored.append(token) } else { ignore(token) }
            case .ping(let token, let again):
                sendPing(token, again: again)
            case .lookForAnswer(let token):
                if parking.isInspecting(token) {
                    inspect(token, Conditions(Poll.now(held.descriptor(token.slot))))
                }
                parking.answerLookedFor(token, at: now, into: &actions)
            }
            index += 1
        }
        actions.removeAll(keepingCapacity: actions.count <= 2 * Self.enough)
    }

    private func watch(_ token: SocketToken) {
        do {
            try watched.watchOnce(held.descriptor(token.slot), mark: token.rawValue)
        } catch {
            // The kernel would report nothing of it.
            parking.fired(token, .error, into: &actions)
        }
    }

    private func ignore(_ token: SocketToken) {
        // A socket that other code has closed is not watched; `claim` reports that.
        try? watched.ignore(held.descriptor(token.slot), mark: token.rawValue)
    }

    private func sendPing(_ token: SocketToken, again: Bool) {
        guard parking.isInspecting(token) else { return }
        let descriptor = held.descriptor(token.slot)
        let former = held[profile: token.slot]
        let random =
            again
            ? held.pingRandom(token.slot) ?? engine.nextRandom(for: former) : engine.nextRandom(for: former)
        let isMade = engine.makePing(
            &held[profile: token.slot], peer: peer(of: descriptor, token), random: random, again: again)
        guard isMade else {
            if !again { parking.pingOmitted(token, at: now) }
            return
        }
        if !again { held.notePing(random, token.slot) }
        guard !engine.sendPing(on: descriptor, former.transport, again: again) else { return }
        held[profile: token.slot] = former
        parking.pingFailed(token, at: now, into: &actions)
    }

    // MARK: The timer

    private var now: Instant { Instant(nanoseconds: BootClock.now()) }

    /// Sets the timer if it would come too late. If it comes too early, it is set again then.
    private func setTimer() {
        guard let deadline = parking.nextDeadline else { return }
        if let armedDeadline, armedDeadline <= deadline { return }
        armedDeadline = deadline
        do {
            try timer.set(absoluteNanoseconds: deadline.nanoseconds)
        } catch {
            preconditionFailure("a timer of our own can be set: \(error)")
        }
    }

    private func clearTimer() {
        guard let deadline = armedDeadline, deadline <= now else { return }
        armedDeadline = nil
        do {
            try timer.clear()
        } catch {
            preconditionFailure("a timer of our own can be read: \(error)")
        }
    }
}
