import CLinux
import Glibc
import LinuxSystem
import ProcessWaits

/// The wake sources of a sleeping program: one epoll set, which the supervisor watches, of duplicates of all that the program's threads
/// wait for, with the events that they wait for, and timers for the ends of their waits.
final class WakeSet {
    private let epoll: OwnedDescriptor
    /// Duplicates, timers and pidfds, to be closed. Members leave the set only when all duplicates are closed.
    private var members: [CInt] = []
    /// Duplicates of listening sockets that report connections late, and the option's value before.
    private var deferring: [(socket: CInt, before: CInt)] = []

    init() throws(SystemError) {
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
    ///   - defersConnections: whether connections to TCP ports are to be reported with their first byte.
    func add(
        _ look: GroupLook, first: pid_t, refusesTimeouts: Bool, defersConnections: Bool
    ) throws(Obstacle) {
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
                    let duplicate = try add(descriptor, events, of: handle, process)
                    if defersConnections {
                        deferConnections(to: descriptor, duplicate, of: thread, handle, process)
                    }
                    guard direct.contains(descriptor), Self.hasTimeout(duplicate) else { continue }
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

    // MARK: Connections that say nothing

    /// In seconds. The kernel reports a connection that says nothing for longer.
    private static let longestSilence: CInt = 60

    /// Has listening TCP sockets report connections with their first byte, until `clear`.
    ///
    /// - Parameters:
    ///   - descriptor: of the thread; of an epoll set, its members.
    ///   - duplicate: of that descriptor.
    private func deferConnections(
        to descriptor: CInt, _ duplicate: CInt, of thread: pid_t, _ handle: CInt, _ process: ProcessLook
    ) {
        switch process.descriptors[descriptor] {
        case .socket:
            if Self.isPort(duplicate) { deferConnections(to: duplicate) }
        case .epoll:
            for member in ProcessLook.Thread.members(ofEpollSet: descriptor, in: thread) {
                let port = clinux_get_descriptor(handle, member)
                guard port >= 0 else { continue }
                guard Self.isPort(port) else {
                    close(port)
                    continue
                }
                members.append(port)
                deferConnections(to: port)
            }
        default: break
        }
    }

    private func deferConnections(to port: CInt) {
        guard let before = SocketOption.deferAccept.value(of: port),
            SocketOption.deferAccept.set(Self.longestSilence, on: port)
        else { return }
        deferring.append((port, before))
    }

    private static func isPort(_ descriptor: CInt) -> Bool {
        SocketOption.isListening.value(of: descriptor) == 1
            && SocketOption.protocol.value(of: descriptor) == CInt(IPPROTO_TCP)
    }

    /// Gives up all duplicates.
    func clear() {
        // The last first: several processes may have the same socket.
        for (socket, before) in deferring.reversed() { SocketOption.deferAccept.set(before, on: socket) }
        deferring.removeAll()
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
