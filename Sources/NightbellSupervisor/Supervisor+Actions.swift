import EventLoop
import Glibc
import Keeper
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension

/// Carries out the actions that the core asks for.
extension Supervisor {
    /// Persists the core's changes, then carries out its actions in order. Their outcomes are fed in later,
    /// so that the core never hears of an action's outcome before the actions after it are done.
    ///
    /// - Parameter context: of the request that the actions answer.
    func flush(_ context: inout RequestContext) {
        persist()
        var work = ActionBuffer()
        swap(&work, &buffer)
        for action in work.actions { perform(action, work, &context) }
        work.removeAll()
        swap(&work, &buffer)
    }

    /// For actions that answer no request.
    func flush() {
        guard !buffer.actions.isEmpty else { return persist() }
        var context = RequestContext()
        flush(&context)
    }

    private func perform(_ action: Action, _ work: ActionBuffer, _ context: inout RequestContext) {
        switch action {
        case .registered(let client, let key):
            registered(client, key, &context)
        case .refuseRegistration(let refusal, let key):
            guard let connection = connections[key.connection] else { return }
            disconnect(
                connection, with: error(refusal, to: context.newcomer?.identifier), request: key.request)
        case .answer(let answer, let client, let key):
            sendAnswer(client, answer, key)
        case .handedOver(let outcomes, let client, let key):
            handedOver(outcomes, client, key, work, context.handOver)
        case .commandAnswer(let refusal, let key):
            guard let connection = connections[key.connection] else { return }
            answer(connection, key.request, refusal.map { .error(WireError($0)) } ?? .done(WireDone()))
        case .notify(let client, let notice):
            guard let connection = connection(of: client) else { return }
            notify(connection, client, notice, work)
        case .arm(let token):
            armInTurn(token, pastEnd: false)
        case .inspectPaths(let client):
            beginInspectingPaths(client)
        case .armPastEnd(let token):
            armInTurn(token, pastEnd: true)
        case .beginOffload(let token):
            beginOffload(token)
        case .endOffload(let token):
            endOffload(token)
        case .ping(let token, let again):
            sendPing(token, again: again)
        case .lookForAnswer(let token):
            lookForAnswer(token)
        case .close(let token, let user):
            // The keeper may not have got its descriptor yet.
            journal?.link.flushDescriptors()
            parked.remove(token, of: user)
            memory.departures += 1
            forgetRecords(of: token)
            if offload.contains(token) { removeOffload(token) }
            if receiveBuffers.contains(token) { receiveBuffers.remove(token) }
        case .freeze(let client, let epoch):
            freeze(client, epoch: epoch)
        case .checkFreeze(let client, let epoch):
            report(client, epoch) { () throws(SuspensionError) in try suspender.progress(slot: client.slot) }
        case .thaw(let client):
            thaw(client)
        case .kill(let client, let reason):
            kill(client, reason)
        case .forget(let client, let identifier, let user):
            detach(client)
            forget(client, identifier)
            unsafe earlyWaker.remove(client.slot, user: user)
            if let connection = connection(of: client) { closeConnection(connection) }
        case .makeDormant(let client):
            makeDormant(client)
        case .launch(let client):
            launch(client)
        case .rejoined(let client, let key):
            rejoined(client, key, &context)
        case .declared(let client):
            declared(client, context)
        case .storeState(let client):
            storeState(client, context.state)
        case .dropState(let client):
            dropState(client)
        case .trace(let client, let trace):
            // Its program runs, without having told us: it must not keep the supervisor's protection.
            if case .doesNotSpeak = trace { noteOutcome(client, isOver: false) }
            report(trace, of: client, work)
        }
    }

    func connection(of client: ClientID) -> Connection? { connections[client] }

    // MARK: Answers

    static func text(of client: ClientID) -> String { "c" + String(client.rawValue, radix: 16) }

