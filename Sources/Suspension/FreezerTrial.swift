import CLinux
import Glibc
import LinuxSystem

/// Stops a child process of this one by both methods, to see whether they work.
package enum FreezerTrial {
    static func facts(cgroupParent: String?) -> [MachineFacts.Fact] {
        do throws(SystemError) {
            let directory = try makeDirectory()
            defer { remove(directory) }
            // The directory's name is unique, so two trials never share a cgroup.
            let instance = InstanceNames(name: "doctor-" + directory.suffix(6), cgroupParent: cgroupParent)
            let state = try RuntimeState(directory: directory)
            let child = try ScratchChild()
            defer { child.end() }
            let process = try ProcessHandle(opening: child.pid)
            return freezerFacts(instance, state, process) + [signalFact(instance, state, process)]
        } catch {
            return [
                MachineFacts.Fact(
                    "freezer", .missing, "could not be tried: \(error)",
                    remedy: "Make sure that /bin/sleep and a writable /tmp exist, and ask again.")
            ]
        }
    }

    private static func freezerFacts(
        _ instance: InstanceNames, _ state: RuntimeState, _ process: borrowing ProcessHandle
    ) -> [MachineFacts.Fact] {
        let freezer: CgroupFreezer
        do throws(SuspensionError) {
            freezer = try CgroupFreezer(instance: instance, state: state)
        } catch {
            return [
                MachineFacts.Fact("cgroup-place", .missing, "\(error)", remedy: remedy(for: error.code)),
                MachineFacts.Fact("freezer", .missing, "not tried, because no cgroup can be made"),
            ]
        }
        defer { freezer.detachAll() }
        let place = MachineFacts.Fact("cgroup-place", .ok, "cgroups are made in \(freezer.parentDirectory)")
        do throws(SuspensionError) {
            let trial = try measure(freezer, process)
            let explanation = "stopped a process and let it run; the kernel took \(trial.stopped) µs"
            return [place, moveFact(trial.attached), MachineFacts.Fact("freezer", .ok, explanation)]
        } catch {
            return [
                place, MachineFacts.Fact("freezer", .missing, "\(error)", remedy: remedy(for: error.code)),
            ]
        }
    }

    private static func signalFact(
        _ instance: InstanceNames, _ state: RuntimeState, _ process: borrowing ProcessHandle
    ) -> MachineFacts.Fact {
        do throws(SuspensionError) {
            let trial = try measure(StopSignal(instance: instance, state: state), process)
            return MachineFacts.Fact(
                "signals", .ok, "stopped and continued a process; the kernel took \(trial.stopped) µs")
        } catch {
            return MachineFacts.Fact(
                "signals", .missing, "\(error)",
                remedy: "Nightbell must be allowed to signal its clients: give it CAP_KILL, or their user.")
        }
    }

    /// While the kernel moves a process from one cgroup to another, no cgroup can be frozen or thawed. Unless
    /// it was told that processes are moved often, it waits for all processors first.
    package static func moveFact(_ microseconds: Int64) -> MachineFacts.Fact {
        guard microseconds > 5_000 else {
            return MachineFacts.Fact("cgroup-move", .ok, "moved a process to a cgroup in \(microseconds) µs")
        }
        return MachineFacts.Fact(
            "cgroup-move", .warning,
            "moving a process to a cgroup took \(microseconds / 1_000) ms: all wakes wait for as long "
                + "when a client sleeps for the first time",
            remedy: "Mount cgroup v2 so that moves are quick, with Linux 6.0 or later: "
                + "mount -o remount,favordynmods \(CgroupMount.find()?.path ?? "/sys/fs/cgroup"). "
                + "Starting and ending processes then takes a little longer.")
    }

    /// The times that it takes to prepare a process, and from the request to stop it to the confirmation, in
    /// microseconds.
    private static func measure(
        _ suspender: any Suspender, _ process: borrowing ProcessHandle
    ) throws(SuspensionError) -> (attached: Int64, stopped: Int64) {
        let beginning = BootClock.now()
        try suspender.attach(slot: 0, process: process)
        defer { suspender.detach(slot: 0) }
        let start = BootClock.now()
        var progress = try suspender.freeze(slot: 0)
        while progress == .pending {
            guard BootClock.now() - start < 1_000_000_000 else {
                let late = SystemError(code: ETIMEDOUT, call: "freeze")
                throw SuspensionError(.systemError, "freeze \(process.pid)", late)
            }
            sched_yield()
            progress = try suspender.progress(slot: 0)
        }
        let end = BootClock.now()
        try suspender.thaw(slot: 0)
        return (attached: (start - beginning) / 1000, stopped: (end - start) / 1000)
    }

    private static func remedy(for code: SuspensionError.Code) -> String {
        switch code {
        case .freezerMissing:
            "Use Linux 5.2 or later with cgroup v2 mounted; until then clients are stopped by signals."
        case .notPermitted:
            "Run nightbelld as root, or as a systemd user service with Delegate=yes; "
                + "until then clients are stopped by signals."
        case .processGone, .processMoved, .outOfDescriptors, .notAttached, .systemError:
            "Choose a cgroup that no other program manages (cgroup parent in the configuration); "
                + "until then clients are stopped by signals."
        }
    }

    private static func makeDirectory() throws(SystemError) -> String {
        var template = Array("/tmp/nightbell-doctor-XXXXXX".utf8CString)
        guard unsafe mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
        return String(decoding: template.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    private static func remove(_ directory: String) {
        for name in (try? SmallFile.names(in: directory)) ?? [] { unsafe unlink(directory + "/" + name) }
        unsafe rmdir(directory)
    }
}

/// A process that sleeps until it is ended.
private struct ScratchChild {
    let pid: pid_t

    init() throws(SystemError) {
        let words = ["/bin/sleep", "60"]
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
        defer { unsafe arguments.forEach { unsafe free($0) } }
        var pid: pid_t = 0
        let code = unsafe posix_spawn(&pid, words[0], nil, nil, &arguments, nil)
        guard code == 0 else { throw SystemError(code: code, call: "posix_spawn \(words[0])") }
        self.pid = pid
    }

    func end() {
        kill(pid, SIGKILL)
        var status: CInt = 0
        _ = try? systemCall("waitpid") { unsafe waitpid(pid, &status, 0) }
    }
}
