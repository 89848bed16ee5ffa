import Descriptors
import Durability
import Glibc
import Logging
import NightbellCore

/// Tells that what outlives the supervisor cannot be written down. A full disk says so with each change.
final class StateLog: @unchecked Sendable {
    // Sendable: the store calls `tell` never twice at a time, and has been flushed before `tellOfHeldBack`.
    private var limiter = LogLimiter()
    private let logger: Logger

    init(_ logger: Logger) {
        self.logger = logger
    }

    func tell(_ problem: String) {
        let now = Instant(nanoseconds: BootClock.now())
        limiter.log(
            .state, "cannot write down whom identifiers belong to: \(problem)", .error, logger, at: now)
    }

    func tellOfHeldBack() { limiter.logHeldBack(logger) }
}

/// What is known, and what of it outlives the supervisor.
extension Supervisor {
    /// Asks the core something in place: as a stored property of a class it would be copied for the question, with a
    /// reference counted for each of its tables. The question must not touch `supervision`, which would be a second access.
    @inline(__always)
    func ask<Answer>(_ question: (inout Supervision) -> Answer) -> Answer { question(&supervision) }

    static func openIdentifiers(
        _ configuration: SupervisorConfiguration, _ log: StateLog, _ logger: Logger
    ) throws(SupervisorError) -> IdentifierStore? {
        guard let directory = configuration.stateDirectory else { return nil }
        do {
            let store = try IdentifierStore(path: directory + "/identifiers") { log.tell($0) }
            for warning in store.warnings { logger.error("\(warning)") }
            return store
        } catch {
            // A table of a later version is not ours to lose. A place that cannot be used is no reason not to serve.
            guard error.code != 0 else { throw SupervisorError(.state, error) }
            logger.warning(
                "whom identifiers belong to is not kept beyond the end of this supervisor: \(error)")
            return nil
        }
    }

    func finishWriting() {
        identifierStore?.flush()
        stateLog.tellOfHeldBack()
    }

    /// What an earlier supervisor knew, and what was declared.
    func recallOwnership() {
        do throws(IdentifierStore.Failure) {
            try identifierStore?.table().forEach { name, entry in
                guard let identifier = ClientIdentifier(name) else { return }
                supervision.remember(identifier, of: entry.user, isQuit: entry.isQuit)
            }
        } catch {
            logger.error("whom identifiers belong to is not known any more: \(error)")
        }
        for declaration in configuration.declarations {
            supervision.remember(
                declaration.registration.identifier, of: declaration.registration.user, isQuit: false)
        }
        // The worker before may not have come to write down what it knew.
        rememberOwnership(supervision.identifiers)
    }
}
