import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

extension Session {
    // MARK: A thread of the library's own

    /// It inherits the signal mask of the calling thread, as every new thread does.
    func startThread() throws(NightbellError) {
        var thread = pthread_t()
        let context = unsafe Unmanaged.passRetained(self)
        let result = unsafe pthread_create(
            &thread, nil,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<Session>.fromOpaque(context).takeRetainedValue().runThread()
                return nil
            }, context.toOpaque())
        guard result == 0 else {
            unsafe context.release()
            let error = SystemError(code: result, call: "pthread_create")
            throw NightbellError(.system, error.description, errorNumber: result)
        }
        pthread_detach(thread)
    }

    private func runThread() {
        enum Step { case wait, handle, end }
        while true {
            let step = core.turn { core in
                if !core.notices.isEmpty { return .done(Step.handle) }
                if core.state.closure != nil { return .done(Step.end) }
                // The thread that reads now notifies us when it is done.
                if core.isReading { return .wait(.max) }
                core.isReading = true
                return .done(Step.wait)
            }
            switch step {
            case .end:
                return
            case .wait:
                watcher.wait()
                core.withLock { $0.isReading = false }
                core.changed()
                processPending()
            case .handle:
                processPending()
            }
        }
    }

    // MARK: Handling messages

    /// Reads, connects and runs handlers until no work is left. Returns at once inside a handler.
    func processPending() {
        let (isOurs, earlyWake) = core.withLock { core -> (Bool, Wake?) in
            if core.isRunning { return (false, nil) }
            core.isRunning = true
            if let wake = Self.earlyWake(watcher, &core) { return (true, wake) }
            if core.isFlagRaised { watcher.lowerFlag() }
            core.isFlagRaised = false
            return (true, nil)
        }
        guard isOurs else { return }
        handleEarlyWake(earlyWake)
        // The message of such a wake is still being encoded: the descriptor signals its arrival.
        var mayRead = earlyWake == nil
        while let step = nextStep(mayRead) {
            switch step {
            case .handle(let notice):
                mayRead = handle(notice)
            case .connect:
                reconnect()
            case .read(let link):
                mayRead = read(link)
            }
        }
        // Rarely true, and its data is not in the cache after a wake.
        if core.withLock({ $0.state.closure != nil }) { wakeConsumerIfClosed() }
    }

    private enum Step {
        case handle(SessionState.Notice)
        case connect
        case read(Link)
    }

    /// nil: no work is left, and another thread may run handlers.
    private func nextStep(_ mayRead: Bool) -> Step? {
        core.withLock { core in
            if core.notices.isEmpty {
                switch core.state.tick(at: BootClock.now()) {
                case .connect: return .connect
                case .nothing(let actions): perform(actions, on: &core)
                }
                perform(flush(&core), on: &core)
            }
            if !core.notices.isEmpty { return .handle(core.notices.removeFirst()) }
            if mayRead, !core.isReading, let link = core.link {
                core.isReading = true
                return .read(link)
            }
            core.isRunning = false
            return nil
        }
    }

    /// - Returns: whether to read on; if not, the descriptor signals further work.
    private func handle(_ notice: SessionState.Notice) -> Bool {
        switch notice {
        case .wake(let wake, let connection):
            let news = core.withLock { core in
                core.preparedEpoch = nil
                return core.early.remainder(of: wake)
            }
            if let news { handlers.wake(news) }
            if wake.reasons.contains(.keepAlive) { runKeepAliveHandler() }
            if wake.reasons.contains(.networkChanged) { handlers.networkChanged?(wake.lostSockets) }
            if wake.reasons.contains(.fetch) {
                handlers.fetch(Fetch(budget: wake.fetchBudget, wakeID: wake.id, session: self))
            }
            if wake.reasons.contains(.push) {
                handlers.push(Pushes(budget: wake.pushBudget, wakeID: wake.id, session: self))
            }
            if wake.reasons.contains(.transfer) { holdTransfers(wake) }
            for event in wake.notifications {
                switch event {
                case .delivered(let delivery): handlers.notificationDelivered(delivery)
                case .activated(let activation): handlers.notificationActivated(activation)
                }
            }
            handled(wake, connection)
        case .keepAlive:
            runKeepAliveHandler()
        case .didEnterBackground:
            handlers.didEnterBackground()
            core.withLock { core in
                // The client may have returned to the foreground in between.
                guard core.state.enteredBackground() else { return }
                perform([.send(WireClientMessage(.backgroundEntered(.init())))], on: &core)
            }
        case .prepareToSuspend(let epoch, let connection):
            handleEarlyWake(prepare(epoch, connection))
            return false
        case .suspendCancelled(let epoch):
            let wasPrepared = core.withLock { core in
                defer { core.preparedEpoch = nil }
                return core.preparedEpoch == epoch
            }
            if wasPrepared || isForProgram { handlers.suspendCancelled() }
        case .programSuspended: handlers.programSuspended()
        case .backgroundTimeExpiring(let remaining): timeExpires(remaining)
        case .taskLost(let task, let expired): expired(task, .zero)
        case .willTerminate(let budget): handlers.willTerminate(budget)
        case .connectionLost(let error): handlers.connectionLost(error)
        case .reconnected: handlers.reconnected()
        case .socketLost(let socket, let error): handlers.socketLost(socket, error)
        case .keepAliveLost(let error): handlers.keepAliveLost(error)
        case .restored(let context): handlers.restored(context)
        }
        return true
    }

    /// The results are handled by the threads of the sessions, which may take longer than the wake.
    private func holdTransfers(_ wake: Wake) {
        for identifier in wake.finishedTransfers {
            if let link = transfers.withLock({ $0[identifier]?.link }) {
                link.wake()
            } else {
                awaitTransfers(identifier)
            }
        }
    }

    /// A process that was launched for a session needs time to make it.
    private func awaitTransfers(_ identifier: String) {
        guard awaitedTransfers.withLock({ $0[identifier] == nil }) else { return }
        let expired: @Sendable (BackgroundTask, Duration) -> Void = { [weak self] _, _ in
            self?.endAwaiting(identifier)
        }
        let answer = try? request(.beginTask(name: "transfers \(identifier)", expired: expired))
        guard case .task(let task)? = answer, task.isValid else { return }
        awaitedTransfers.withLock { $0[identifier] = task }
        // It may be made at this moment, and holds the client itself then.
        guard let link = transfers.withLock({ $0[identifier]?.link }) else { return }
        link.wake()
        endAwaiting(identifier)
    }

    /// The session is made, or never will be.
    func endAwaiting(_ identifier: String) {
        guard let task = awaitedTransfers.withLock({ $0.removeValue(forKey: identifier) }) else { return }
        _ = try? request(.endTask(task))
    }

    private func runKeepAliveHandler() {
        let handler = core.withLock { $0.state.holdings.takeDueKeepAlive() }
        handler?()
    }

    private func timeExpires(_ remaining: Duration) {
        let told = BootClock.now()
        handlers.backgroundTimeExpiring(remaining)
        for task in core.withLock({ $0.state.holdings.expiring }) {
            // It may have been ended meanwhile by another handler.
            let expired = core.withLock { $0.state.holdings.tasks[task.id]?.expired }
            expired?(task, max(.zero, remaining - .nanoseconds(BootClock.now() - told)))
        }
    }

    // MARK: Suspension

    /// - Returns: the wake that has ended the suspension already. The process may have been stopped in the
    ///   call that sends ReadyToSuspend: this wake then comes first.
    private func prepare(_ epoch: UInt64, _ connection: UInt64) -> Wake? {
        if core.withLock({ Self.isOver(connection, $0) }) { return nil }
        core.withLock { core in
            core.preparedEpoch = epoch
            core.early.suspensionAnnounced()
        }
        let notIdle = handlers.prepareToSuspend()
        // If this took so long that the process was suspended and woken meanwhile, the answer is stale.
        readWhatIsThere()
        return core.withLock { core in
            guard !Self.isOver(connection, core) else { return nil }
            if notIdle.isEmpty { Self.watchSockets(epoch: epoch, watcher, &core) }
            core.acknowledgements.suspensionAnswered()
            // Half of all sleepers are stopped in this call and wake up in it: no cleanup may follow it.
            let isSaid =
                notIdle.isEmpty && core.outbox.isEmpty && !core.state.holdings.hasProfiles
                && core.link?.send(ReadyPacket(epoch)) ?? false
            if !isSaid {
                perform([.send(core.state.readyToSuspend(epoch: epoch, notIdle: notIdle))], on: &core)
            }
            return Self.earlyWake(watcher, &core)
        }
    }

    private static func isOver(_ connection: UInt64, _ core: Core) -> Bool {
        guard core.state.connection == connection else { return true }
        return core.notices.contains { notice in
            switch notice {
            case .wake, .suspendCancelled: true
            case .keepAlive, .didEnterBackground, .prepareToSuspend, .programSuspended,
                .backgroundTimeExpiring, .taskLost, .willTerminate, .connectionLost, .reconnected,
                .socketLost, .keepAliveLost, .restored:
                false
            }
        }
    }

    private func readWhatIsThere() {
        let link = core.withLock { core -> Link? in
            guard !core.isReading, let link = core.link else { return nil }
            core.isReading = true
            return link
        }
        if let link { read(link) }
    }

    // MARK: Unmodified programs

    func reportAwake(_ reason: String) {
        core.withLock { core in
            guard core.state.isConnected else { return }
            perform([.send(WireClientMessage(.awakeReason(.with { $0.reason = reason })))], on: &core)
        }
    }

    func reportPagedOut(_ pagedOut: ClientInfo.PagedOut) {
        core.withLock { core in
            guard core.state.isConnected else { return }
            perform([.send(WireClientMessage(.pagedOut(pagedOut.wire)))], on: &core)
        }
    }

    // MARK: The sequence of wakes

    private func handled(_ wake: Wake, _ connection: UInt64) {
        if isForProgram { return }
        let (consumer, delivered) = core.withLock { core in
            let outcome = core.acknowledgements.handled(wake, connection: connection)
            confirm(outcome.confirm, on: &core)
            guard let delivered = outcome.deliver else {
                return (nil as CheckedContinuation<Wake?, Never>?, nil as Wake?)
            }
            defer { core.consumer = nil }
            return (core.consumer, delivered)
        }
        consumer?.resume(returning: delivered)
    }

    private func confirm(_ wakeID: UInt64?, on core: inout Core) {
        if let wakeID { perform([.send(.wakeDone(wakeID))], on: &core) }
    }

    func subscribe() -> UInt64? { core.withLock { $0.acknowledgements.subscribe() } }

    func unsubscribe(_ subscription: UInt64) {
        if isForked { return }
        let consumer = core.withLock { core -> CheckedContinuation<Wake?, Never>? in
            guard core.acknowledgements.isConsumer(subscription) else { return nil }
            confirm(core.acknowledgements.unsubscribe(subscription), on: &core)
            defer { core.consumer = nil }
            return core.consumer
        }
        consumer?.resume(returning: nil)
    }

    func nextWake(_ subscription: UInt64) async -> Wake? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let answer = core.withLock { core -> Wake?? in
                    // Two tasks share one iterator: the second gets nil.
                    if core.consumer != nil { return .some(nil) }
                    let offer = core.acknowledgements.next(subscription)
                    confirm(offer.confirm, on: &core)
                    switch offer.next {
                    case .wake(let wake): return wake
                    case .finished: return .some(nil)
                    case .wait:
                        core.consumer = continuation
                        return nil
                    }
                }
                if let answer { continuation.resume(returning: answer) }
            }
        } onCancel: {
            unsubscribe(subscription)
        }
    }

    /// The sequence ends with the client.
    func wakeConsumerIfClosed() {
        let consumer = core.withLock { core -> CheckedContinuation<Wake?, Never>? in
            guard core.state.closure != nil, core.notices.isEmpty, !core.isRunning else { return nil }
            defer { core.consumer = nil }
            return core.consumer
        }
        consumer?.resume(returning: nil)
    }
}
