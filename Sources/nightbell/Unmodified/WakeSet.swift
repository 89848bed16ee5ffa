import CLinux
import Glibc
import LinuxSystem
import Manifests
import ProcessWaits

/// The wake sources of a sleeping program: one epoll set of duplicates of all that the program's threads wait
/// for, with the events that they wait for, and timers for the ends of their waits.
final class WakeSet {
    private let epoll: OwnedDescriptor
    /// Duplicates, timers and pidfds, to be closed. Members leave the set only when all duplicates are
    /// closed.
    private var members: [CInt] = []
    /// Duplicates of listening sockets that report connections late, and the option's value before.
    private var deferring: [(port: CInt, before: CInt)] = []

    /// A duplicate of a socket with a profile: the supervisor answers its pings, and it is no member of the
    /// set.
    struct ProfiledSocket {
        let descriptor: CInt
        let profile: PortProfile
        /// Of the socket, which several threads and sets may wait for.
        let inode: UInt64
    }

    private let profiles: SocketProfiles
    private var profiled: [ProfiledSocket] = []
    private let defersConnections: Bool

    /// - Parameter defersConnections: whether connections to TCP ports are to be reported with their first
    ///   byte.
    init(_ profiles: SocketProfiles, defersConnections: Bool) throws(SystemError) {
        self.profiles = profiles
        self.defersConnections = defersConnections
        epoll = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
    }

    deinit { clear() }

    var rawValue: CInt { epoll.rawValue }

    /// A thread's wait that cannot be watched.
    struct Obstacle: Error { let reason: String }

    /// Threads that share their descriptors, by the one of them that is asked for these.
    private typealias Waits = [pid_t: (interests: [CInt: UInt32], direct: Set<CInt>)]

    /// - Parameters:
    ///   - first: the process with a parent that notices its end.
    ///   - refusesTimeouts: whether a call with a timeout that only its socket has must end in time.
    func add(_ look: GroupLook, first: pid_t, refusesTimeouts: Bool) throws(Obstacle) {
        for process in look.processes {
            var waits: Waits = [:]
            for thread in process.threads where !thread.interests.isEmpty {
                let isOfProcess =
                    thread.id == process.pid || clinux_have_same_descriptors(process.pid, thread.id) == 1
                var (interests, direct) = waits[isOfProcess ? process.pid : thread.id] ?? ([:], [])
                interests.merge(thread.interests) { $0 | $1 }
                if refusesTimeouts, thread.waitsForOne { direct.formUnion(thread.interests.keys) }
                waits[isOfProcess ? process.pid : thread.id] = (interests, direct)
            }
            // The death of a child, which can happen even now, is for its parent to notice.
            if process.pid != first, waits[process.pid] == nil { waits[process.pid] = ([:], []) }
            for (thread, (interests, direct)) in waits {
                let handle = try open(thread, of: process.pid)
                if thread == process.pid, thread != first { try watch(handle) }
                for (descriptor, events) in interests {
                    if defersConnections { deferConnections(to: descriptor, of: thread, handle, process) }
                    let hasTimeout: Bool
                    if let duplicate = try addByProfile(descriptor, events, of: thread, handle, process) {
                        hasTimeout = Self.hasTimeout(duplicate)
                    } else {
                        hasTimeout = Self.hasTimeout(try add(descriptor, events, of: handle, process))
                    }
                    guard direct.contains(descriptor), hasTimeout else { continue }
                    throw Obstacle(
                        reason: "its socket \(descriptor) has a timeout (SO_RCVTIMEO or SO_SNDTIMEO)")
                }
            }
        }
    }

    /// - Returns: a pidfd.
    private func open(_ thread: pid_t, of process: pid_t) throws(Obstacle) -> CInt {
        do throws(SystemError) {
            let handle = try systemCall("pidfd_open") {
                thread == process ? clinux_pidfd_open(process) : clinux_pidfd_open_thread(thread)
            }
            members.append(handle)
            return handle
        } catch {
            throw Obstacle(
                reason: thread == process
                    ? "process \(process) cannot be opened: \(error)"
                    : "thread \(thread), which has descriptors of its own, cannot be opened: \(error)")
        }
    }

    private func watch(_ handle: CInt) throws(Obstacle) {
        do throws(SystemError) {
            try insert(handle, EPOLLIN.rawValue)
        } catch {
            throw Obstacle(reason: "its processes cannot be watched: \(error)")
        }
    }