    /// Sends a client a message; before, tells it, if it does not know yet, that another worker serves it.
    private func notify(
        _ connection: Connection, _ client: ClientID, _ notice: Notice, _ work: ActionBuffer
    ) {
        if connection.owesRestart { announceRestart(connection) }
        if case .wake(let wake) = notice {
            let returned = takeReturned(client)
            let isUsual =
                wake.fetchBudget == nil && wake.observed.isEmpty && wake.notified.isEmpty
                && returned.isEmpty
                && receiveBuffers.tokens(of: client).isEmpty
            let isSent =
                isUsual
                ? send(WakePacket.bytes(of: wake, work.firedSockets[wake.sockets]), to: connection)
                : send(withDrops(WireSupervisorMessage(wake, work, returned)), to: connection)
            if isSent, let journal {
                FaultInjection.point("before a wake counts as told")
                journal.storeToldWake(wake.wakeID, of: client)
            }
        } else {
            if case .suspended = notice { connection.client?.awakeReason = "" }
            send(WireSupervisorMessage(notice, work, takeReturned(client)), to: connection)
        }
    }

    private func sendAnswer(_ client: ClientID, _ answer: Answer, _ key: RequestKey) {
        let isRefusal =
            switch answer {
            case .refused: true
            case .done, .backgroundTask, .backgroundTimeLeft, .scheduled: false
            }
        guard key.request != 0 || isRefusal, let connection = connection(of: client) else { return }
        send(WireSupervisorMessage(answer, request: key.request), to: connection)
    }

    private func handedOver(
        _ range: Range<Int>, _ client: ClientID, _ key: RequestKey, _ work: ActionBuffer,
        _ details: HandOverDetails
    ) {
        let outcomes = work.adoptions[range]
        let user = supervision.user(of: client) ?? ForeignDescriptor.anyUser
        var refused: [CInt] = []
        defer { ForeignDescriptor.close(refused[...], of: user) }
        for (index, outcome) in outcomes.enumerated() {
            guard let descriptor = packet.takeDescriptor() else { break }
            switch outcome {
            case .success(let token) where parked.contains(token):
                // Offered again, because the first HandOver was never answered.
                ForeignDescriptor.close(descriptor, of: user)
            case .success(let token):
                let name = details.names[index]
                store(token, key.request, UInt16(index), name, descriptor.rawValue)
                var isOffloaded = false
                if details.hasOptions {
                    if let profile = details.profiles[index] {
                        storeOffload(token, profile)
                        isOffloaded = true
                    }
                    if let wanted = details.receiveBuffers[index] {
                        storeReceiveBuffer(token, wanted, of: client)
                    }
                }
                parked.insert(descriptor, as: token, of: client, name: name, isOffloaded: isOffloaded)
                if isReported(.adopted(token)) { report(.adopted(token), of: client, work) }
            case .failure:
                refused.append(descriptor.take())
            }
        }
        guard let connection = connection(of: client) else { return }
        sendLater(Self.answer(outcomes, key.request, details.problems), to: connection)
    }

    private static func answer(
        _ outcomes: ArraySlice<Result<SocketToken, Refusal>>, _ request: UInt64, _ problems: [Int: String]
    ) -> [UInt8] {
        var packet = HandedOverPacket(capacity: outcomes.count)
        for outcome in outcomes {
            guard case .success(let token) = outcome else {
                return generalAnswer(outcomes, request, problems)
            }
            packet.add(token: token.rawValue)
        }
        return packet.finish(request: request)
    }

    private static func generalAnswer(
        _ outcomes: ArraySlice<Result<SocketToken, Refusal>>, _ request: UInt64, _ problems: [Int: String]
    ) -> [UInt8] {
        var message = WireHandedOver()
        message.adoptions = outcomes.map { WireHandedOver.Adoption($0) }
        for (index, problem) in problems where index < message.adoptions.count {
            if case .error = message.adoptions[index].result {
                message.adoptions[index].error.message = problem
            }
        }
        return encode(WireSupervisorMessage(request: request, .handedOver(message)))
    }

    private func store(
        _ token: SocketToken, _ request: UInt64, _ index: UInt16, _ name: String, _ descriptor: CInt
    ) {
        guard var journal, let socket = ask({ $0.snapshot(of: token, request: request, index: index) })
        else { return }
        journal.adopt(token, SocketRecordBytes(socket: socket, name: name, descriptor: descriptor))
    }

    // MARK: Sockets

    /// A socket that cannot be watched would never wake its owner: the owner is told at once instead.
    func arm(_ token: SocketToken, pastEnd: Bool) {
        do {
            guard parked.contains(token) else { return followUps.append(.fired(token, .error)) }
            if pastEnd { try parked.armPastEnd(token) } else { try parked.arm(token) }
        } catch {
            log(.sockets, .error, "cannot watch a socket: \(error)")
            followUps.append(.fired(token, .error))
        }
    }

