import LinuxSystem

/// The supervisor's signal that a parked socket has woken this client.
final class WakeWord: Sendable {
    private let word: SharedWord

    init(_ word: consuming SharedWord) {
        self.word = word
    }

    /// The event that ended this suspension; nil if there was none yet.
    func conditions(endingEpoch epoch: UInt64) -> SocketConditions? {
        let value = word.value
        return value >> 8 == epoch ? SocketConditions(rawValue: UInt8(value & 0x3)) : nil
    }
}

extension Session {
    /// Adds the client's own sockets to the poll set for the suspension that it is about to accept.
    static func watchSockets(epoch: UInt64, _ watcher: borrowing Watcher, _ core: inout Core) {
        let sockets = core.state.holdings.sockets
        guard core.wakeWord != nil, !sockets.isEmpty, sockets.count <= EarlyWakes.socketLimit else { return }
        // For sockets with a profile, the supervisor first has to return delegated state.
        guard !core.state.holdings.hasProfiles else { return }
        // The poll set would report a descriptor that was handed over twice only once.
        guard Set(sockets.values.map(\.socket.descriptor)).count == sockets.count else { return }
        var watched: [ParkedSocket] = []
        for (id, parked) in sockets {
            // If a descriptor is closed already, the supervisor has to report that, and all others too.
            guard watcher.watchOnce(parked.socket.descriptor, mark: id) else { break }
            watched.append(parked.socket)
        }
        guard watched.count == sockets.count else {
            for socket in watched { watcher.remove(socket.descriptor) }
            return
        }
        core.early.ready(epoch: epoch, watching: watched, at: BootClock.now())
    }

    /// The wake that the wake word announces, if any. Call `collectReported` when it is handled.
    static func earlyWake(_ watcher: borrowing Watcher, _ core: inout Core) -> Wake? {
        guard core.early.isWatching else { return nil }
        guard let epoch = core.early.readyEpoch,
            let conditions = core.wakeWord?.conditions(endingEpoch: epoch),
            core.notices.isEmpty, !core.acknowledgements.hasConsumer
        else {
            collectReported(watcher, &core)
            return nil
        }
        if !core.early.reportOnly(conditions) {
            watcher.collect(limit: EarlyWakes.socketLimit) { id, readiness in
                core.early.report(id, SocketConditions(readiness))
            }
        }
        guard let wake = core.early.wake(budget: core.state.welcome.wakeBudget, at: BootClock.now()) else {
            return nil
        }
        core.preparedEpoch = nil
        return wake
    }

    /// Removes reported sockets, so that they do not keep the poll set readable.
    static func collectReported(_ watcher: borrowing Watcher, _ core: inout Core) {
        watcher.collect(limit: EarlyWakes.socketLimit) { id, _ in core.early.reportNothing(id) }
    }

    /// The descriptor belongs to its owner alone again.
    func forgetWatch(_ socket: ParkedSocket) {
        core.withLock { core in
            core.early.released(socket.id)
            // Another parked socket may have the same descriptor.
            let isShared = core.state.holdings.sockets.values.contains {
                $0.socket.descriptor == socket.descriptor
            }
            if !isShared { watcher.remove(socket.descriptor) }
        }
    }

    /// Runs the wake handler if the wake word announces a wake.
    func handleEarlyWake(_ wake: Wake?) {
        guard let wake else { return }
        handlers.wake(wake)
        core.withLock { Self.collectReported(watcher, &$0) }
    }
}

extension SocketConditions {
    init(_ readiness: Readiness) {
        self = []
        if readiness.contains(.readable) { insert(.readable) }
        if readiness.contains(.peerClosed) { insert(.peerClosed) }
        if readiness.contains(.hangUp) { insert(.hangUp) }
        if readiness.contains(.error) { insert(.error) }
    }
}
