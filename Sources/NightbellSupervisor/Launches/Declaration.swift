package import Launching
package import NightbellCore

/// A client that is known before it connects: from a manifest, or another source of declarations.
package struct Declaration: Sendable, Equatable {
    package var registration: Registration
    package var launch: LaunchSpecification
    /// nil: the supervisor's own identity.
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
