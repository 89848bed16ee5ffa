package import Launching
package import NightbellCore
package import TransferModel

/// A client that is known before it connects: from a manifest, or another source of declarations.
package struct Declaration: Sendable, Equatable {
    package var registration: Registration
    package var launch: LaunchSpecification
    /// nil: the supervisor's own identity.
    package var identity: ProcessIdentity?
    /// It is launched with the supervisor.
    package var startsWithSupervisor: Bool
    /// The issues for which it is launched.
    package var newsstand: Subscription?

    package init(
        _ registration: Registration, launch: LaunchSpecification, identity: ProcessIdentity?,
        startsWithSupervisor: Bool, newsstand: Subscription? = nil
    ) {
        self.registration = registration
        self.launch = launch
        self.identity = identity
        self.startsWithSupervisor = startsWithSupervisor
        self.newsstand = newsstand
    }

    /// It is launched with the supervisor, and again when it fails.
    var keepsRunning: Bool { startsWithSupervisor && registration.modes.contains(.voip) }
}
