package import Launching
package import NightbellCore

/// A client that is known before it says so itself: from a manifest, or whatever else people declare clients with.
package struct Declaration: Sendable, Equatable {
    package var registration: Registration
    package var launch: LaunchSpecification
    /// Nil: whoever the supervisor runs as.
    package var identity: ProcessIdentity?
    /// It is launched with the supervisor.
    package var startsWithSupervisor: Bool

    package init(
        _ registration: Registration, launch: LaunchSpecification, identity: ProcessIdentity?,
        startsWithSupervisor: Bool
    ) {
        self.registration = registration
        self.launch = launch
        self.identity = identity
        self.startsWithSupervisor = startsWithSupervisor
    }
}
