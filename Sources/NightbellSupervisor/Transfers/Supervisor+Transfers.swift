import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import SwiftProtobuf
import TransferModel
import TransferWire

/// The transfer processes of all users.
struct TransferCare {
    var services: [UserID: TransferService] = [:]
    /// Processes that were killed and cannot be reaped yet.
    var ending: [HelperProcess] = []
    /// The number of services and processes that there were so far.
    var count: UInt64 = 0
    /// Clients that their users have just quit.
    var quits: [(user: UserID, client: String)] = []
    /// When to look at all services.
    var due: Instant?
    /// Whether discretionary transfers may run, as the processes know it.
    var isGoodMoment = false
    /// The monitor has had time until then to tell whether it is one; nil: nothing waits.
    var judgesFrom: Instant?

    /// Each has a socket, and may have a process.
    static let mostUsers = 256

    mutating func look(at instant: Instant) { due = due.map { min($0, instant) } ?? instant }

    /// How long the monitor has for its first facts.
    static let judgingTime: Duration = .seconds(5)

    mutating func nextNumber() -> UInt64 {
        count += 1
        return count
    }
}

/// Starting and replacing the processes that move files for users, and learning from them which clients have
/// to be woken.
extension Supervisor {
    // MARK: Services

    /// Where the clients of a user find its transfer process; nil: it has none. Root transfers nothing, and
    /// only root can start the processes of others.
    func transferSocket(of user: UserID) -> String? {
        let own = geteuid()
        guard configuration.transfers != nil, configuration.stateDirectory != nil,
            own == 0 ? user != 0 : user == own
        else { return nil }
        let path = configuration.runtimeDirectory + "/transfers/\(user)"
        return path.utf8.count <= UnixAddress.longestPath ? path : nil
    }

    private func store(of user: UserID) -> String? {
        configuration.stateDirectory.map { $0 + "/transfers/\(user)" }
    }

    /// Has a socket for the clients of a user. A process is started once one connects.
    @discardableResult
    func serveTransfers(of user: UserID) -> TransferService? {
        if let service = transferCare.services[user] {
            // A client that is about to connect shows whether the process reads.
            if service.process != nil, service.unsent.isEmpty {
                service.unsent.append(WireTransferDemand())
                transferCare.look(at: now)
            }
            return service
        }
        guard let program = configuration.transfers, let socket = transferSocket(of: user),
            let store = store(of: user), transferCare.services.count < TransferCare.mostUsers
        else { return nil }
        do {
            try Self.makeDirectory(configuration.runtimeDirectory + "/transfers", of: geteuid(), 0o711)
            for directory in [store.parentDirectory.parentDirectory, store.parentDirectory] {
                try Self.makeDirectory(directory, of: geteuid(), 0o711)
            }
            try Self.makeDirectory(store, of: user, 0o700)
            if user != geteuid() { try Self.letPass(store.parentDirectory.parentDirectory) }
            let service = try TransferService(
                user, number: transferCare.nextNumber(),
                program.program(of: user, changesUser: user != geteuid(), directory: store), socket: socket,
                loop)
            transferCare.services[user] = service
            return service
        } catch {
            log(.transfers, .error, of: user, "there are no transfers for uid \(user): \(error)")
            return nil
        }
    }

    private static func makeDirectory(_ path: String, of user: UserID, _ mode: mode_t) throws(SystemError) {
        if unsafe mkdir(path, mode) == 0 {
            if user != geteuid() {
                _ = try systemCall("chown \(path)") { unsafe lchown(path, user, gid_t.max) }
            }
            return
        }
        guard errno == EEXIST else { throw SystemError("mkdir \(path)") }
        var status = stat()
        _ = try systemCall("lstat \(path)") { unsafe lstat(path, &status) }
        if status.st_mode & S_IFMT == S_IFDIR, status.st_uid == 0, geteuid() == 0, user != 0 {
            // A worker that died had made it, and not given it away yet.
            _ = try systemCall("chown \(path)") { unsafe lchown(path, user, gid_t.max) }
            return
        }
        guard status.st_mode & S_IFMT == S_IFDIR,
            status.st_uid == user || status.st_uid == 0 && user == geteuid()
        else { throw SystemError(code: EPERM, call: "\(path) is not a directory of uid \(user)") }
    }

    /// A user's process has to reach its store. Our own files in the state directory are for us alone.
    private static func letPass(_ path: String) throws(SystemError) {
        var status = stat()
        _ = try systemCall("stat \(path)") { unsafe stat(path, &status) }
        let mode = status.st_mode & 0o7777
        guard mode & 0o001 == 0 else { return }
        _ = try systemCall("chmod \(path)") { unsafe chmod(path, mode | 0o011) }
    }

    /// The first turn: processes that the last worker had started have ended with it, and so have its
    /// sockets.
    func resumeTransfers() {
        guard configuration.transfers != nil, let state = configuration.stateDirectory else { return }
        let names = (try? SmallFile.names(in: state + "/transfers")) ?? []
        for user in names.compactMap({ UserID($0) }).sorted() {
            guard let service = serveTransfers(of: user), hasWork(service.user) else { continue }
            service.isWanted = true
            transferCare.look(at: now)
        }
        tellSubscriptions(of: Set(launches.declarations.values.compactMap(\.subscriber)))
    }

