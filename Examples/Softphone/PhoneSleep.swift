import Glibc
import Nightbell
import SIPKit

/// The state that a phone needs in order to sleep.
@MainActor
struct SleepState {
    /// Nil: there is no supervisor, the phone stays awake.
    var client: Client?
    var parked: ParkedSocket?
    /// From the answer to `prepareToSuspend` until the next wake the socket is not ours to read.
    var isSuspending = false
    var isInBackground = false
    var callTasks: [String: BackgroundTask] = [:]
    /// Calls with media, and when the phone next reports them.
    var conversations: Set<String> = []
    var nextMediaSign: ContinuousClock.Instant?
    /// A call keeps it in the foreground, because its media is not heard.
    var isInForegroundForCall = false
    var registrationTask: BackgroundTask?
    var keepAliveTimeout: Duration?
    /// From here on the keep-alive timeout runs.
    var keepAliveSince: ContinuousClock.Instant?
}

/// Everything that a phone does in order to sleep.
///
/// - The connection is handed over as soon as it is up, and released before it is closed. Where the
///   supervisor can launch this program it is handed over to survive: the next process goes on with it.
/// - Half of the registration's time is the keep-alive timeout; its handler registers again, with the next
///   `CSeq` and nonce count. So the other half is left in case the server is away. A phone that was launched
///   sets a timeout before it is registered: without network it sleeps, and tries again each time. So does
///   one with a server that does not answer, with the shortest timeout that there is.
/// - Each call, each registration under way and each repair of the connection holds a background task: the
///   wake's own budget is only 10 s, and a phone that waits for an answer must not be put to sleep.
/// - A conversation that lasts is media: the time of background tasks would be over after three minutes.
///   Short ones stay tasks, because media holds the phone awake for some seconds after its last sign. Where
///   PipeWire runs, this phone has no stream that would count, as it has no sound: there it is in the
///   foreground until the call is over.
/// - A phone is idle when no whole message waits in it and no message is half written. A message that has
///   only partly arrived does not count: it is kept, and its rest wakes the phone. Otherwise a peer that
///   never sends the rest could keep it awake for ever.
extension Phone {
    func connectToSupervisor(identifier: String, socketPath: String?) {
        var configuration = Client.Configuration(
            identifier: identifier, modes: [.voip, .audio], socketPath: socketPath)
        configuration.driver = .manual
        do {
            let client = try Client(configuration, handlers: handlers())
            sleep.client = client
            guard client.launchContext?.wasLaunched == true else { return }
            sleep.isInBackground = true
            try wakeAtLeast(every: client.minimumKeepAliveTimeout, client)
        } catch {
            complain("no supervisor, so this phone stays awake: \(error)")
        }
    }

    private func handlers() -> Client.Handlers {
        // The library calls them inside `processPending`, so on the main thread.
        func onMain<Value: Sendable>(_ body: @escaping @MainActor @Sendable (Phone, Value) -> Void)
            -> @Sendable (Value) -> Void
        {
            { [weak self] value in
                MainActor.assumeIsolated {
                    if let self { body(self, value) }
                }
            }
        }
        var handlers = Client.Handlers(wake: onMain { $0.woken($1) })
        handlers.prepareToSuspend = { [weak self] in
            MainActor.assumeIsolated { self?.prepareToSuspend() ?? [] }
        }
        let cancelled = onMain { (phone: Phone, _: Void) in phone.sleep.isSuspending = false }
        handlers.suspendCancelled = { cancelled(()) }
        handlers.backgroundTimeExpiring = onMain { phone, remaining in phone.timeIsNearlyUp(remaining) }
        handlers.willTerminate = onMain { phone, _ in phone.stop() }
        handlers.connectionLost = onMain { phone, error in phone.supervisorLost(error) }
        let reconnected = onMain { (phone: Phone, _: Void) in phone.supervisorBack() }
        handlers.reconnected = { reconnected(()) }
        handlers.socketLost = { [weak self] socket, error in
            MainActor.assumeIsolated { self?.socketLost(socket, error) }
        }
        handlers.keepAliveLost = onMain { phone, error in phone.stayAwake(because: error) }
        return handlers
    }

    func serveSupervisor() {
        do throws(NightbellError) {
            try sleep.client?.processPending()
        } catch {
            stayAwake(because: error)
            sleep.client?.close()
            sleep.client = nil
        }
    }

