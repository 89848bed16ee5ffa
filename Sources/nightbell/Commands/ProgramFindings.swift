import Glibc
import LinuxSystem
import Presentation
import ProcessWaits
import StatusReports

/// The findings of `nightbell doctor PID` about a program as it is: whether it may sleep, and what that would
/// gain.
enum ProgramFindings {
    /// - Returns: nil if the process is gone.
    static func gather(_ pid: pid_t, watching interval: Duration) throws(SystemError) -> [Finding]? {
        guard let before = try ProcessLook.take(pid) else { return nil }
        let start = RunningClock.now()
        pause(interval)
        guard let after = try ProcessLook.take(pid) else { return nil }
        let assessment = SleepAssessment(
            before, after, interval: Duration.nanoseconds(RunningClock.now() - start))
        let threads = after.threads.count
        let process = Finding(
            "process", .ok,
            "\(pid) (\(after.name)), uid \(ProcFS.uid(pid).map(String.init) ?? "unknown"), \(count(threads, "thread"))"
        )
        var findings = [process] + assessment.waits.map(finding) + [activity(assessment, interval)]
        if let group = ProcessGroup.of(pid) { findings.append(finding(group)) }
        findings += [memory(pid), verdict(assessment)]
        return findings
    }

    private static func pause(_ interval: Duration) {
        let end = RunningClock.instant(after: interval.components.seconds * 1_000_000_000)
        while unsafe clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, [end], nil) == EINTR {}
    }

    // MARK: Findings

    private static func finding(_ wait: SleepAssessment.Wait) -> Finding {
        let descriptors = wait.descriptors.sorted { ($1.value, $0.key.words) < ($0.value, $1.key.words) }
            .map { count($0.value, $0.key.words) }
        var text =
            "\(count(wait.threads, "thread")) \(wait.threads == 1 ? "waits" : "wait") \(words(wait.kind))"
        if !descriptors.isEmpty { text += ": " + descriptors.joined(separator: ", ") }
        if let timeout = wait.timeout { text += ", at most \(Human.duration(timeout))" }
        return Finding("wait", .ok, text)
    }

    private static func words(_ kind: BlockedCall.Kind) -> String {
        switch kind {
        case .epoll: "for events (epoll)"
        case .poll: "for descriptors (poll)"
        case .select: "for descriptors (select)"
        case .read: "to read"
        case .write: "to write"
        case .accept: "for a connection"
        case .futex: "for another thread (futex)"
        case .sleep: "for a time"
        case .child: "for a child process"
        case .signal: "for a signal"
        case .restarted: "on, after it was stopped"
        case .ring: "for asynchronous input or output"
        case .other(let number): "in system call \(number)"
        }
    }

    private static func activity(_ assessment: SleepAssessment, _ interval: Duration) -> Finding {
        guard let runs = assessment.runsPerSecond, let share = assessment.processorShare else {
            return Finding("activity", .warning, "is not counted by this kernel (no /proc/PID/schedstat)")
        }
        let text =
            "in \(Human.duration(interval)) its threads ran \(tenths(runs)) times a second, and used "
            + "\(tenths(share * 100)) % of a processor"
        guard runs > 0, assessment.waits.contains(where: { $0.timeout != nil }) else {
            return Finding("activity", .ok, text)
        }
        return Finding(
            "activity", .warning, text + ": it has timers, and would be woken for each",
            remedy: "It gains most if its timers may be late, or are turned off while it is idle.")
    }

    private static func finding(_ group: ProcessGroup) -> Finding {
        switch group {
        case .unit(let name): Finding("group", .ok, "belongs to \(name), which systemd freezes as a whole")
        case .container(let name):
            Finding("group", .ok, "belongs to container \(name), which its engine pauses")
        case .cgroup(let path): Finding("group", .ok, "is in cgroup \(path) with all of its processes")
        case .root:
            Finding(
                "group", .warning, "is in the root cgroup, which cannot be frozen",
                remedy: "Start it as a unit, or in a cgroup of its own.")
        case .none:
            Finding(
                "group", .warning,
                "this system has no cgroups of version 2: single processes can only be stopped by signals")
        }
    }

    private static func memory(_ pid: pid_t) -> Finding {
        let kibibytes = values(in: "/proc/\(pid)/smaps_rollup", ["Pss_Anon:", "Pss_Shmem:"])
        let swap = values(in: "/proc/meminfo", ["SwapFree:"]).map { $0[0] } ?? 0
        let resident = ProcFS.residentBytes(pid).map { Human.bytes(UInt64($0)) } ?? "an unknown amount"
        guard let kibibytes else {
            return Finding(
                "memory", .warning, "\(resident) resident; how much of that is its own cannot be seen",
                remedy: "Ask as root, or as the program's user.")
        }
        let own = Human.bytes(kibibytes.reduce(0, +) * 1_024)
        guard swap > 0 else {
            return Finding(
                "memory", .warning,
                "\(resident) resident, \(own) its own, which sleeping alone does not free: there is no swap",
                remedy: "With swap or zram, the memory of sleeping programs can be written there.")
        }
        return Finding(
            "memory", .ok,
            "\(resident) resident; up to \(own) could go to swap while it sleeps (\(Human.bytes(swap * 1_024)) free there)"
        )
    }

    /// The numbers after these titles; nil if the file cannot be read or one is missing.
    private static func values(in path: String, _ titles: [String]) -> [UInt64]? {
        guard let text = try? SmallFile.read(path) else { return nil }
        var fields = ByteFields(text)
        var found: [String: UInt64] = [:]
        repeat {
            guard let title = fields.next() else { continue }
            found[String(decoding: title, as: UTF8.self)] = ByteFields.number(fields.next())
        } while fields.nextLine()
        let values = titles.compactMap { found[$0] }
        return values.count == titles.count ? values : nil
    }

    private static func verdict(_ assessment: SleepAssessment) -> Finding {
        if assessment.maySleep {
            return Finding("sleep", .ok, "may sleep: nothing that it waits for would be missed")
        }
        let reasons = assessment.obstacles.prefix(5).map(words).joined(separator: "; ")
        let more = assessment.obstacles.count > 5 ? "; and \(assessment.obstacles.count - 5) more" : ""
        return Finding(
            "sleep", .missing, "must stay awake: \(reasons)\(more)",
            remedy: assessment.obstacles == [.hidden]
                ? "Ask as root, or as the program's user with kernel.yama.ptrace_scope = 0." : nil)
    }

    static func words(_ obstacle: SleepAssessment.Obstacle) -> String {
        switch obstacle {
        case .kernelThread: "it is a thread of the kernel"
        case .stopped: "it is stopped already"
        case .traced(let tracer): "process \(tracer) traces it"
        case .hidden: "what its threads wait for cannot be seen without more rights"
        case .runs(let thread): "thread \(thread) runs"
        case .uninterruptible(let thread): "thread \(thread) waits for a disk or a driver"
        case .unknownCall(let thread, let number):
            "thread \(thread) waits in system call \(number), which is not known"
        case .unknownEnd(let thread):
            "thread \(thread) was stopped while it waited, and the end of its wait cannot be seen any more"
        case .asynchronous: "it uses io_uring, which nothing else can watch"
        case .device(let thread, let path): "thread \(thread) waits for \(path)"
        case .notPollable(let thread, let path): "thread \(thread) reads or writes \(path)"
        case .cutShort(let thread):
            "thread \(thread) is in the middle of reading or writing, and would return with a part of it"
        case .neverIdle(let runs): "it is never idle for a second: its threads run \(runs) times in one"
        }
    }

    private static func count(_ number: Int, _ noun: String) -> String {
        number == 1
            ? "1 \(noun)" : "\(number) \(noun)\(noun.hasSuffix("s") || noun.hasPrefix("/") ? "" : "s")"
    }

    private static func tenths(_ value: Double) -> String {
        let tenths = Int((min(value, 1e12) * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}
