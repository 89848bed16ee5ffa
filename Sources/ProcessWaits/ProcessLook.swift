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
        /// When its wait ends by itself; nil: never, or that is not known.
        package var timeout: Duration?
        /// How often it has run, and how long, in all; nil if the kernel does not count it.
        package var activity: Activity?
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
    /// - Throws: the reason why `/proc` could not be read, such as `EMFILE`. Missing rights are no error: then the states are
    ///   nil.
    package static func take(_ pid: pid_t) throws(SystemError) -> ProcessLook? {
        guard let name = ProcFS.name(pid) else { return nil }
        var look = ProcessLook(
            pid: pid, name: name, threads: [], descriptors: [:], tracer: ProcFS.tracerPID(pid),
            hasMemory: ProcFS.residentBytes(pid) ?? 0 > 0)
        for id in try ProcFS.readThreadIdentifiers(pid).sorted() {
            guard let statistics = try ProcFS.readStatistics(pid, thread: id) else { continue }
            look.threads.append(thread(id, of: pid, statistics.state))
        }
        guard !look.threads.isEmpty else { return nil }
        look.lookAtDescriptors()
        return look
    }

    private static func thread(_ id: pid_t, of pid: pid_t, _ schedulerState: Character) -> Thread {
        let directory = "/proc/\(pid)/task/\(id)"
        let name = (try? SmallFile.readText(directory + "/comm")) ?? ""
        var thread = Thread(
            id: id, name: String(name.prefix { $0 != "\n" }),
            state: (try? SmallFile.read(directory + "/syscall")).flatMap { ThreadState($0) },
            schedulerState: schedulerState,
            activity: (try? SmallFile.read(directory + "/schedstat")).flatMap { Activity($0) })
        guard case .blocked(let call) = thread.state else { return thread }
        thread.timeout = timeout(of: call, in: pid)
        thread.watched = watched(by: call, in: pid)
        return thread
    }

    private static func timeout(of call: BlockedCall, in pid: pid_t) -> Duration? {
        switch call.timeout {
        case .never, .unknown: return nil
        case .after(let duration): return duration
        case .atAddress(let address, let unit):
            guard let bytes = memory(of: pid, at: address, 16) else { return nil }
            let numbers = [0, 8].map { start in
                (0..<8).reduce(Int64(0)) { $0 | Int64(bytes[start + $1]) << (8 * Int64($1)) }
            }
            let (nanoseconds, overflows) = numbers[1].multipliedReportingOverflow(by: unit.rawValue)
            guard !overflows, numbers[0] >= 0 else { return nil }
            return .seconds(numbers[0]) + .nanoseconds(nanoseconds)
        }
    }

    /// The most descriptors that are looked up for one wait.
    private static let mostDescriptors = 65_536

    private static func watched(by call: BlockedCall, in pid: pid_t) -> [CInt] {
        if call.kind == .epoll, let set = call.descriptor { return members(ofEpollSet: set, in: pid) }
        if let descriptor = call.descriptor { return [descriptor] }
        switch call.list {
        case nil: return []
        case .entries(let address, let count):
            let count = min(count, mostDescriptors)
            // `struct pollfd`: a descriptor, which is left out if it is negative, and two masks.
            guard count > 0, let bytes = memory(of: pid, at: address, 8 * count) else { return [] }
            return (0..<count).map { index in
                let value = (0..<4).reduce(UInt32(0)) {
                    $0 | UInt32(bytes[8 * index + $1]) << (8 * UInt32($1))
                }
                return CInt(bitPattern: value)
            }.filter { $0 >= 0 }
        case .sets(let addresses, let count):
            let count = min(count, mostDescriptors)
            let length = (count + 63) / 64 * 8
            guard length > 0 else { return [] }
            let sets = addresses.compactMap { memory(of: pid, at: $0, length) }
            return (0..<CInt(count)).filter { number in
                sets.contains { $0[Int(number) / 8] & 1 << (UInt8(number % 8)) != 0 }
            }
        }
    }

    /// `/proc/PID/fdinfo/FD` of an epoll set has a line `tfd: …` for each of its members.
    private static func members(ofEpollSet set: CInt, in pid: pid_t) -> [CInt] {
        guard let text = try? SmallFile.read("/proc/\(pid)/fdinfo/\(set)") else { return [] }
        var fields = ByteFields(text)
        var members: [CInt] = []
        repeat {
            guard fields.next()?.elementsEqual("tfd:".utf8) == true,
                let member = ByteFields.number(fields.next())
            else { continue }
            members.append(CInt(truncatingIfNeeded: member))
        } while fields.nextLine()
        return members
    }

    private static func memory(of pid: pid_t, at address: UInt64, _ count: Int) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = unsafe bytes.withUnsafeMutableBytes {
            unsafe clinux_read_memory(pid, address, $0.baseAddress, count)
        }
        return read == count ? bytes : nil
    }

    private mutating func lookAtDescriptors() {
        guard let names = try? SmallFile.names(in: "/proc/\(pid)/fd") else { return }
        let watched = Set(threads.flatMap(\.watched))
        for name in names {
            guard let number = CInt(name), let link = try? readLink("/proc/\(pid)/fd/\(name)") else {
                continue
            }
            let descriptor = OpenDescriptor(link: link)
            if watched.contains(number) || descriptor == .ring { descriptors[number] = descriptor }
        }
    }
}
