/// The states of a client's life, without what belongs to each.
public enum ClientState: Sendable, Hashable, CaseIterable {
    /// No process is known under this name.
    case notRunning
    /// Connected, has not declared whether it is in use.
    case inactive
    /// In use: never suspended.
    case active
    /// Runs, and is suspended as soon as nothing holds that off.
    case background
    case suspending
    case suspended
    /// Told that it is about to be ended, or killed and not gone yet.
    case terminating
    /// Has no process, and sockets that are watched, or something else to come back to.
    case dormant
    /// Its program was started and has not said who it is yet.
    case launching
}