    private static func hasTimeout(_ descriptor: CInt) -> Bool {
        [SO_RCVTIMEO, SO_SNDTIMEO].contains { option in
            var time = timeval()
            var length = socklen_t(MemoryLayout<timeval>.size)
            let result = unsafe getsockopt(descriptor, SOL_SOCKET, option, &time, &length)
            return result == 0 && (time.tv_sec != 0 || time.tv_usec != 0)
        }
    }

    private func add(
        _ descriptor: CInt, _ events: UInt32, of handle: CInt, _ process: ProcessLook
    ) throws(Obstacle) -> CInt {
        do throws(SystemError) {
            let duplicate = try systemCall("pidfd_getfd") { clinux_get_descriptor(handle, descriptor) }
            members.append(duplicate)
            try insert(duplicate, events)
            return duplicate
        } catch {
            let kind = process.descriptors[descriptor]?.words ?? "descriptor"
            throw Obstacle(reason: "its \(kind) \(descriptor) cannot be watched: \(error)")
        }
    }

    /// - Parameters:
    ///   - nanoseconds: of the clock.
    ///   - clock: `CLOCK_MONOTONIC`, `CLOCK_REALTIME` or `CLOCK_BOOTTIME`.
    func addTimer(at nanoseconds: Int64, clock: CInt) throws(Obstacle) {
        do throws(SystemError) {
            let timer = try systemCall("timerfd_create") {
                timerfd_create(clock, CInt(TFD_NONBLOCK | TFD_CLOEXEC))
            }
            members.append(timer)
            var specification = itimerspec()
            let instant = max(1, nanoseconds)
            specification.it_value.tv_sec = Int(instant / 1_000_000_000)
            specification.it_value.tv_nsec = Int(instant % 1_000_000_000)
            _ = try systemCall("timerfd_settime") {
                unsafe timerfd_settime(timer, CInt(TFD_TIMER_ABSTIME), &specification, nil)
            }
            try insert(timer, EPOLLIN.rawValue)
        } catch {
            throw Obstacle(reason: "its timer cannot be watched: \(error)")
        }
    }

