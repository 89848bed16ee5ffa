/// A permission that a token gives.
package enum Scope: String, Sendable, CaseIterable {
    /// To see clients and their events, and the metrics.
    case read
    /// To wake, suspend, quit and launch clients.
    case wake
    /// To send a client a push message.
    case push
}
