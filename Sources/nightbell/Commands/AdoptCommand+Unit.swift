import Glibc
import LinuxSystem
import Presentation
import Suspension
import SystemdUnits

/// Units of systemd.
extension AdoptCommand {
    /// - Returns: the exit code, once the unit has ended or is given back.
    func adoptUnit(_ name: String) throws -> Int32 {
        guard let mount = CgroupMount.find() else { throw AdoptionRefusal.noHierarchy }
        while true {
            let unit: SystemdUnit
            do throws(UnitRefusal) {
                unit = try SystemdUnit(name) { mount.directory(for: $0) }
            } catch {
                throw AdoptionRefusal(error)
            }
            let adoption = try Adoption(unit)
            // Before there are threads.
            let unitGuard = try UnitGuard(unit.name, directory: unit.directory)
            defer { withExtendedLifetime(unitGuard) { unit.release() } }
            if unit.refusesJobs {
                complain(
                    """
                    this systemd refuses to stop or restart \(unit.name) while it sleeps; the attempt wakes it, \
                    and another one within 30 s is not refused
                    """)
            }
            let code = try adopt(adoption)
            guard adoption.process.hasExited, try isStartedAgain(unit, after: adoption.pid) else {
                return code
            }
        }
    }

    /// Waits while systemd starts a unit again.
    ///
    /// - Returns: whether it has; otherwise it has ended, or this command is to end.
    private func isStartedAgain(_ unit: SystemdUnit, after pid: pid_t) throws(SystemError) -> Bool {
        let signals = try SignalDescriptor([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        var end = RunningClock.now() + Self.patience
        var pause = Self.shortestPause
        while true {
            switch unit.activeState {
            case "activating", "deactivating", "reloading", "refreshing":
                // That may be for long, such as until the time of `RestartSec` is over.
                end = RunningClock.now() + Self.patience
                pause = min(pause * 2, Self.longestPause)
            case "active" where unit.mainProcess() != pid:
                return (try? ProgramGroup.processes(in: unit.directory))?.isEmpty == false
            default:
                // systemd may not have noticed its end, or be about to start it again.
                guard RunningClock.now() < end else { return false }
                pause = Self.shortestPause
            }
            let readiness = Poll.wait(signals.rawValue, for: .readable, timeoutMilliseconds: pause)
            guard readiness.isEmpty else { return false }
        }
    }

    /// In milliseconds.
    private static let shortestPause: CInt = 100
    private static let longestPause: CInt = 10_000
    /// In nanoseconds.
    private static let patience: Int64 = 5_000_000_000
}