    /// Whether the keep-alive handler makes this phone register again in time.
    var isWokenForRefresh: Bool {
        sleep.isInBackground && sleep.keepAliveTimeout != nil && sleep.client?.isConnected == true
    }

    var mayRead: Bool { !sleep.isSuspending }

    // MARK: Messages of the supervisor

    private func woken(_ wake: Wake) {
        sleep.isSuspending = false
        let conditions = sleep.parked.map { wake.conditions(of: $0) } ?? []
        // Peek at the first byte, then read the clock: this is the time from packet to handler.
        let arrival = conditions.isEmpty ? nil : socket?.nextArrival()
        let latency = arrival.map { wallClock() - $0 }
        let bytes = conditions.isEmpty ? 0 : serveSocket()
        let isExplained =
            !wake.reasons.subtracting(.socket).isEmpty || bytes > 0
            || !conditions.isDisjoint(with: [.peerClosed, .hangUp, .error])
        eventLog.write(
            "wake",
            [
                "reasons": .list(wake.reasons.description.split(separator: "+").map(String.init)),
                "conditions": .text(conditions.description),
                "asleep_ns": .number(wake.asleepFor.nanoseconds),
                "latency_ns": .number(latency ?? -1),
                "bytes": .number(Int64(bytes)),
                "explained": .flag(isExplained),
            ])
    }

    private func prepareToSuspend() -> [ParkedSocket] {
        sleep.isSuspending = true
        guard let parked = sleep.parked, socket?.wantsToWrite == true else { return [] }
        return [parked]
    }

    private func keepAliveDue() {
        let now = ContinuousClock.now
        if let since = sleep.keepAliveSince, let timeout = sleep.keepAliveTimeout {
            let interval = now - since
            eventLog.write(
                "keep_alive",
                [
                    "interval_ms": .number(interval.milliseconds),
                    "timeout_ms": .number(timeout.milliseconds),
                    "late_ms": .number(max(0, (interval - timeout).milliseconds)),
                ])
        }
        sleep.keepAliveSince = now
        refresh()
    }

    private func timeIsNearlyUp(_ remaining: Duration) {
        eventLog.write("background_time_expiring", ["remaining_ms": .number(remaining.milliseconds)])
        hangUp()
        if sleep.registrationTask != nil { sleepUnregistered() }
        postponeRepair()
    }

    private func supervisorLost(_ error: NightbellError) {
        eventLog.write("supervisor_lost", ["reason": .text(error.description)])
        sleep.isSuspending = false
        if error.code == .identifierInUse { end(because: error) }
    }

    private func supervisorBack() {
        eventLog.write("supervisor_back")
        sleep.keepAliveSince = .now
    }

    private func socketLost(_ lost: ParkedSocket, _ error: NightbellError) {
        guard lost == sleep.parked else { return }
        sleep.parked = nil
        stayAwake(because: error)
    }

    /// This phone would not be woken in time, so it must not sleep.
    private func stayAwake(because error: NightbellError) {
        complain("staying awake: \(error)")
        eventLog.write("staying_awake", ["reason": .text(error.description)])
        sleep.keepAliveTimeout = nil
        guard sleep.isInBackground else { return }
        sleep.isInBackground = false
        try? sleep.client?.enterForeground()
    }

    // MARK: Requests of the phone

    func handOver(_ socket: SIPSocket) {
        guard let client = sleep.client else { return }
        do throws(NightbellError) {
            sleep.parked = try park(socket, client)
        } catch {
            stayAwake(because: error)
        }
    }

    private func park(_ socket: SIPSocket, _ client: Client) throws(NightbellError) -> ParkedSocket {
        do throws(NightbellError) {
            return try client.handOver(socket.descriptor, as: .voip, name: "sip", survives: true)
        } catch {
            guard error.code == .cannotLaunch else { throw error }
            return try client.handOver(socket.descriptor, as: .voip, name: "sip")
        }
    }

    /// The connection of this phone's last process, if there is one and it was parked.
    func takeOverSocket(_ transport: SIPTransport) -> SIPSocket? {
        guard let left = sleep.client?.launchContext?.sockets.first else { return nil }
        sleep.parked = left
        eventLog.write("taken_over")
        return SIPSocket(adopting: left.descriptor, transport: transport)
    }

