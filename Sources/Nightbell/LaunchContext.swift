/// What the last process of this client has left, and this one takes over.
///
/// A process that the supervisor has launched has it, and so has one that its user has started while the client was
/// dormant: its sockets were parked and it had no process.
public struct LaunchContext: Sendable, Hashable {
    /// Whether the supervisor has launched this process. A ``Wake`` follows that tells why.
    public let wasLaunched: Bool
    /// The sockets that survived, in the order in which they were handed over. Their descriptors are open, close on
    /// exec, and the caller's from now on; names and tags are those that they were handed over with. They are parked
    /// as before: ``Client/release(_:)`` the ones that are not wanted any more.
    public let sockets: [ParkedSocket]
    /// What ``Client/saveState(_:)`` has left; empty if nothing was, or it was dropped because the client crashed
    /// with it.
    public let state: [UInt8]

    package init(wasLaunched: Bool, sockets: [ParkedSocket], state: [UInt8]) {
        self.wasLaunched = wasLaunched
        self.sockets = sockets
        self.state = state
    }
}
