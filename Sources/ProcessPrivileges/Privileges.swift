import CLinux
import CMachine
import Glibc
package import LinuxSystem

/// The rights that a process beside the supervisor gives up before it talks to others.
package enum Privileges {
    /// Becomes a user, with that user's group alone. Only root can; a process that is this user already stays
    /// it.
    package static func become(_ name: String) throws(SystemError) {
        let (user, group) = try identity(name)
        if geteuid() == user, getuid() == user { return }
        _ = try systemCall("becoming \(name)") { cmachine_become_user(user, group) }
    }

    /// A user that is unknown, given by number, has the group of the same number.
    private static func identity(_ name: String) throws(SystemError) -> (uid_t, gid_t) {
        if let number = uid_t(name) {
            let entry = unsafe getpwuid(number)
            return (number, unsafe entry?.pointee.pw_gid ?? number)
        }
        errno = 0
        guard let entry = unsafe getpwnam(name) else {
            throw SystemError(code: errno == 0 ? ENOENT : errno, call: "user \(name)")
        }
        return unsafe (entry.pointee.pw_uid, entry.pointee.pw_gid)
    }

    /// No new rights, no inspection by other processes of the user, and limits far above what the process
    /// needs: so a peer cannot have it use up the machine's memory.
    ///
    /// - Parameters:
    ///   - descriptors: how many it may have open.
    ///   - growth: how many bytes of memory it may use more than now; stacks of threads are part of it.
    package static func confine(
        descriptors: UInt = 256, growth: UInt = 96 * 1024 * 1024
    ) throws(SystemError) {
        try limit(RLIMIT_CORE, to: 0)
        try limit(RLIMIT_NOFILE, to: descriptors)
        let inUse = try memoryInUse()
        if inUse < growth { try limit(RLIMIT_DATA, to: inUse + growth) }
        _ = try systemCall("prctl") { cmachine_confine() }
        clinux_release_large_blocks_at_once()
    }

    /// Has the kernel kill this process when the thread that started it ends, even if it is stopped then. A
    /// change of the user cancels that. No signal comes if that thread has ended before, but then the
    /// connection is at its end.
    package static func endWithParent() throws(SystemError) {
        _ = try systemCall("prctl") { cmachine_end_with_parent() }
    }

    /// The memory that the limit counts, in bytes. A build with a sanitizer has terabytes from its start, and
    /// keeps what was freed: it gets no limit.
    private static func memoryInUse() throws(SystemError) -> UInt {
        var fields = ByteFields(try SmallFile.read("/proc/self/statm"))
        for _ in 0..<5 { _ = fields.next() }
        guard let pages = ByteFields.number(fields.next()) else {
            throw SystemError(code: EINVAL, call: "reading /proc/self/statm")
        }
        return UInt(pages) * UInt(sysconf(CInt(_SC_PAGESIZE)))
    }

    private static func limit(_ resource: __rlimit_resource, to value: UInt) throws(SystemError) {
        var limit = rlimit()
        let resource = __rlimit_resource_t(resource.rawValue)
        _ = try systemCall("getrlimit") { unsafe getrlimit(resource, &limit) }
        limit.rlim_max = min(limit.rlim_max, rlim_t(value))
        limit.rlim_cur = limit.rlim_max
        _ = try systemCall("setrlimit") { unsafe setrlimit(resource, &limit) }
    }
}
