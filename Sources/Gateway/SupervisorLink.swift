import Logging
import NIOConcurrencyHelpers
import NIOPosix
import Nightbell

/// Asks the supervisor. One request at a time, on a thread of its own: a crowd of browsers costs the
/// supervisor one connection. The connection is made when it is needed, and again when the supervisor was
/// replaced.
final class SupervisorLink: Sendable {
    /// Touched only by the one thread of the pool.
    private final class Held: @unchecked Sendable {
        var administration: Administration?

        /// Runs the question on the connection, which is kept unless it is of no use any more.
        func ask<Answer>(
            _ path: String, _ question: (inout Administration) throws(NightbellError) -> Answer
        ) throws(NightbellError) -> Answer {
            if administration == nil { administration = try Administration(socketPath: path) }
            guard var administration = administration.take() else {
                throw NightbellError(.disconnected, "")
            }
            do throws(NightbellError) {
                let answer = try question(&administration)
                self.administration = consume administration
                return answer
            } catch {
                if error.isRefusal { self.administration = consume administration }
                throw error
            }
        }
    }

    private let path: String
    private let limits: Limits
    private let held = Held()
    private let pool = NIOThreadPool(numberOfThreads: 1)
    private let waiting = NIOLockedValueBox(0)
    private let bucket: RateLimit
    /// While the supervisor does not answer, questions that have waited this long are not asked any more: they would
    /// wait for each other's time-outs.
    private static let patience: Duration = .seconds(5)

    init(path: String, limits: Limits) {
        self.path = path
        self.limits = limits
        bucket = RateLimit(perSecond: limits.requestsPerSecond, burst: 2 * limits.requestsPerSecond)
        pool.start()
    }

    /// - Parameters:
    ///   - isFree: it does not count towards the rate: its caller limits it.
    ///   - whenDone: called with a refusal if the answer to the same question was lost before, or the question was
    ///     not delivered. Its result, if there is one, is the answer: the refusal tells that it was done.
    func ask<Answer: Sendable>(
        isFree: Bool = false, whenDone: @escaping @Sendable (NightbellError) -> Answer? = { _ in nil },
        _ question: @escaping @Sendable (inout Administration) throws(NightbellError) -> Answer
    ) async throws(APIError) -> Answer {
        guard isFree || bucket.take() else { throw .tooManyRequests }
        let isAdmitted = waiting.withLockedValue { waiting in
            guard waiting < limits.waitingRequests else { return false }
            waiting += 1
            return true
        }
        guard isAdmitted else { throw .overloaded }
        defer { waiting.withLockedValue { $0 -= 1 } }
        let result: Result<Answer, NightbellError>
        do {
            let began = ContinuousClock.now
            result = try await pool.runIfActive { [held, path] in
                guard began.duration(to: .now) < Self.patience else {
                    return .failure(NightbellError(.requestTimedOut, "it has not answered others before"))
                }
                var result = Self.ask(held, path, question)
                // The worker was replaced. Asked twice, each of these requests does what it does when asked
                // once.
                if case .failure(let error) = result, error.code == .connectionLost {
                    result = Self.ask(held, path, question)
                    if case .failure(let refusal) = result, let answer = whenDone(refusal) {
                        result = .success(answer)
                    }
                }
                return result
            }
        } catch {
            throw .unavailable("the gateway ends")
        }
        switch result {
        case .success(let answer): return answer
        case .failure(let error): throw APIError(error)
        }
    }

    private static func ask<Answer>(
        _ held: Held, _ path: String,
        _ question: (inout Administration) throws(NightbellError) -> Answer
    ) -> Result<Answer, NightbellError> {
        do throws(NightbellError) {
            return .success(try held.ask(path, question))
        } catch {
            return .failure(error)
        }
    }
}

extension NightbellError {
    /// The supervisor has refused one request, and the connection goes on.
    fileprivate var isRefusal: Bool {
        switch code {
        case .noSuchClient, .illegalState, .cannotLaunch, .permissionDenied, .invalidArgument: true
        default: false
        }
    }
}

/// A token bucket.
final class RateLimit: Sendable {
    private let perSecond: Double
    private let burst: Double
    private let state: NIOLockedValueBox<(left: Double, at: ContinuousClock.Instant)>

    init(perSecond: Int, burst: Int) {
        self.perSecond = Double(perSecond)
        self.burst = Double(burst)
        state = NIOLockedValueBox((left: Double(burst), at: .now))
    }

    func take(at now: ContinuousClock.Instant = .now) -> Bool {
        state.withLockedValue { state in
            state.left = min(burst, state.left + state.at.duration(to: now) / .seconds(1) * perSecond)
            state.at = now
            guard state.left >= 1 else { return false }
            state.left -= 1
            return true
        }
    }
}