    func release() {
        guard let parked = sleep.parked else { return }
        sleep.parked = nil
        // If this fails the supervisor is gone, and its duplicate with it.
        try? sleep.client?.release(parked)
    }

    /// Sets the keep-alive timeout to half of the registration's time.
    func sleepBetweenRefreshes(_ granted: Duration) {
        guard let client = sleep.client, sleep.parked != nil else { return }
        // A server that grants little may force a refresh later than at half, but never after the end.
        let least = client.minimumKeepAliveTimeout
        let timeout = granted / 2 >= least ? granted / 2 : min(least, granted * 9 / 10)
        do throws(NightbellError) {
            if sleep.keepAliveTimeout != timeout { try wakeAtLeast(every: timeout, client) }
            if !sleep.isInBackground, !sleep.isInForegroundForCall {
                try client.enterBackground()
                sleep.isInBackground = true
            }
        } catch {
            stayAwake(because: error)
        }
    }

    private func wakeAtLeast(every timeout: Duration, _ client: Client) throws(NightbellError) {
        try client.setKeepAliveTimeout(timeout) { [weak self] in
            MainActor.assumeIsolated { self?.keepAliveDue() }
        }
        sleep.keepAliveTimeout = timeout
        sleep.keepAliveSince = .now
    }

    /// Its registrar has not answered for as long as the phone may stay awake: the keep-alive handler asks
    /// again, as early as the supervisor allows, because nothing else wakes a phone without a registration.
    func sleepUnregistered() {
        if let client = sleep.client, let timeout = sleep.keepAliveTimeout,
            timeout > client.minimumKeepAliveTimeout
        {
            do throws(NightbellError) {
                try wakeAtLeast(every: client.minimumKeepAliveTimeout, client)
            } catch {
                stayAwake(because: error)
            }
        }
        endRegistrationTask()
    }

    func holdAwake(forCall callID: String) {
        sleep.callTasks[callID] = beginTask("call")
    }

    func callAnswered(_ callID: String) {
        sleep.conversations.insert(callID)
        if sleep.nextMediaSign == nil { sleep.nextMediaSign = .now + .seconds(5) }
    }

    func callEnded(_ callID: String) {
        sleep.conversations.remove(callID)
        if sleep.conversations.isEmpty {
            sleep.nextMediaSign = nil
            leaveForeground()
        }
        endTask(sleep.callTasks.removeValue(forKey: callID))
    }

    /// Reports media, which keeps the phone awake for as long as it is reported again in time.
    func tellOfMedia(at now: ContinuousClock.Instant) {
        guard let due = sleep.nextMediaSign, due <= now else { return }
        sleep.nextMediaSign = now + .seconds(2)
        guard let client = sleep.client, !sleep.isInForegroundForCall else { return }
        do throws(NightbellError) {
            try client.mediaActivity()
        } catch {
            guard error.code == .noStream, enterForegroundForCall(client) else { return }
        }
        for callID in sleep.conversations { endTask(sleep.callTasks.removeValue(forKey: callID)) }
    }

    private func enterForegroundForCall(_ client: Client) -> Bool {
        guard (try? client.enterForeground()) != nil else { return false }
        sleep.isInBackground = false
        sleep.isInForegroundForCall = true
        return true
    }

    /// The last call is over.
    private func leaveForeground() {
        guard sleep.isInForegroundForCall, let client = sleep.client else { return }
        sleep.isInForegroundForCall = false
        // Without a keep-alive timeout nothing would wake it to register again: it goes once it has
        // registered.
        guard sleep.keepAliveTimeout != nil else { return }
        do throws(NightbellError) {
            try client.enterBackground()
            sleep.isInBackground = true
        } catch {
            stayAwake(because: error)
        }
    }

    func holdAwakeForRegistration() {
        if sleep.registrationTask == nil { sleep.registrationTask = beginTask("registration") }
    }

    func endRegistrationTask() {
        endTask(sleep.registrationTask)
        sleep.registrationTask = nil
    }

    private func beginTask(_ name: String) -> BackgroundTask? {
        // An invalid task means that the time is up: the phone goes on until it is stopped.
        guard let task = try? sleep.client?.beginBackgroundTask(name), task.isValid else { return nil }
        return task
    }

    private func endTask(_ task: BackgroundTask?) {
        if let task { try? sleep.client?.end(task) }
    }
}
