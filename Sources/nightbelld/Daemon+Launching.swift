import DaemonConfiguration
import Glibc
import Launching
import Logging
import Manifests
import NightbellCore
import NightbellSupervisor

/// Configuration of launching and ending clients.
extension Daemon {
    var pressureTrigger: SupervisorConfiguration.MemoryPressureTrigger? {
        let settings = loaded.settings
        guard !settings.pressureFile.isEmpty else { return nil }
        var trigger = SupervisorConfiguration.MemoryPressureTrigger()
        trigger.file = settings.pressureFile
        trigger.isFull = settings.pressureShare == .full
        trigger.stall = settings.pressureStall
        trigger.window = settings.pressureWindow
        return trigger
    }

    /// The clients that manifests declare. An error in one manifest is reported, and does not affect the
    /// others.
    func readManifests() -> (declarations: [Declaration], problems: [String]) {
        guard !loaded.settings.manifestDirectory.isEmpty else { return ([], []) }
        let directory = ManifestDirectory(
            path: loaded.settings.manifestDirectory, accounts: SystemAccounts(), owner: geteuid())
        var problems = directory.problems.map { "\($0)" }
        let tool = Self.helper("nightbell")
        let declarations = directory.manifests.compactMap { manifest -> Declaration? in
            let user = manifest.identity?.user ?? geteuid()
            guard manifest.unmodified == nil || tool != nil else {
                problems.append(
                    "\(manifest.file): \(manifest.identifier) is unmodified, and needs nightbell beside nightbelld"
                )
                return nil
            }
            if let keepAlive = manifest.keepAlive,
                keepAlive < loaded.settings.supervision.keepAlive.minimumTimeout
            {
                let minimum = loaded.settings.supervision.keepAlive.minimumTimeout
                problems.append(
                    "\(manifest.file): keepAlive of \(manifest.identifier) is raised to \(minimum)")
            }
            var registration = Registration(
                identifier: manifest.identifier, user: user, modes: manifest.modes,
                wakeLimitPolicy: manifest.wakeLimitPolicy)
            registration.isLaunchable = true
            registration.isDeclared = true
            registration.exitsOnSuspend = manifest.exitsOnSuspend
            registration.keepAliveTimeout = manifest.keepAlive
            registration.waitsForUnlock = manifest.waitsForUnlock
            return Declaration(
                registration, launch: manifest.launch(with: tool ?? ""), identity: manifest.identity,
                startsWithSupervisor: manifest.startsWithSupervisor, newsstand: manifest.newsstand)
        }
        return (declarations, problems)
    }

    func logged(_ read: (declarations: [Declaration], problems: [String])) -> [Declaration] {
        for problem in read.problems { logger.error("\(problem)") }
        return read.declarations
    }
}
