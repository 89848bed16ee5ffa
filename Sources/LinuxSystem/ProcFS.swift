package import CLinux
import Glibc

/// Reads `/proc` about processes. A process that is gone, or hidden from this one, gives nil.
package enum ProcFS {
    /// The fields of `/proc/PID/stat` that are used.
    package struct Statistics: Sendable, Hashable {
        /// R, S, D, T (stopped), t (traced), Z (zombie), X (dead), I.
        package let state: Character
        package let parent: pid_t
        /// The process is exiting, which precedes the closing of its descriptors.
        package let isExiting: Bool
        package let threads: Int
        /// In clock ticks since boot. Together with the pid it identifies a process uniquely.
        package let startTime: UInt64
        /// The one on which it ran last.
        package let processor: CInt
    }

    /// Statistics of the process, or with `thread` of one of its threads.
    package static func statistics(_ pid: pid_t, thread: pid_t? = nil) -> Statistics? {
        try? readStatistics(pid, thread: thread)
    }

    /// Like `statistics`, but distinguishes a failed read from a process that is gone.
    ///
    /// - Returns: nil if it is gone.
    /// - Throws: the reason why `/proc` could not be read, such as `EMFILE`.
    package static func readStatistics(
        _ pid: pid_t, thread: pid_t? = nil
    ) throws(SystemError) -> Statistics? {
        let path = thread.map { "/proc/\(pid)/task/\($0)/stat" } ?? "/proc/\(pid)/stat"
        guard let bytes = try unlessGone({ () throws(SystemError) in try SmallFile.read(path) }) else {
            return nil
        }
        return statistics(in: bytes)
    }

    package static func statistics(in bytes: [UInt8]) -> Statistics? {
        // The second field is the program's name in parentheses, which may itself contain anything.
        guard let end = bytes.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        var fields = ByteFields(bytes, from: end + 1)
        guard let state = fields.next()?.first, let parent = ByteFields.number(fields.next()) else {
            return nil
        }
        fields.skip(4)
        guard let flags = ByteFields.number(fields.next()) else { return nil }
        fields.skip(10)
        guard let threads = ByteFields.number(fields.next()) else { return nil }
        fields.skip(1)
        guard let startTime = ByteFields.number(fields.next()) else { return nil }
        fields.skip(16)
        let processor = ByteFields.number(fields.next()) ?? 0
        return Statistics(
            state: Character(Unicode.Scalar(state)), parent: pid_t(clamping: parent),
            isExiting: flags & exitingFlag != 0, threads: Int(clamping: threads), startTime: startTime,
            processor: CInt(clamping: processor))
    }

    /// `PF_EXITING` of the kernel's `include/linux/sched.h`.
    private static let exitingFlag: UInt64 = 0x4

    /// The wait(2) status of a process that has ended and that its parent has not waited for yet. Nil for any
    /// other process, and if the status is hidden.
    package static func exitCode(_ pid: pid_t) -> CInt? {
        guard let text = try? SmallFile.readText("/proc/\(pid)/stat"), let end = text.lastIndex(of: ")")
        else {
            return nil
        }
        let fields = text[text.index(after: end)...].split { $0 == " " || $0 == "\n" }
        // `X`: its parent is being notified at this moment.
        guard fields.count > 49, fields[0] == "Z" || fields[0] == "X" else { return nil }
        guard let code = CInt(fields[49]) else { return nil }
        // A process without permission reads 0. Reading its namespace needs the same permission.
        if code == 0 {
            do throws(SystemError) {
                _ = try readLink("/proc/\(pid)/ns/user")
            } catch {
                return nil
            }
        }
        return code
    }

    package static func state(_ pid: pid_t) -> Character? { statistics(pid)?.state }

    /// The first result for a process, its parent, that one's parent and so on; nil if there is none for any
    /// of them.
    ///
    /// - Parameter generations: the most processes that are looked at.
    package static func firstOfAncestry<Result>(
        of pid: pid_t, generations: Int = 32, _ result: (pid_t) -> Result?
    ) -> Result? {
        var (process, left) = (pid, generations)
        // The first process of a namespace has the parent 0.
        while process > 0, left > 0 {
            if let found = result(process) { return found }
            process = statistics(process)?.parent ?? 0
            left -= 1
        }
        return nil
    }

    package static func startTime(_ pid: pid_t) -> UInt64? { statistics(pid)?.startTime }

    package static func threads(_ pid: pid_t) -> Int? { statistics(pid)?.threads }

    /// The ids of a process's threads, unordered.
    package static func threadIdentifiers(_ pid: pid_t) -> [pid_t] {
        (try? readThreadIdentifiers(pid)) ?? []
    }

    /// Like `threadIdentifiers`, but throws if `/proc` could not be read; empty if the process is gone.
    package static func readThreadIdentifiers(_ pid: pid_t) throws(SystemError) -> [pid_t] {
        let names = try unlessGone { () throws(SystemError) in try SmallFile.names(in: "/proc/\(pid)/task") }
        return (names ?? []).compactMap { pid_t($0) }
    }

    /// Whether a process is exiting with all of its threads: its first thread alone may end while the others
    /// continue. False for one that is gone, or cannot be read.
    package static func isExiting(_ pid: pid_t) -> Bool {
        do throws(SystemError) {
            let threads = try readThreadIdentifiers(pid)
            for thread in threads where try readStatistics(pid, thread: thread)?.isExiting == false {
                return false
            }
            return !threads.isEmpty
        } catch {
            return false
        }
    }

    private static func unlessGone<Result>(
        _ body: () throws(SystemError) -> Result
    ) throws(SystemError) -> Result? {
        do {
            return try body()
        } catch {
            guard error.code == ENOENT || error.code == ESRCH else { throw error }
            return nil
        }
    }

    /// The real user id.
    package static func uid(_ pid: pid_t) -> uid_t? {
        status(pid, "Uid").flatMap { $0.split(separator: "\t").first }.flatMap { uid_t($0) }
    }

    /// Whether all user ids of a process are this one: real, effective, saved and that of the file system.
    package static func ownsAll(_ pid: pid_t, _ user: uid_t) -> Bool {
        guard let line = status(pid, "Uid") else { return false }
        let numbers = line.split(separator: "\t").map { uid_t($0) }
        return numbers.count == 4 && numbers.allSatisfy { $0 == user }
    }

    /// The process that traces this one, such as a debugger; nil without a tracer.
    package static func tracerPID(_ pid: pid_t) -> pid_t? {
        guard let tracer = status(pid, "TracerPid").flatMap({ pid_t($0) }), tracer != 0 else { return nil }
        return tracer
    }

    /// The signals that the first thread of a process blocks: bit 0 is signal 1.
    package static func blockedSignals(_ pid: pid_t) -> UInt64? {
        status(pid, "SigBlk").flatMap { UInt64($0, radix: 16) }
    }

    package static func residentBytes(_ pid: pid_t) -> Int? {
        guard let text = try? SmallFile.readText("/proc/\(pid)/statm"),
            let pages = text.split(separator: " ").dropFirst().first.flatMap({ Int($0) })
        else { return nil }
        return pages * sysconf(CInt(_SC_PAGESIZE))
    }

    package static func openDescriptors(_ pid: pid_t) -> Int? {
        // Since Linux 6.2 the directory's length is their number. Listing thousands takes milliseconds, and
        // as many again when the process ends and the kernel drops the names.
        var status = stat()
        if unsafe stat("/proc/\(pid)/fd", &status) == 0, status.st_size > 0 { return Int(status.st_size) }
        return try? SmallFile.names(in: "/proc/\(pid)/fd").count
    }

    /// The name of the program, at most 15 bytes.
    package static func name(_ pid: pid_t) -> String? {
        guard let text = try? SmallFile.readText("/proc/\(pid)/comm") else { return nil }
        return text.hasSuffix("\n") ? String(text.dropLast()) : text
    }

    /// The children of a process, its own and those of its other threads.
    package static func children(_ pid: pid_t) -> [pid_t] {
        threadIdentifiers(pid).flatMap { children(pid, of: $0, limit: .max) ?? [] }
    }

    /// - Returns: nil if there are more than `limit`; reading does not take longer for that.
    package static func children(ofFirstThreadOf pid: pid_t, limit: Int) -> [pid_t]? {
        children(pid, of: pid, limit: limit)
    }

    private static func children(_ pid: pid_t, of thread: pid_t, limit: Int) -> [pid_t]? {
        // No pid has more than seven digits (`PID_MAX_LIMIT`).
        let (bytes, isUnlimited) = limit.multipliedReportingOverflow(by: 8)
        let found: [pid_t]
        do throws(SystemError) {
            let file = try OwnedDescriptor(opening: "/proc/\(pid)/task/\(thread)/children", O_RDONLY)
            found = try SmallFile.read(file, limit: isUnlimited ? .max : bytes)
                .split(separator: UInt8(ascii: " ")).compactMap { pid_t(String(decoding: $0, as: UTF8.self)) }
        } catch {
            return error.code == EFBIG ? nil : []
        }
        return found.count <= limit ? found : nil
    }

    /// The children of a process, theirs and so on.
    package static func descendants(of pid: pid_t) -> [pid_t] {
        descendants(of: pid, generations: .max, limit: .max, threadLimit: .max) ?? []
    }

    /// The same for a process of another user, which can make this as long as it likes: each of their threads is asked
    /// for its children.
    ///
    /// - Parameters:
    ///   - generations: the most that are looked at.
    ///   - limit: the most descendants.
    ///   - threadLimit: the most threads of the process and its descendants together.
    /// - Returns: nil if one of the last two is exceeded.
    package static func descendants(
        of pid: pid_t, generations: Int, limit: Int, threadLimit: Int
    ) -> [pid_t]? {
        var found: [pid_t] = []
        var (last, left, threadsLeft) = ([pid], generations, threadLimit)
        // A process that ends meanwhile gives its children to another parent, so there is no circle.
        while !last.isEmpty, left > 0 {
            var next: [pid_t] = []
            for process in last {
                let threads = countThreads(process)
                threadsLeft -= threads
                guard threadsLeft >= 0 else { return nil }
                // Most have one thread, which need not be looked for.
                for thread in threads == 1 ? [process] : threadIdentifiers(process) {
                    let left = limit - found.count - next.count
                    guard let more = children(process, of: thread, limit: left) else { return nil }
                    next += more
                }
            }
            last = next
            found += last
            left -= 1
        }
        return found
    }

    /// Cheaper than `threads`: each thread counts as a link of its directory's parent. 0: it is gone.
    private static func countThreads(_ pid: pid_t) -> Int {
        var status = stat()
        guard unsafe stat("/proc/\(pid)/task", &status) == 0 else { return 0 }
        return max(1, Int(status.st_nlink) - 2)
    }

    /// The number of file locks that the process holds by its first descriptors, `limit` at the most.
    ///
    /// Does not use `/proc/locks`: reading it waits for an RCU grace period of some milliseconds, and any
    /// user can make it long. Any user can make the files of this process long as well, each by a million locks: call it
    /// where that may take seconds. Of the locks of one descriptor the first 4 KiB of text are counted.
    ///
    /// - Returns: nil if it could not be read.
    package static func fileLocksHeld(_ pid: pid_t, limit: Int = 64) -> Int? {
        let directory = "/proc/\(pid)/fdinfo"
        guard let names = try? SmallFile.names(in: directory, limit: limit) else { return nil }
        var held = 0
        // The kernel writes down all locks of a file with preemption off: that delays whatever waits for the processor.
        for name in names where held < enoughLocks {
            // Locks come before all else that can be long.
            guard let information = try? SmallFile.readBeginning("\(directory)/\(name)") else { continue }
            held += locks(in: information)
        }
        return held
    }

    /// No further descriptors are looked at once so many locks are known.
    private static let enoughLocks = 16

    /// `lock:\t1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF`, among other lines. Leases are no locks.
    package static func locks(in information: [UInt8]) -> Int {
        var fields = ByteFields(information)
        var held = 0
        repeat {
            guard let title = fields.next(), title.elementsEqual("lock:".utf8) else { continue }
            fields.skip(1)
            guard let kind = fields.next() else { continue }
            if ["POSIX", "FLOCK", "OFDLCK"].contains(where: { kind.elementsEqual($0.utf8) }) { held += 1 }
        } while fields.nextLine()
        return held
    }

    /// A line of `/proc/PID/status`.
    private static func status(_ pid: pid_t, _ key: String) -> Substring? {
        guard let bytes = try? SmallFile.read("/proc/\(pid)/status") else { return nil }
        // By bytes: to split the text into lines takes as long as to read it.
        let title = Array("\(key):\t".utf8)
        var rest = bytes[...]
        while !rest.isEmpty {
            let line = rest.prefix { $0 != UInt8(ascii: "\n") }
            if line.starts(with: title) {
                return Substring(decoding: line.dropFirst(title.count), as: UTF8.self)
            }
            rest = rest.dropFirst(line.count + 1)
        }
        return nil
    }
}