    // MARK: Processes

    private func freeze(_ client: ClientID, epoch: UInt64) {
        guard let record = connection(of: client)?.client else { return }
        defer {
            if ask({ $0.allowsEarlyThaw(of: client) }) {
                unsafe earlyWaker.set(client.slot, epoch: epoch, thaw: suspender.quickThaw(slot: client.slot))
            }
        }
        guard record.isStoppedHere else { return followUps.append(.frozen(client, epoch: epoch)) }
        report(client, epoch) { () throws(SuspensionError) in
            // The process in a slot is detached before the slot is reused.
            if !suspender.isAttached(slot: client.slot) {
                try suspender.attach(slot: client.slot, process: record.process)
            }
            FaultInjection.point("before a freeze")
            defer { FaultInjection.point("after a freeze") }
            return try suspender.freeze(slot: client.slot)
        }
    }

    private func report(
        _ client: ClientID, _ epoch: UInt64, _ attempt: () throws(SuspensionError) -> FreezeProgress
    ) {
        do {
            switch try attempt() {
            case .frozen: followUps.append(.frozen(client, epoch: epoch))
            case .pending: followUps.append(.notFrozenYet(client, epoch: epoch))
            }
        } catch {
            switch error.code {
            case .processGone:
                // Its pidfd reports that, too.
                logger.debug("cannot suspend \(identifier(of: client)): \(error)")
            case .processMoved:
                // Detach it; the next attempt puts it into one of our cgroups again.
                detach(client)
                log(
                    .suspension, .notice, of: supervision.user(of: client),
                    "\(identifier(of: client)) was moved to another cgroup")
            case .notPermitted:
                guard let record = connection(of: client)?.client else { break }
                reportPermissionDenied(client, record, error)
                return followUps.append(.frozen(client, epoch: epoch))
            case .freezerMissing, .notAttached, .outOfDescriptors, .systemError:
                log(
                    .suspension, .warning, of: supervision.user(of: client),
                    "cannot suspend \(identifier(of: client)): \(error)")
            }
            followUps.append(.freezeFailed(client, epoch: epoch))
        }
    }

    func thaw(_ client: ClientID) {
        unsafe earlyWaker.clear(client.slot)
        FaultInjection.point("before a thaw")
        do {
            try suspender.thaw(slot: client.slot)
            FaultInjection.point("after a thaw")
        } catch {
            // A process that has ended needs no thaw; its pidfd reports its end.
            guard error.code != .processGone, error.code != .notAttached else { return }
            log(
                .suspension, .error, of: supervision.user(of: client),
                "cannot thaw \(identifier(of: client)): \(error)")
        }
    }

    /// Closes its descriptors; their numbers must not be used afterwards.
    func detach(_ client: ClientID) {
        unsafe earlyWaker.clear(client.slot)
        suspender.detach(slot: client.slot)
    }

    private func kill(_ client: ClientID, _ reason: TerminationReason) {
        if let attempt = launches.attempt(of: client) { return kill(attempt, client, reason) }
        guard let record = connection(of: client)?.client else { return }
        log(
            .ends, .notice, of: supervision.user(of: client),
            "ending \(record.identifier), pid \(record.process.pid): \(reason.name)")
        do {
            try record.process.signal(SIGKILL)
        } catch {
            guard error.code != ESRCH else { return }
            log(.ends, .error, of: supervision.user(of: client), "cannot end \(record.identifier): \(error)")
        }
    }

    /// Its end is reported by its pidfd.
    private func kill(_ attempt: LaunchAttempt, _ client: ClientID, _ reason: TerminationReason) {
        log(
            .ends, .notice, of: supervision.user(of: client),
            "ending \(identifier(of: client)), pid \(attempt.pid): \(reason.name)")
        do throws(SystemError) {
            if reason == .quitByUser {
                let deadline = now + supervision.settings.budgets.termination
                launches.noteAskedToEnd(until: deadline)
                try attempt.terminate(until: deadline)
            } else {
                try attempt.kill()
            }
        } catch {
            guard error.code != ESRCH else { return }
            log(
                .launches, .error, of: supervision.user(of: client),
                "cannot end \(identifier(of: client)): \(error)")
        }
    }

    func identifier(of client: ClientID) -> String {
        supervision.identifier(of: client)?.description ?? connection(of: client)?.client?.identifier
            ?? Self.text(of: client)
    }
}