    /// Whether a user's store has sessions: each has a directory.
    private func hasWork(_ user: UserID) -> Bool {
        guard let store = store(of: user) else { return false }
        // The user can put anything there, and the supervisor may be root.
        let sessions = try? SmallFile.names(in: store + "/sessions", limit: 1, followsLink: false)
        return sessions?.isEmpty == false
    }

    // MARK: Clients that were quit

    /// Of these identifiers, those that were quit have no transfers any more.
    func cancelTransfers(ofQuit identifiers: [ClientIdentifier]) {
        guard configuration.transfers != nil else { return }
        for identifier in identifiers {
            guard let owner = supervision.ownership(of: identifier), owner.isQuit else { continue }
            transferCare.quits.append((owner.user, identifier.description))
            transferCare.look(at: now)
        }
        tellSubscriptions(
            of: Set(identifiers.compactMap { launches.declarations[$0]?.subscriber }))
    }

    private func takeQuits() {
        let quits = transferCare.quits
        transferCare.quits = []
        for (user, client) in quits {
            guard transferCare.services[user] != nil || hasWork(user),
                let service = serveTransfers(of: user)
            else { continue }
            if service.process == nil {
                service.quits.insert(client)
                service.isWanted = service.isWanted || hasWork(user)
            } else {
                service.unsent.append(.with { $0.quitClients = [client] })
            }
        }
    }

    /// The first demands to a process: it serves no client before it knows all that were quit.
    private func firstDemands(_ service: TransferService) -> [WireTransferDemand] {
        var names = service.quits
        ask { core in
            for identifier in core.identifiers {
                guard let owner = core.ownership(of: identifier), owner.isQuit, owner.user == service.user
                else { continue }
                names.insert(identifier.description)
            }
        }
        var left = names.sorted()[...]
        var demands: [WireTransferDemand] = []
        repeat {
            let part = left.prefix(TransferService.namesAtOnce)
            left = left.dropFirst(part.count)
            demands.append(
                .with {
                    $0.quitClients = Array(part)
                    $0.hasMore_p = !left.isEmpty
                })
        } while !left.isEmpty
        demands[0].moment = transferCare.isGoodMoment ? .good : .bad
        // Before the last names: what it needs is known once it serves clients.
        let subscriptions = demandedSubscriptions(of: service.user).map { demand in
            var demand = demand
            demand.hasMore_p = true
            return demand
        }
        return subscriptions + demands
    }

    // MARK: Issues

    /// The subscriptions of a user's clients, without those that were quit.
    private func demandedSubscriptions(of user: UserID) -> [WireTransferDemand] {
        let subscribers = launches.declarations.values.filter { declaration in
            declaration.subscriber == user
                && supervision.ownership(of: declaration.registration.identifier)?.isQuit != true
        }
        var left = subscribers.compactMap { declaration in
            declaration.newsstand.map { subscription in
                WireTransferSubscription.with {
                    $0.client = declaration.registration.identifier.description
                    $0.url = subscription.url.text
                    $0.intervalS = UInt64(clamping: subscription.interval)
                }
            }
        }.sorted { $0.client < $1.client }[...]
        var demands: [WireTransferDemand] = []
        repeat {
            let part = left.prefix(TransferService.subscriptionsAtOnce)
            left = left.dropFirst(part.count)
            demands.append(
                .with {
                    $0.subscriptions.subscriptions = Array(part)
                    $0.subscriptions.hasMore_p = !left.isEmpty
                })
        } while !left.isEmpty
        return demands
    }

    /// The subscriptions of these users have changed, or are new.
    func tellSubscriptions(of users: Set<UserID>) {
        guard configuration.transfers != nil else { return }
        for user in users.sorted() {
            guard let service = serveTransfers(of: user) else {
                log(.transfers, .warning, of: user, "no issues come for uid \(user): it has no transfers")
                continue
            }
            if service.process == nil {
                service.isWanted = true
            } else {
                service.unsent += demandedSubscriptions(of: user)
            }
            transferCare.look(at: now)
        }
    }

    /// Issues are begun by the clock on the wall: it was set, or has gone on while the machine slept.
    func lookAtIssues() {
        guard transferCare.services.values.contains(where: { $0.nextIssue != nil }) else { return }
        transferCare.look(at: now)
    }

    // MARK: The moment

    /// Tells all processes when discretionary transfers may run, or may not any more.
    private func judgeMoment() {
        guard ask({ $0.hasDiscretionaryTransfers }) else { return transferCare.judgesFrom = nil }
        let from = transferCare.judgesFrom ?? now + TransferCare.judgingTime
        transferCare.judgesFrom = from
        // With the first fact of the monitor there are the others.
        let isKnown = ask { $0.machine.network != nil } || now >= from || configuration.monitor == nil
        if !isKnown { transferCare.look(at: from) }
        let isGood = isKnown && ask { $0.isGoodMomentForTransfers }
        guard isGood != transferCare.isGoodMoment else { return }
        transferCare.isGoodMoment = isGood
        for service in transferCare.services.values where service.process != nil {
            service.unsent.append(.with { $0.moment = isGood ? .good : .bad })
            transferCare.look(at: now)
        }
    }

