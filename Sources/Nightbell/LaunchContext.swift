/// State and sockets of the client's last process, which this one takes over.
///
/// It is present in a process that the supervisor launched, and in one that a user started while the client
/// was dormant, that is, had parked sockets and no process.
public struct LaunchContext: Sendable, Hashable {
    /// Whether the supervisor launched this process. A ``Wake`` with the reason follows.
    public let wasLaunched: Bool
    /// The sockets that survived, in the order in which they were handed over. Their descriptors are open,
    /// close-on-exec, and the caller's from now on; names and tags are unchanged. They are still parked:
    /// ``Client/release(_:)`` those that are no longer wanted.
    public let sockets: [ParkedSocket]
    /// The state from ``Client/saveState(_:)``; empty if none was saved, or if it was dropped because the
    /// client crashed with it.
    public let state: [UInt8]

    package init(wasLaunched: Bool, sockets: [ParkedSocket], state: [UInt8]) {
        self.wasLaunched = wasLaunched
        self.sockets = sockets
        self.state = state
    }
}
