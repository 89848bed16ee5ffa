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
}
