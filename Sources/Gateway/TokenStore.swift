import Logging
import NIOConcurrencyHelpers

/// The tokens in use. The file is looked at again, at most once a second, when a token is presented.
final class TokenStore: Sendable {
    private struct State {
        var tokens: [Token] = []
        var stamp: FileStamp?
        var lookedAt: ContinuousClock.Instant?
        /// Why the file of now cannot be used.
        var problem: String?
    }

    private let file: TokenFile
    private let logger: Logger
    private let state = NIOLockedValueBox(State())

    init(_ file: TokenFile, _ logger: Logger) {
        self.file = file
        self.logger = logger
    }

    /// The scopes of the token with this hash; nil: there is none.
    func scopes(of hash: [UInt8]) -> Set<Scope>? {
        state.withLockedValue { state in
            look(&state)
            var found: Set<Scope>?
            // To the end, whichever it is.
            for token in state.tokens where token.has(hash) { found = token.scopes }
            return found
        }
    }

    private func look(_ state: inout State) {
        let now = ContinuousClock.now
        if let lookedAt = state.lookedAt, now < lookedAt + .seconds(1) { return }
        state.lookedAt = now
        let stamp = FileStamp(file.path)
        guard stamp != state.stamp else { return }
        do throws(TokenFile.Failure) {
            state.tokens = try file.read()
            state.stamp = stamp
            state.problem = nil
            logger.notice("tokens were read", metadata: ["count": "\(state.tokens.count)"])
        } catch {
            // A file with a mistake must not leave a revoked token valid.
            state.tokens = []
            // It may be readable again without another change.
            state.stamp = nil
            if error.description != state.problem { logger.error("no token is valid: \(error)") }
            state.problem = error.description
        }
    }
}
