import Glibc
import LinuxSystem
import Logging
import NightbellCore

/// Logs when the state that outlives the supervisor cannot be written, and when it can again.
final class StateLog: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held.
    private let lock = Lock()
    private var limiter = LogLimiter()
    private let logger: Logger

    init(_ logger: Logger) {
        self.logger = logger
    }

    func report(_ change: IdentifierStore.Change) {
        switch change {
        case .damaged(let what): log("the table of identifiers: \(what)", .error)
        case .unwritable(let why): report(.unwritable(why), of: "the owners of identifiers")
        case .written: report(.written, of: "the owners of identifiers")
        }
    }

    /// - Parameter content: of the file, in the plural.
    func report(_ change: BackgroundWriter.Change, of content: String) {
        switch change {
        case .unwritable(let why):
            log("cannot write down \(content); it is tried again until it works: \(why)", .error)
        case .written: log("\(content) are written down again", .notice)
        }
    }

    private func log(_ message: String, _ level: Logger.Level) {
        lock.lock()
        defer { lock.unlock() }
        limiter.log(.state, message, level, logger, at: Instant(nanoseconds: BootClock.now()))
    }

    func tellOfHeldBack() {
        lock.lock()
        defer { lock.unlock() }
        limiter.logHeldBack(logger)
    }
}

/// The durable part of the state, on disk, shared by all workers: the owners of identifiers.
struct DurableState {
    /// nil: nothing is written down.
    let identifiers: IdentifierStore?
    /// nil: nothing is written down.
    let fetches: FetchStore?
    /// nil: nothing is written down.
    let notifications: NotificationStore?
    let log: StateLog
    /// The boot ID; empty: unknown.
    let boot: String
    /// Why nothing is written down, though there is a directory for it.
    private let refusal: String?

    /// - Parameter isFirst: no other worker has served. A later one has all that it must know from the keeper, and goes
    ///   on without a directory that cannot be believed any more: without it, all clients would be thawed.
    init(
        _ configuration: SupervisorConfiguration, isFirst: Bool, _ logger: Logger
    ) throws(SupervisorError) {
        let log = StateLog(logger)
        self.log = log
        boot = (try? BootClock.bootID()) ?? ""
        guard let directory = configuration.stateDirectory else {
            identifiers = nil
            fetches = nil
            notifications = nil
            refusal = nil
            return
        }
        if let problem = DirectoryTrust.problem(with: directory) {
            let text = "cannot believe what is in \(directory): \(problem)"
            guard !isFirst else { throw SupervisorError(.state, errorNumber: EPERM, text) }
            logger.critical("\(text); nothing is written down any more")
            identifiers = nil
            fetches = nil
            notifications = nil
            refusal = text
            return
        }
        refusal = nil
        fetches = FetchStore(path: directory + "/fetches") {
            log.report($0, of: "the learned habits of fetches")
        }
        notifications = NotificationStore(path: directory + "/notifications") {
            log.report($0, of: "notifications")
        }
        let store: IdentifierStore
        do {
            store = try IdentifierStore(path: directory + "/identifiers") { log.report($0) }
        } catch {
            // A table of a later version must not be overwritten.
            throw SupervisorError(.state, error)
        }
        for warning in store.warnings { logger.error("\(warning)") }
        if !store.warnings.isEmpty {
            logger.critical(
                "the owners of identifiers are not known for certain: one may go to the first to ask")
        }
        identifiers = store
    }

    /// Why some of it may be lost with this process, or is not known for certain; empty: nothing is wrong.
    var problems: [String] {
        (identifiers?.problems ?? [])
            + [refusal, fetches?.problem, notifications?.problem].compactMap(\.self)
    }

    /// Tries everything once more: there may be space by now.
    func finish(_ logger: Logger) {
        identifiers?.flush()
        fetches?.flush()
        if let problem = fetches?.problem { logger.error("\(problem)") }
        notifications?.flush()
        if let problem = notifications?.problem { logger.error("\(problem)") }
        log.tellOfHeldBack()
        for problem in identifiers?.problems ?? [] {
            logger.critical("\(problem); after the next start identifiers may go to the first to ask")
        }
    }
}

/// State that outlives the supervisor, and access to the core.
extension Supervisor {
    /// Queries the core in place: as a stored property of a class it would be copied, with a reference
    /// counted for each of its tables. The query must not touch `supervision`, which would be a second
    /// access.
    @inline(__always)
    func ask<Answer>(_ question: (inout Supervision) -> Answer) -> Answer { question(&supervision) }

    // MARK: Time

    /// How long the machine has slept since it was started.
    var machineSlept: Duration {
        .nanoseconds(clocks.nanosecondsSlept) + (configuration.pretendedSleep?() ?? .zero)
    }

    var elapsedNow: Instant { now + ask { $0.machineSlept } }

    func updateMachineSleep() {
        guard clocks.nanosecondsSlept != knownSleep || configuration.pretendedSleep != nil else { return }
        knownSleep = clocks.nanosecondsSlept
        let slept = machineSlept
        guard slept != ask({ $0.machineSlept }) else { return }
        feed(.machineSlept(total: slept))
        lookAtIssues()
    }

    // MARK: Identifiers

    /// Restores what an earlier supervisor knew and what is declared.
    func recallOwnership() {
        // Later workers have it from the keeper, and the table may lag behind it.
        let isKnown = journal?.hasBegun ?? false
        var forgotten: [ClientIdentifier] = []
        do throws(IdentifierStore.Failure) {
            try durable.identifiers?.table().forEach { name, entry in
                guard let identifier = ClientIdentifier(name) else { return }
                guard !isKnown else {
                    if supervision.ownership(of: identifier) == nil { forgotten.append(identifier) }
                    return
                }
                // A quit holds until the machine is started, not until the supervisor is.
                let isQuit = entry.isQuit && !entry.quitBoot.isEmpty && entry.quitBoot == durable.boot
                supervision.remember(identifier, of: entry.user, isQuit: isQuit)
            }
        } catch {
            logger.error("the owners of identifiers are not known any more: \(error)")
        }
        // Before notifications are shown after all, which numbers them.
        supervision.numberNotifications(from: WallClock.now() / 1_000)
        if !isKnown {
            recallFetches()
            recallNotifications()
        }
        for declaration in configuration.declarations {
            // A client of another user that goes by it keeps it for now: the launch reports that.
            _ = supervision.reserve(
                declaration.registration.identifier, for: declaration.registration.user)
        }
        // The previous worker may have died before it wrote down what it knew.
        rememberOwnership(supervision.identifiers + forgotten)
        // Before this counts as known.
        persist()
        journal?.flush()
    }
}
