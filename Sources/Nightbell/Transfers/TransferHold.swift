import Synchronization

/// The background task of a session: the client is not suspended while results are handled, or a call waits
/// for the transfer process.
final class TransferHold: Sendable {
    private struct State {
        var isForResults = false
        var calls = 0
        var isClosed = false
        var task: Task = .none

        var isNeeded: Bool { (isForResults || calls > 0) && !isClosed }

        /// The task, if it is to be ended.
        mutating func takeUnneeded() -> BackgroundTask? {
            guard !isNeeded, case .held(let held) = task else { return nil }
            task = .none
            return held
        }
    }

    private enum Task {
        case none
        /// A thread asks for it.
        case beginning
        case held(BackgroundTask)
    }

    private let state = Mutex(State())
    private let session: Session
    private let identifier: String

    init(_ session: Session, _ identifier: String) {
        self.session = session
        self.identifier = identifier
    }

    /// Results are expected, or handled.
    var isForResults: Bool { state.withLock { $0.isForResults } }

    func beginResults() { begin { $0.isForResults = true } }

    func endResults() { end { $0.isForResults = false } }

    func beginCall() { begin { $0.calls += 1 } }

    func endCall() { end { $0.calls -= 1 } }

    /// The session has ended.
    func close() { end { $0.isClosed = true } }

    private func begin(_ change: (inout State) -> Void) {
        // Without a supervisor the client is not suspended either.
        let isConnected = session.core.withLock { $0.state.isConnected }
        let isFirst = state.withLock { state in
            change(&state)
            guard case .none = state.task, state.isNeeded, isConnected else { return false }
            state.task = .beginning
            return true
        }
        guard isFirst else { return }
        let expired: @Sendable (BackgroundTask, Duration) -> Void = { [weak self] _, _ in self?.expire() }
        let answer = try? session.request(.beginTask(name: "transfers \(identifier)", expired: expired))
        end { state in
            if case .task(let task)? = answer, task.isValid {
                state.task = .held(task)
            } else {
                state.task = .none
            }
        }
    }

    private func end(_ change: (inout State) -> Void) {
        let task = state.withLock { state in
            change(&state)
            return state.takeUnneeded()
        }
        // It may have been ended by the supervisor.
        if let task { _ = try? session.request(.endTask(task)) }
    }

    /// The time of the client's tasks is up: what was not handled waits.
    private func expire() {
        let task = state.withLock { state -> BackgroundTask? in
            state.isForResults = false
            guard case .held(let held) = state.task else { return nil }
            state.task = .none
            return held
        }
        if let task { _ = try? session.request(.endTask(task)) }
    }
}