    private func insert(_ member: CInt, _ events: UInt32) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events
        let rawValue = epoll.rawValue
        _ = try systemCall("epoll_ctl") { unsafe epoll_ctl(rawValue, EPOLL_CTL_ADD, member, &event) }
    }

    // MARK: Sockets with a profile

    /// The sockets with a profile, which belong to the caller from now on.
    func takeProfiled() -> [ProfiledSocket] {
        defer { profiled.removeAll() }
        return profiled
    }

    /// Adds a socket with a profile, or the members of an epoll set if one of them has a profile, instead of
    /// the set itself, which its pings would make ready.
    ///
    /// - Returns: the duplicate; nil: there is no profile, and nothing was added.
    private func addByProfile(
        _ descriptor: CInt, _ events: UInt32, of thread: pid_t, _ handle: CInt, _ process: ProcessLook
    ) throws(Obstacle) -> CInt? {
        guard !profiles.isEmpty else { return nil }
        switch process.descriptors[descriptor] {
        case .socket:
            let duplicate = clinux_get_descriptor(handle, descriptor)
            guard duplicate >= 0 else { return nil }
            guard let profile = profiles.profile(of: duplicate, events),
                let inode = Self.inode(of: duplicate)
            else {
                close(duplicate)
                return nil
            }
            if isProfiled(inode) {
                members.append(duplicate)
            } else {
                profiled.append(ProfiledSocket(descriptor: duplicate, profile: profile, inode: inode))
            }
            return duplicate
        case .epoll:
            return try addMembers(of: descriptor, of: thread, handle)
        default: return nil
        }
    }

    /// - Returns: the duplicate of one of the members; nil: none has a profile, and nothing was added.
    private func addMembers(of set: CInt, of thread: pid_t, _ handle: CInt) throws(Obstacle) -> CInt? {
        var found: [(duplicate: CInt, events: UInt32)] = []
        var withProfile: [ProfiledSocket] = []
        var first: CInt?
        for member in ProcessLook.Thread.members(ofEpollSet: set, in: thread) {
            let duplicate = clinux_get_descriptor(handle, member.descriptor)
            // Its file may have another descriptor now, or none: the set itself is the only one to know it.
            guard duplicate >= 0, Self.inode(of: duplicate) == member.inode else {
                if duplicate >= 0 { close(duplicate) }
                first = nil
                break
            }
            guard let profile = profiles.profile(of: duplicate, member.events) else {
                found.append((duplicate, member.events))
                continue
            }
            first = duplicate
            if isProfiled(member.inode) || withProfile.contains(where: { $0.inode == member.inode }) {
                found.append((duplicate, 0))
            } else {
                withProfile.append(
                    ProfiledSocket(descriptor: duplicate, profile: profile, inode: member.inode))
            }
        }
        guard let first else {
            for duplicate in found.map(\.duplicate) + withProfile.map(\.descriptor) { close(duplicate) }
            return nil
        }
        profiled += withProfile
        members += found.map(\.duplicate)
        do throws(SystemError) {
            for (duplicate, events) in found where events & Self.allConditions != 0 {
                try insert(duplicate, events & (Self.allConditions | EPOLLET.rawValue))
            }
            if found.contains(where: { $0.events & EPOLLET.rawValue != 0 }) { try forgetEdges() }
        } catch {
            throw Obstacle(reason: "the members of its epoll set \(set) cannot be watched: \(error)")
        }
        return first
    }

    private func isProfiled(_ inode: UInt64) -> Bool { profiled.contains { $0.inode == inode } }

    /// All that epoll(7) reports. A member without any of it is disabled after `EPOLLONESHOT`.
    private static let allConditions =
        EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLPRI.rawValue | EPOLLRDHUP.rawValue | EPOLLRDNORM.rawValue
        | EPOLLRDBAND.rawValue | EPOLLWRNORM.rawValue | EPOLLWRBAND.rawValue | EPOLLMSG.rawValue

    /// The program has seen what was ready before, such as room in its sockets: only what comes from now on
    /// wakes it.
    private func forgetEdges() throws(SystemError) {
        let most = 64
        var events = unsafe [epoll_event](repeating: epoll_event(), count: most)
        let rawValue = epoll.rawValue
        for _ in 0...(members.count / most) {
            let count = try systemCall("epoll_wait") {
                unsafe epoll_wait(rawValue, &events, CInt(most), 0)
            }
            guard count == most else { return }
        }
    }

    private static func inode(of descriptor: CInt) -> UInt64? {
        var status = stat()
        return unsafe fstat(descriptor, &status) == 0 ? UInt64(status.st_ino) : nil
    }

    // MARK: Connections that say nothing

    /// In seconds. The kernel reports a connection that says nothing for longer.
    private static let longestSilence: CInt = 60

    /// Has a listening TCP socket report connections with their first byte, until `clear`; of an epoll set,
    /// its members.
    private func deferConnections(
        to descriptor: CInt, of thread: pid_t, _ handle: CInt, _ process: ProcessLook
    ) {
        switch process.descriptors[descriptor] {
        case .socket: deferConnections(to: descriptor, handle)
        case .epoll:
            for member in ProcessLook.Thread.members(ofEpollSet: descriptor, in: thread) {
                deferConnections(to: member.descriptor, handle)
            }
        default: break
        }
    }

    private func deferConnections(to descriptor: CInt, _ handle: CInt) {
        let port = clinux_get_descriptor(handle, descriptor)
        guard port >= 0 else { return }
        guard Self.isPort(port), let before = SocketOption.deferAccept.value(of: port),
            SocketOption.deferAccept.set(Self.longestSilence, on: port)
        else {
            close(port)
            return
        }
        deferring.append((port, before))
    }

    private static func isPort(_ descriptor: CInt) -> Bool {
        SocketOption.isListening.value(of: descriptor) == 1
            && SocketOption.protocol.value(of: descriptor) == CInt(IPPROTO_TCP)
    }

    /// Gives up all duplicates.
    func clear() {
        // The last first: several processes may have the same socket.
        for (port, before) in deferring.reversed() {
            SocketOption.deferAccept.set(before, on: port)
            close(port)
        }
        deferring.removeAll()
        for socket in takeProfiled() { close(socket.descriptor) }
        for member in members {
            var event = unsafe epoll_event()
            unsafe epoll_ctl(epoll.rawValue, EPOLL_CTL_DEL, member, &event)
            close(member)
        }
        members.removeAll()
    }
}

extension ProcessLook.Thread {
    /// It waits in a call for one descriptor, which a timeout of the descriptor's own can end.
    fileprivate var waitsForOne: Bool {
        guard case .blocked(let call) = state else { return false }
        return [.read, .write, .accept].contains(call.kind)
    }
}
