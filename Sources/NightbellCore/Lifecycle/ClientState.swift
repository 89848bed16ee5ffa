/// The states of a client, without their associated data.
package enum ClientState: Sendable, Hashable, CaseIterable {
    /// No process is known under this name.
    case notRunning
    /// Connected; has not declared whether it is in use.
    case inactive
    /// In use: never suspended.
    case active
    /// Runs, and is suspended as soon as nothing holds that off.
    case background
    case suspending
    case suspended
    /// Notified of its termination, or killed and not gone yet.
    case terminating
    /// Has no process, but watched sockets or another reason to be launched.
    case dormant
    /// Its program was started and has not identified itself yet.
    case launching

    /// Whether a client wants the same observations in both: waking and suspending it does not change that.
    func observesSame(as other: ClientState) -> Bool {
        func isInBackground(_ state: ClientState) -> Bool {
            switch state {
            case .background, .suspending, .suspended: true
            case .notRunning, .inactive, .active, .terminating, .dormant, .launching: false
            }
        }
        return self == other || isInBackground(self) && isInBackground(other)
    }
}
