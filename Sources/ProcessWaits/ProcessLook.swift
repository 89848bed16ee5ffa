package import CLinux
import Glibc
package import LinuxSystem

/// A process with its threads and their waits, at one moment. Looking does not stop it.
package struct ProcessLook: Sendable {
    package struct Thread: Sendable, Hashable {
        package var id: pid_t
        package var name: String
        /// Nil: it cannot be seen, for want of rights.
        package var state: ThreadState?
        /// Its letter in `/proc/PID/task/TID/stat`.
        package var schedulerState: Character
        /// The descriptors that it waits for: for an epoll set, those in it.
        package var watched: [CInt] = []
        /// Its own descriptors, such as an epoll set without those in it, with the events of epoll(7) that it
        /// waits for.
        package var interests: [CInt: UInt32] = [:]
        /// When its wait ends by itself.
        package var end = WaitEnd.never
        /// The time until then, at most; nil: never, or that is not known.
        package var timeout: Duration?
        /// How often it has run, and how long, in all; nil if the kernel does not count it.
        package var activity: Activity?
    }

    /// When a wait ends by itself.
    package enum WaitEnd: Sendable, Hashable {
        case never
        /// Its beginning and this.
        case after(Duration)
        /// At this time of a clock.
        case at(Duration, clock: CInt)
        case unknown
    }

    /// How closely to look.
    package enum Detail: Sendable, Hashable {
        /// At the waits only. The members of epoll sets and the other descriptors, of which there can be
        /// thousands, are left out, and names are empty.
        case waits
        case all
    }

    package struct Activity: Sendable, Hashable {
        package var runs: UInt64
        package var nanoseconds: UInt64

        package init(runs: UInt64, nanoseconds: UInt64) {
            self.runs = runs
            self.nanoseconds = nanoseconds
        }

        /// Parses `/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited, runs.
        init?(_ text: [UInt8]) {
            var fields = ByteFields(text)
            let numbers = fields.restOfLine().map { ByteFields.number($0) }
            guard numbers.count == 3, let nanoseconds = numbers[0], let runs = numbers[2] else { return nil }
            self.init(runs: runs, nanoseconds: nanoseconds)
        }
    }

    package var pid: pid_t
    package var name: String
    package var threads: [Thread]
    /// The descriptors that are waited for, and the rings for asynchronous input and output.
    package var descriptors: [CInt: OpenDescriptor]
    package var tracer: pid_t?
    /// Kernel threads have none.
    package var hasMemory: Bool

    /// Looks at a process.
    ///
    /// - Returns: nil if it is gone.
    /// - Throws: the reason why `/proc` could not be read, such as `EMFILE`. Missing rights are no error:
    ///   then the states are nil.
    package static func take(_ pid: pid_t, _ detail: Detail = .all) throws(SystemError) -> ProcessLook? {
        guard let name = detail == .all ? ProcFS.name(pid) : "" else { return nil }
        var look = ProcessLook(
            pid: pid, name: name, threads: [], descriptors: [:], tracer: ProcFS.tracerPID(pid),
            hasMemory: false)
        for id in try ProcFS.readThreadIdentifiers(pid).sorted() {
            guard let statistics = try ProcFS.readStatistics(pid, thread: id) else { continue }
            look.threads.append(thread(id, of: pid, statistics.state, detail))
        }
        guard !look.threads.isEmpty else { return nil }
        // The first thread may have ended before the others.
        look.hasMemory = look.threads.contains { ProcFS.residentBytes($0.id) ?? 0 > 0 }
        look.lookAtDescriptors(detail)
        return look
    }

    private static func thread(
        _ id: pid_t, of pid: pid_t, _ schedulerState: Character, _ detail: Detail
    ) -> Thread {
        let directory = "/proc/\(pid)/task/\(id)"
        let name = detail == .all ? (try? SmallFile.readText(directory + "/comm")) ?? "" : ""
        var thread = Thread(
            id: id, name: String(name.prefix { $0 != "\n" }),
            state: (try? SmallFile.read(directory + "/syscall")).flatMap { ThreadState($0) },
            schedulerState: schedulerState,
            activity: (try? SmallFile.read(directory + "/schedstat")).flatMap { Activity($0) })
        guard case .blocked(let call) = thread.state else { return thread }
        thread.end = end(of: call, in: id)
        thread.timeout = thread.end.remaining
        thread.watch(call, in: pid, detail)
        return thread
    }

    private static func end(of call: BlockedCall, in thread: pid_t) -> WaitEnd {
        switch call.timeout {
        case .never: return .never
        case .unknown: return .unknown
        case .after(let duration): return .after(duration)
        case .atAddress(let address, let unit, let clock):
            guard let bytes = memory(of: thread, at: address, 16) else { return .unknown }
            let numbers = [0, 8].map { start in
                (0..<8).reduce(Int64(0)) { $0 | Int64(bytes[start + $1]) << (8 * Int64($1)) }
            }
            let (nanoseconds, overflows) = numbers[1].multipliedReportingOverflow(by: unit.rawValue)
            guard !overflows, numbers[0] >= 0 else { return .unknown }
            let time = Duration.seconds(numbers[0]) + .nanoseconds(nanoseconds)
            return clock.map { .at(time, clock: $0) } ?? .after(time)
        }
    }

    fileprivate static func memory(of thread: pid_t, at address: UInt64, _ count: Int) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = unsafe bytes.withUnsafeMutableBytes {
            unsafe clinux_read_memory(thread, address, $0.baseAddress, count)
        }
        return read == count ? bytes : nil
    }

    private mutating func lookAtDescriptors(_ detail: Detail) {
        for thread in threads {
            // Its own: it may share none with the others.
            for number in thread.watched where descriptors[number] == nil {
                descriptors[number] = descriptor(number, of: thread.id)
            }
        }
        switch detail {
        case .waits: return
        case .all:
            guard let names = try? SmallFile.names(in: "/proc/\(pid)/fd") else { return }
            for number in names.compactMap({ CInt($0) }) {
                if descriptors[number] == nil, let descriptor = descriptor(number, of: pid),
                    descriptor == .ring
                {
                    descriptors[number] = descriptor
                }
            }
        }
    }

    private func descriptor(_ number: CInt, of thread: pid_t) -> OpenDescriptor? {
        (try? readLink("/proc/\(pid)/task/\(thread)/fd/\(number)")).map { OpenDescriptor(link: $0) }
    }
}