    // MARK: Processes

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
            service.unsent = firstDemands(service)
            service.quits = []
            logger.debug(
                "the transfer process of uid \(service.user) is started",
                metadata: ["pid": "\(service.process?.pid ?? 0)"])
        } catch {
            fail(service, "it cannot be started: \(error)", startedAt: nil)
        }
    }

    /// It misbehaves.
    private func replace(_ service: TransferService, _ reason: String) {
        guard let process = service.process else { return }
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
        // Names in demands that it may not have read are among those of the next one.
        service.quits.formUnion(service.unsent.flatMap(\.quitClients))
        service.unsent = []
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
        forget(service)
        service.isWanted = !service.quits.isEmpty && hasWork(service.user)
        if service.isWanted { transferCare.look(at: now) }
        do {
            try service.awaitClients()
        } catch {
            log(.transfers, .error, of: service.user, "no transfer process is started any more: \(error)")
        }
    }

    /// The supervisor ends.
    func endTransfers() {
        for (user, service) in transferCare.services {
            if let process = service.process { transferCare.ending.append(process) }
            service.process = nil
            if let socket = transferSocket(of: user) { unsafe unlink(socket) }
        }
        for process in transferCare.ending {
            process.kill()
            process.reap(within: 1_000)
        }
        transferCare = TransferCare()
    }

    // MARK: Notices

    /// Reads what a process has said; the rest of a flood waits for the next turn.
    ///
    /// - Returns: whether there may be more.
    private func receiveNotices(_ service: TransferService, atMost count: Int) -> Bool {
        for _ in 0..<count {
            guard let process = service.process else { return false }
            do throws(SystemError) {
                switch try process.connection.receive(into: &packet) {
                case .wouldBlock: return false
                case .end:
                    // Its status tells the rest.
                    process.stopReading()
                    service.mustEndBy = now + TransferService.endingTime
                    transferCare.look(at: now + TransferService.endingTime)
                    return false
                case .packet(let length, let isTruncated, _):
                    guard !isTruncated, length <= TransferPacket.maximumBytes,
                        let notice = try? WireTransferNotice(serializedBytes: packet.bytes),
                        take(notice, service)
                    else {
                        replace(service, "it sends what is no notice")
                        return false
                    }
                    guard service.history.admitReport(at: now) else {
                        replace(service, "it sends too much")
                        return false
                    }
                }
            } catch {
                replace(service, "its connection failed: \(error)")
                return false
            }
        }
        return true
    }

    /// False: a value is out of its range.
    private func take(_ notice: WireTransferNotice, _ service: TransferService) -> Bool {
        switch notice.notice {
        case .end(let end):
            // Any process of the user can open a session, also for a client that there cannot be.
            guard let client = ClientIdentifier(end.client) else { return true }
            guard let ended = EndedTransfers(end, of: service.user, client) else { return false }
            declareSubscriber(ended)
            feed(.fact(.transfers(ended)))
            FaultInjection.point("after transfers are reported")
        case .plan(let plan):
            service.noteNextIssue(plan.nextIssueS)
            if service.hasDiscretionary != plan.hasDiscretionary_p {
                service.hasDiscretionary = plan.hasDiscretionary_p
                feed(.fact(.discretionaryTransfers(of: service.user, plan.hasDiscretionary_p)))
            }
            transferCare.look(at: now)
        case nil:
            return false
        }
        return true
    }

    /// An issue is there for a client that does not exist yet.
    private func declareSubscriber(_ ended: EndedTransfers) {
        guard ended.session == Supervision.newsstand, supervision.client(named: ended.client) == nil,
            let declaration = launches.declarations[ended.client], declaration.subscriber == ended.user,
            launches.returning.processes[ended.client] == nil,
            supervision.ownership(of: ended.client)?.isQuit != true
        else { return }
        declare(declaration, RequestKey(connection: 0, request: 0), isRequested: false)
    }
}

extension Declaration {
    /// The user of a client that subscribes to issues.
    var subscriber: UserID? { newsstand.map { _ in registration.user } }
}

extension EndedTransfers {
    /// nil: a value is out of its range.
    fileprivate init?(_ end: WireTransferEnd, of user: UserID, _ client: ClientIdentifier) {
        guard end.number > 0, (1...Subject.longestPath).contains(end.session.utf8.count) else { return nil }
        self.init(
            of: user, client, session: end.session, number: end.number, mayWait: end.isDiscretionary)
    }
}

extension String {
    /// The path without its last component.
    fileprivate var parentDirectory: String {
        lastIndex(of: "/").map { String(self[..<$0]) } ?? self
    }
}
