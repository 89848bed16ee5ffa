package import CLinux
import Glibc
package import LinuxSystem
import NightbellWire

/// The state that the next supervisor with the same runtime directory needs, even if this one and its keeper
/// are killed: processes that may be stopped, and processes that will reconnect. Nothing else writes its
/// file, `runtime-state`.
///
/// Stopping a process must be cheap. So a change is appended to the file, and the file is replaced once most
/// of it is outdated. It is not synced to the disk, since it is of no use after the machine has stopped.
///
/// A full disk does not keep outdated state alive: what is shorter than the file is written in its place.
package final class RuntimeState {
    package struct Process: Sendable, Hashable {
        package let pid: pid_t
        /// Tells it from a later process with the same pid.
        package let startTime: UInt64

        package init(pid: pid_t, startTime: UInt64) {
            self.pid = pid
            self.startTime = startTime
        }
    }

    /// The start times of processes that this instance has stopped by a signal, or was about to, by pid.
    package private(set) var stopped: [pid_t: UInt64] = [:]
    /// The directories below which this instance has frozen clients, or was about to.
    package private(set) var cgroups: [String] = []
    /// Processes of declared clients that outlive the supervisor, and reconnect to the next one.
    package private(set) var returning: [(identifier: String, process: Process)] = []
    /// Processes that were declared clients, and run on without their connections.
    package private(set) var departed: [(identifier: String, process: Process)] = []
    /// The damage found in the file; the changes before it are used.
    package private(set) var damage: String?

    private static let name = "/runtime-state"
    /// A longer file was not written by us.
    private static let sizeLimit = 64 << 20
    /// A shorter file is never replaced only because it is outdated.
    private static let leastOutdated = 1 << 16

    private let path: String
    private let bootID: String
    private var file: OwnedDescriptor
    private var length: Int
    /// The file is replaced with the first change that finds it this long.
    private var replacedAt = leastOutdated

    /// Reads the file, and makes an empty one if there is none.
    ///
    /// - Throws: `EPERM` if another user's file is in its place.
    package init(directory: String) throws(SystemError) {
        path = directory + Self.name
        bootID = try BootClock.bootID()
        // Without O_NONBLOCK, opening a pipe could block for ever.
        file = try OwnedDescriptor(
            opening: path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode: 0o600)
        var status = stat()
        let rawValue = file.rawValue
        _ = try systemCall("fstat \(path)") { unsafe fstat(rawValue, &status) }
        guard status.st_uid == geteuid() || status.st_uid == 0 else {
            throw SystemError(code: EPERM, call: "use \(path) of uid \(status.st_uid)")
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw SystemError(code: EPERM, call: "use \(path), which is no regular file")
        }
        let bytes = try SmallFile.read(file, limit: Self.sizeLimit)
        length = bytes.count
        let (changes, byteCount) = StoredRuntimeState.decode(bytes)
        let isOutdated = changes.first.map { $0.bootID != bootID } ?? false
        if !isOutdated { changes.forEach(apply) }
        if byteCount < length, !isOutdated {
            damage = "\(path) is damaged, or of a later version, after \(byteCount) of \(length) bytes"
        }
        if isOutdated || changes.isEmpty || damage != nil { replacedAt = 0 }
    }

    // MARK: Changes

    /// Call it before the process is stopped: to continue one that runs is harmless.
    package func noteStopped(_ process: Process) throws(SystemError) {
        stopped[process.pid] = process.startTime
        var change = StoredRuntimeChange()
        change.stoppedPids = [process.pid]
        change.stoppedStartTimes = [process.startTime]
        do {
            try write(change)
        } catch {
            stopped[process.pid] = nil
            throw error
        }
    }

    /// A failure is harmless: running processes are continued once more at the next start.
    package func noteResumed(_ processes: [Process]) {
        var change = StoredRuntimeChange()
        for process in processes where stopped[process.pid] == process.startTime {
            stopped[process.pid] = nil
            change.resumedPids.append(process.pid)
        }
        if !change.resumedPids.isEmpty { try? write(change) }
    }

    /// Call it before a client is moved there.
    package func note(cgroup: String) throws(SystemError) {
        guard !cgroups.contains(cgroup) else { return }
        cgroups.append(cgroup)
        var change = StoredRuntimeChange()
        change.cgroups = [cgroup]
        do {
            try write(change)
        } catch {
            cgroups.removeLast()
            throw error
        }
    }

    /// A failure is harmless: the next start does not find the cgroup.
    package func forget(cgroup: String) {
        guard let index = cgroups.firstIndex(of: cgroup) else { return }
        cgroups.remove(at: index)
        var change = StoredRuntimeChange()
        change.removedCgroups = [cgroup]
        try? write(change)
    }

    package func setReturning(
        _ processes: [(identifier: String, process: Process)]
    ) throws(SystemError) {
        guard !returning.isEmpty || !processes.isEmpty else { return }
        returning = processes
        var change = StoredRuntimeChange()
        change.returning = Self.stored(returning)
        try write(change)
    }

    package func setDeparted(
        _ processes: [(identifier: String, process: Process)]
    ) throws(SystemError) {
        guard !departed.isEmpty || !processes.isEmpty else { return }
        departed = processes
        var change = StoredRuntimeChange()
        change.departed = Self.stored(departed)
        try write(change)
    }

    // MARK: The file

    private func apply(_ change: StoredRuntimeChange) {
        for (pid, startTime) in zip(change.stoppedPids, change.stoppedStartTimes) where pid > 0 {
            stopped[pid] = startTime
        }
        for pid in change.resumedPids { stopped[pid] = nil }
        cgroups = cgroups.filter { !change.removedCgroups.contains($0) } + change.cgroups
        if change.hasReturning { returning = Self.processes(change.returning) }
        if change.hasDeparted { departed = Self.processes(change.departed) }
    }

    private static func processes(
        _ stored: StoredRuntimeChange.Processes
    ) -> [(identifier: String, process: Process)] {
        stored.clients.map { ($0.identifier, Process(pid: $0.pid, startTime: $0.startTime)) }
    }

    /// The state as one change.
    private var whole: StoredRuntimeChange {
        var change = StoredRuntimeChange()
        change.bootID = bootID
        change.stoppedPids = Array(stopped.keys)
        change.stoppedStartTimes = Array(stopped.values)
        change.cgroups = cgroups
        change.returning = Self.stored(returning)
        change.departed = Self.stored(departed)
        return change
    }

    private static func stored(
        _ processes: [(identifier: String, process: Process)]
    ) -> StoredRuntimeChange.Processes {
        var stored = StoredRuntimeChange.Processes()
        stored.clients = processes.map { identifier, process in
            var client = StoredRuntimeChange.Processes.Client()
            client.identifier = identifier
            client.pid = process.pid
            client.startTime = process.startTime
            return client
        }
        return stored
    }

    /// Writes a change that has been made in memory.
    private func write(_ change: StoredRuntimeChange) throws(SystemError) {
        guard length < replacedAt else { return try replace() }
        let bytes = StoredRuntimeState(change).encoded
        do throws(SystemError) {
            try write(bytes, to: file.rawValue, at: length)
            length += bytes.count
        } catch {
            // A part of it must not be taken for damage.
            let rawValue = file.rawValue
            _ = ftruncate(rawValue, off_t(length))
            try replace()
        }
    }

    /// Replaces the content by the state.
    private func replace() throws(SystemError) {
        let bytes = StoredRuntimeState(whole).encoded
        do throws(SystemError) {
            unsafe unlink(path + ".new")
            let new = try OwnedDescriptor(
                opening: path + ".new", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            try write(bytes, to: new.rawValue, at: 0)
            _ = try systemCall("rename \(path)") { unsafe rename(path + ".new", path) }
            file = new
        } catch {
            unsafe unlink(path + ".new")
            // There is room for it if it is no longer than the file.
            guard bytes.count <= length else { throw error }
            try write(bytes, to: file.rawValue, at: 0)
            _ = ftruncate(file.rawValue, off_t(bytes.count))
        }
        length = bytes.count
        replacedAt = max(Self.leastOutdated, 2 * length)
    }

    private func write(_ bytes: [UInt8], to file: CInt, at offset: Int) throws(SystemError) {
        let count = try systemCall("write \(path)") {
            unsafe pwrite(file, bytes, bytes.count, off_t(offset))
        }
        guard count == bytes.count else { throw SystemError(code: ENOSPC, call: "write \(path)") }
    }
}