extension ProcessLook.WaitEnd {
    /// The time until then, at most; nil: never, or that is not known.
    package var remaining: Duration? {
        switch self {
        case .never, .unknown: return nil
        case .after(let duration): return duration
        case .at(let time, let clock):
            var now = timespec()
            guard unsafe clock_gettime(clock, &now) == 0 else { return nil }
            return max(.zero, time - .seconds(now.tv_sec) - .nanoseconds(now.tv_nsec))
        }
    }
}

// MARK: Descriptors

extension ProcessLook.Thread {
    /// The most descriptors that are looked up for one wait.
    private static let mostDescriptors = 65_536

    fileprivate mutating func watch(_ call: BlockedCall, in pid: pid_t, _ detail: ProcessLook.Detail) {
        if let descriptor = call.descriptor {
            add(descriptor, call.kind == .write ? EPOLLOUT.rawValue : EPOLLIN.rawValue)
            if call.kind == .epoll, detail == .all {
                watched = Self.members(ofEpollSet: descriptor, in: pid).map(\.descriptor)
            }
            return
        }
        switch call.list {
        case nil: break
        case .entries(let address, let count): watchEntries(address, min(count, Self.mostDescriptors))
        case .sets(let addresses, let count): watchSets(addresses, min(count, Self.mostDescriptors))
        }
    }

    private mutating func add(_ descriptor: CInt, _ events: UInt32) {
        if interests.updateValue(events | (interests[descriptor] ?? 0), forKey: descriptor) == nil {
            watched.append(descriptor)
        }
    }

    /// `struct pollfd`: a descriptor, which is left out if it is negative, and two masks.
    private mutating func watchEntries(_ address: UInt64, _ count: Int) {
        guard count > 0, let bytes = ProcessLook.memory(of: id, at: address, 8 * count) else { return }
        for entry in stride(from: 0, to: 8 * count, by: 8) {
            let number = (0..<4).reduce(UInt32(0)) { $0 | UInt32(bytes[entry + $1]) << (8 * UInt32($1)) }
            guard CInt(bitPattern: number) >= 0 else { continue }
            // The bits of poll(2) are those of epoll(7).
            add(CInt(bitPattern: number), UInt32(bytes[entry + 4]) | UInt32(bytes[entry + 5]) << 8)
        }
    }

    private mutating func watchSets(_ addresses: [UInt64], _ count: Int) {
        let length = (count + 63) / 64 * 8
        guard length > 0 else { return }
        let events = [EPOLLIN.rawValue, EPOLLOUT.rawValue, EPOLLPRI.rawValue]
        for (address, events) in zip(addresses, events) where address != 0 {
            guard let set = ProcessLook.memory(of: id, at: address, length) else { continue }
            for number in 0..<count where set[number / 8] & 1 << UInt8(number % 8) != 0 {
                add(CInt(number), events)
            }
        }
    }

    /// A member of an epoll set.
    package struct Member: Sendable, Hashable {
        package let descriptor: CInt
        /// Of epoll(7), with the flags.
        package let events: UInt32
        /// Of its file, which the process may have closed without that descriptor; 0 if this kernel does not
        /// tell.
        package let inode: UInt64
    }

    /// The members of an epoll set of a process, or of a thread that shares no descriptors with its process.
    package static func members(ofEpollSet set: CInt, in pid: pid_t) -> [Member] {
        // It has a line `tfd: 5 events: 19 data: 5 pos:0 ino:8f3 sdev:9` for each.
        guard let text = try? SmallFile.read("/proc/\(pid)/fdinfo/\(set)") else { return [] }
        var fields = ByteFields(text)
        var members: [Member] = []
        repeat {
            guard fields.next()?.elementsEqual("tfd:".utf8) == true,
                let descriptor = ByteFields.number(fields.next()), fields.next() != nil,
                let events = ByteFields.number(fields.next(), radix: 16)
            else { continue }
            let inode = fields.restOfLine().first { $0.starts(with: "ino:".utf8) }
            members.append(
                Member(
                    descriptor: CInt(truncatingIfNeeded: descriptor),
                    events: UInt32(truncatingIfNeeded: events),
                    inode: ByteFields.number(inode?.dropFirst(4), radix: 16) ?? 0))
        } while fields.nextLine()
        return members
    }
}
