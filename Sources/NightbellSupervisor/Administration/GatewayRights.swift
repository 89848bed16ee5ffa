import NightbellCore
import NightbellWire

/// The rights of the user of `nightbell-gateway` beyond those of every user. It is to be of little use to
/// those that have taken the gateway over: it never gets a client's sockets, state or secrets.
package struct GatewayRights: Sendable, Equatable {
    /// Acts on clients of other users.
    package enum Act: Sendable {
        /// Status, List, Show, Watch.
        case see
        /// WakeClient, SuspendClient, QuitClient, LaunchClient.
        case wake
        /// Everything else.
        case change
    }

    package var user: UInt32
    /// Whether it may wake, suspend, quit and launch clients, and not only see them.
    package var mayWake: Bool

    package init(user: UInt32, mayWake: Bool) {
        self.user = user
        self.mayWake = mayWake
    }

    package func permits(_ act: Act) -> Bool {
        switch act {
        case .see: true
        case .wake: mayWake
        case .change: false
        }
    }
}

extension WireError {
    static var notForGateway: WireError {
        WireError(.permissionDenied, "the supervisor's configuration does not permit this to the gateway")
    }
}

extension WakeReasons {
    /// Those that tell where a person is.
    static let ofWhereabouts: WakeReasons = [.location, .device, .bluetooth]
}

extension ClientView {
    /// Leaves out what tells where a person is, before it is described. A push tells nothing of that.
    mutating func hideWhereabouts() {
        observations.removeAll { $0.subject != .pushes }
        launches.reasons.subtract(.ofWhereabouts)
    }
}

extension WireClientInfo {
    /// Leaves out what the gateway must not know of a client besides its whereabouts: command lines and
    /// environments contain passwords, and the names of observations are the client's own.
    mutating func hideSecrets() {
        clearLaunch()
        observations = []
        counters.hideObservations()
    }
}
