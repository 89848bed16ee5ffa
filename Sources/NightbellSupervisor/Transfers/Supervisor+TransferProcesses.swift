import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import TransferWire

/// Starting and replacing the processes that move files for users.
extension Supervisor {
    /// Does what is due. With nothing due this costs two comparisons.
    func superviseTransfers() {
        judgeMoment()
        guard let due = transferCare.due, due <= now else { return }
        transferCare.due = nil
        guard !supervision.isStopping else { return }
        takeQuits()
        for service in transferCare.services.values {
            if let left = service.timeUntilIssue {
                if left <= .zero { service.isWanted = true } else { transferCare.look(at: now + left) }
            }
            if let visit = service.visitAt, visit <= now { service.isWanted = true }
            supervise(service)
            if let due = service.nextDeadline { transferCare.look(at: due) }
        }
    }

    private func supervise(_ service: TransferService) {
        if service.process == nil, service.isWanted, service.history.mayStart(at: now) { start(service) }
        guard let process = service.process else { return }
        if let limit = service.mustReadBy, now >= limit {
            service.mustReadBy = nil
            if process.hasUnread { return replace(service, "it does not read what it is told") }
        }
        if let limit = service.mustEndBy, now >= limit {
            return replace(service, "it has closed its connection, and does not end")
        }
        service.send(at: now)
        guard service.owesSubscriptions, service.unsent.isEmpty, service.process != nil else { return }
        service.owesSubscriptions = false
        service.unsent = demandedSubscriptions(of: service.user)
        service.send(at: now)
    }

    private func start(_ service: TransferService) {
        let number = transferCare.nextNumber()
        do {
            service.process = try HelperProcess(
                service.program, number: number, listener: service.listener.rawValue,
                tokens: (TransferToken(.connection, number).watch, TransferToken(.exit, number).watch),
                at: now, loop)
            FaultInjection.point("after a transfer process is started")
            service.problem = ""
            service.visitAt = nil
            service.unsent = firstDemands(service)
            service.owesSubscriptions = false
            service.quits = []
            logger.debug(
                "the transfer process of uid \(service.user) is started",
                metadata: ["pid": "\(service.process?.pid ?? 0)"])
        } catch {
            fail(service, "it cannot be started: \(error)", startedAt: nil)
        }
    }

    /// It misbehaves.
    func replace(_ service: TransferService, _ reason: String) {
        guard let process = service.process else { return }
        if process.hasUnread { service.quits.formUnion(service.sentQuits) }
        process.kill()
        transferCare.ending.append(process)
        fail(service, reason, startedAt: process.startedAt)
    }

    private func fail(_ service: TransferService, _ reason: String, startedAt: Instant?) {
        forget(service)
        service.history.noteFailure(startedAt: startedAt, at: now)
        service.problem = reason
        service.isWanted = true
        transferCare.look(at: service.history.restartAt ?? now)
        log(
            .transfers, .warning, of: service.user,
            "the transfer process of uid \(service.user) is replaced: \(reason)")
    }

    private func forget(_ service: TransferService) {
        service.process = nil
        // The next one is told of clients that this one was not told of, also if they run again.
        service.quits.formUnion(service.unsent.flatMap(\.quitClients))
        service.unsent = []
        service.owesSubscriptions = false
        service.sentQuits = []
        service.sendAt = nil
        service.mustReadBy = nil
        service.mustEndBy = nil
    }

    /// Something has happened to a transfer process, or to the socket of one.
    func transfersReady(_ token: WatchToken) {
        guard let token = TransferToken(token) else { return }
        switch token.subject {
        case .listener:
            guard let service = transferCare.services.values.first(where: { $0.number == token.number }),
                service.process == nil
            else { return }
            service.isWanted = true
            transferCare.look(at: now)
        case .connection:
            guard let service = service(of: token.number) else { return }
            _ = receiveNotices(service, atMost: TransferService.noticesPerTurn)
        case .exit:
            if let service = service(of: token.number) { ended(service) }
            transferCare.ending.removeAll { $0.number == token.number && $0.reap() }
        }
    }

    private func service(of process: UInt64) -> TransferService? {
        transferCare.services.values.first { $0.process?.number == process }
    }

    private func ended(_ service: TransferService) {
        // All that it has said before counts.
        while receiveNotices(service, atMost: TransferService.noticesPerTurn) {}
        guard let process = service.process, let status = process.exitStatus() else { return }
        guard status == .exited(0) else {
            let problem = process.problem().map { "it cannot run: \($0)" } ?? "it has ended (\(status))"
            return fail(service, problem, startedAt: process.startedAt)
        }
        // The next one is told of all subscriptions; those to which it has none are dropped with them.
        let hasUntold = service.owesSubscriptions || service.unsent.contains { $0.hasSubscriptions }
        forget(service)
        service.isWanted = hasUntold
        if hasWork(service.user) {
            if !service.quits.isEmpty { service.isWanted = true }
            if service.hasDiscretionary, transferCare.isGoodMoment {
                // It has not read that. One that does so again and again is started less and less often.
                service.history.noteFailure(startedAt: process.startedAt, at: now)
                service.isWanted = true
            }
            // Results that no client comes for are removed when they are too old.
            service.visitAt = configuration.transfers.map { now + $0.visitInterval }
        } else if service.hasDiscretionary {
            // Nothing waits any more: the sessions are gone, as by another process of the user.
            service.hasDiscretionary = false
            feed(.fact(.discretionaryTransfers(of: service.user, false)))
        }
        transferCare.look(at: now)
        do {
            try service.awaitClients()
        } catch {
            log(.transfers, .error, of: service.user, "no transfer process is started any more: \(error)")
        }
    }

    /// How long the processes have to write to the disk what they have: the machine may be about to end.
    private static let longestEnd: Int64 = 3_000_000_000

    /// The supervisor ends.
    func endTransfers() {
        for (user, service) in transferCare.services {
            if let process = service.process {
                process.terminate()
                transferCare.ending.append(process)
            }
            service.process = nil
            if let socket = transferSocket(of: user) { unsafe unlink(socket) }
        }
        let limit = BootClock.now() + Self.longestEnd
        for process in transferCare.ending {
            process.reap(within: CInt(clamping: max(0, limit - BootClock.now()) / 1_000_000))
        }
        for process in transferCare.ending { process.kill() }
        let end = BootClock.now() + 1_000_000_000
        for process in transferCare.ending {
            process.reap(within: CInt(clamping: max(0, end - BootClock.now()) / 1_000_000))
        }
        transferCare = TransferCare()
    }
}
