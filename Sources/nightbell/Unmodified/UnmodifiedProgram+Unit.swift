import Glibc
import LinuxSystem
import SystemdUnits

/// Programs that systemd freezes and thaws.
extension UnmodifiedProgram {
    static func group(_ pid: pid_t, _ unit: SystemdUnit?) -> ProgramGroup {
        unit.map { ProgramGroup(pid, unit: $0.directory) } ?? ProgramGroup(pid)
    }

    func handle(_ event: SystemdUnit.Event) {
        wake()
        guard case .job = event else { return }
        stayAwake("systemd has a job for it")
        state = .awake(nextLook: RunningClock.now() + Self.timeForJobs, last: nil)
    }

    /// In nanoseconds: an attempt that this systemd has refused may be repeated.
    private static let timeForJobs: Int64 = 30_000_000_000

    /// - Returns: false: it cannot be frozen, and stays awake.
    func freezeUnit() -> Bool {
        do throws(UnitFailure) {
            try unit?.freeze()
            return true
        } catch {
            wake()
            stayAwake("systemd does not freeze it: \(error)")
            return false
        }
    }

    /// Whether or not a supervisor is there to thaw it.
    func letRun() {
        unit?.thaw()
        group.thaw()
    }
}
