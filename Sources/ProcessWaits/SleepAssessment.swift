package import CLinux

/// Whether a program may be put to sleep as it is: every thread waits for something that can be watched from
/// outside, and has waited for a while.
///
/// A pure judgement of two looks at the process.
package struct SleepAssessment: Sendable, Hashable {
    /// A reason why the program must stay awake.
    package enum Obstacle: Sendable, Hashable {
        case kernelThread
        case stopped
        case traced(by: pid_t)
        /// The states of its threads cannot be seen without more rights.
        case hidden
        case runs(pid_t)
        case uninterruptible(pid_t)
        case unknownCall(pid_t, number: Int)
        /// It goes on with a wait that a stop has interrupted, and when that ends cannot be seen.
        case unknownEnd(pid_t)
        case asynchronous
        case device(pid_t, String)
        /// It would return from a call with a part of what it is to read or write.
        case cutShort(pid_t)
        /// It waits for something that no other process can wait for.
        case notPollable(pid_t, String)
        /// It is not idle for as long as a sleep would need to be worth while.
        case neverIdle(runsPerSecond: Int)
    }

    /// A wait that one or more threads are in.
    package struct Wait: Sendable, Hashable {
        package var kind: BlockedCall.Kind
        /// How many descriptors of each kind are waited for.
        package var descriptors: [OpenDescriptor: Int]
        package var timeout: Duration?
        package var threads: Int
    }

    /// Empty: it may sleep.
    package var obstacles: [Obstacle] = []
    /// In the order of the threads.
    package var waits: [Wait] = []
    /// How often its threads began to run between the looks, for a second; nil if the kernel does not count
    /// that.
    package var runsPerSecond: Double?
    /// The share of one processor that it used between the looks.
    package var processorShare: Double?

    package var maySleep: Bool { obstacles.isEmpty }

    /// - Parameter interval: the time between the looks, in which a sleeping program has not run.
    package init(_ before: ProcessLook, _ after: ProcessLook, interval: Duration) {
        measure(before, after, interval)
        guard after.hasMemory else {
            obstacles = [.kernelThread]
            return
        }
        if let tracer = after.tracer { obstacles.append(.traced(by: tracer)) }
        if after.descriptors.values.contains(.ring) { obstacles.append(.asynchronous) }
        for thread in after.threads { judge(thread, after) }
        if obstacles.contains(.hidden) { obstacles.removeAll { $0 != .hidden } }
        // A thread that merely ran at the time of the look is explained by the rate.
        if let runsPerSecond, runsPerSecond > 1 {
            obstacles.append(.neverIdle(runsPerSecond: Int(min(runsPerSecond.rounded(.up), 1e9))))
        }
    }

    private mutating func measure(_ before: ProcessLook, _ after: ProcessLook, _ interval: Duration) {
        let seconds = Double(interval.components.seconds) + Double(interval.components.attoseconds) / 1e18
        guard seconds > 0 else { return }
        var earlier: [pid_t: ProcessLook.Activity] = [:]
        for thread in before.threads { earlier[thread.id] = thread.activity }
        var (runs, nanoseconds) = (UInt64(0), UInt64(0))
        for thread in after.threads {
            guard let activity = thread.activity else { return }
            // A thread that is new has run since the first look only.
            let base = earlier[thread.id] ?? .init(runs: 0, nanoseconds: 0)
            runs += activity.runs >= base.runs ? activity.runs - base.runs : activity.runs
            nanoseconds +=
                activity.nanoseconds >= base.nanoseconds
                ? activity.nanoseconds - base.nanoseconds : activity.nanoseconds
        }
        runsPerSecond = Double(runs) / seconds
        processorShare = Double(nanoseconds) / 1e9 / seconds
    }

    private mutating func judge(_ thread: ProcessLook.Thread, _ look: ProcessLook) {
        func add(_ obstacle: Obstacle) {
            if !obstacles.contains(obstacle) { obstacles.append(obstacle) }
        }
        switch thread.schedulerState {
        case "T": return add(.stopped)
        case "D": return add(.uninterruptible(thread.id))
        case "Z", "X": return  // it has ended, and others go on
        default: break
        }
        switch thread.state {
        case nil: add(.hidden)
        case .runs, .inKernel: add(.runs(thread.id))
        case .blocked(let call):
            note(call, thread, look)
            switch call.kind {
            case .epoll, .poll, .select, .futex, .sleep, .child, .signal, .accept: break
            case .read, .write:
                // A regular file is always ready: a thread that waits for one waits for a disk or a server.
                for number in thread.watched {
                    if case .file(let path) = look.descriptors[number] { add(.notPollable(thread.id, path)) }
                }
                let isPipe = thread.watched.allSatisfy { look.descriptors[$0] == .pipe }
                if call.mayBeCutShort(isPipe: isPipe) { add(.cutShort(thread.id)) }
            case .restarted: add(.unknownEnd(thread.id))
            case .ring: add(.asynchronous)
            case .other(let number): add(.unknownCall(thread.id, number: number))
            }
            for number in thread.watched {
                if case .device(let path) = look.descriptors[number] { add(.device(thread.id, path)) }
            }
        }
    }

    private mutating func note(_ call: BlockedCall, _ thread: ProcessLook.Thread, _ look: ProcessLook) {
        var counts: [OpenDescriptor: Int] = [:]
        for number in thread.watched {
            counts[look.descriptors[number] ?? .other("descriptor"), default: 0] += 1
        }
        var wait = Wait(kind: call.kind, descriptors: counts, timeout: thread.timeout, threads: 1)
        let same = waits.firstIndex {
            $0.kind == wait.kind && $0.descriptors == wait.descriptors && $0.timeout == wait.timeout
        }
        guard let same else { return waits.append(wait) }
        wait.threads += waits[same].threads
        waits[same] = wait
    }
}
