package import CLinux
import Glibc

/// The credentials of the other end of a Unix socket, as the kernel recorded them at connect.
package struct PeerCredentials: Sendable, Hashable {
    package let pid: pid_t
    package let uid: uid_t
    package let gid: gid_t

    package init(pid: pid_t, uid: uid_t, gid: gid_t) {
        self.pid = pid
        self.uid = uid
        self.gid = gid
    }
}

/// The result of `receive`.
package enum Reception: Sendable, Hashable {
    /// A packet is in the buffer. `truncated`: it was longer than the buffer. `controlTruncated`: some
    /// descriptors were dropped, for lack of room in the buffer or in the process's descriptor table.
    case packet(length: Int, truncated: Bool, controlTruncated: Bool)
    /// No packet has arrived.
    case wouldBlock
    /// The other end is closed. An empty packet looks the same; the protocol has none.
    case end
}

/// A Unix socket that keeps packets apart (`SOCK_SEQPACKET`). No call blocks and none raises `SIGPIPE`.
package struct SeqPacketSocket: ~Copyable, Sendable {
    /// The kernel's limit for one message (`SCM_MAX_FD`).
    package static let maximumDescriptors = 253

    package let descriptor: OwnedDescriptor

    package init(adopting descriptor: consuming OwnedDescriptor) {
        self.descriptor = descriptor
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// Gives up the socket and returns its descriptor.
    package consuming func takeDescriptor() -> OwnedDescriptor { descriptor }

    private static let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)

    static func makeSocket() throws(SystemError) -> OwnedDescriptor {
        OwnedDescriptor(adopting: try systemCall("socket") { socket(AF_UNIX, type, 0) })
    }

    /// Two sockets connected to each other.
    package struct Pair: ~Copyable, Sendable {
        package let first: SeqPacketSocket
        package let second: SeqPacketSocket

        /// Gives each end to an owner of its own.
        package consuming func separate<Result: ~Copyable, Failure: Error>(
            _ body: (consuming SeqPacketSocket, consuming SeqPacketSocket) throws(Failure) -> Result
        ) throws(Failure) -> Result {
            try body(first, second)
        }
    }

    package static func pair() throws(SystemError) -> Pair {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("socketpair") { unsafe socketpair(AF_UNIX, type, 0, &ends) }
        return Pair(
            first: SeqPacketSocket(adopting: OwnedDescriptor(adopting: ends[0])),
            second: SeqPacketSocket(adopting: OwnedDescriptor(adopting: ends[1])))
    }

    /// For a program that does not use `MSG_DONTWAIT` as this type does. The other end is not affected.
    package borrowing func setBlocking() throws(SystemError) {
        let rawValue = descriptor.rawValue
        _ = try systemCall("fcntl") { clinux_set_blocking(rawValue) }
    }

    /// Connects to a listening socket. `ECONNREFUSED` or `ENOENT`: there is no listener; `EAGAIN`: its queue
    /// is full.
    package static func connect(path: String) throws(SystemError) -> SeqPacketSocket {
        let address = try UnixAddress(path: path)
        let descriptor = try makeSocket()
        let rawValue = descriptor.rawValue
        _ = try systemCall("connect \(path)") {
            unsafe address.withSocketAddress { unsafe Glibc.connect(rawValue, $0, $1) }
        }
        return SeqPacketSocket(adopting: descriptor)
    }

    /// Accepts one waiting connection; nil if there is none. A connection that was aborted meanwhile is
    /// skipped. `EMFILE` and `ENFILE` are thrown: the connection stays in the queue.
    package borrowing func accept() throws(SystemError) -> SeqPacketSocket? {
        let rawValue = descriptor.rawValue
        while true {
            do {
                let accepted = try nonblockingSystemCall("accept4") { clinux_accept(rawValue) }
                guard let accepted else { return nil }
                return SeqPacketSocket(adopting: OwnedDescriptor(adopting: accepted))
            } catch {
                guard error.code == ECONNABORTED else { throw error }
            }
        }
    }

    // MARK: The other end

    /// The credentials of the process that connected or, on the connecting side, of the one that called
    /// `listen`.
    package borrowing func peerCredentials() throws(SystemError) -> PeerCredentials {
        var credentials = clinux_peer_credentials()
        let rawValue = descriptor.rawValue
        _ = try systemCall("getsockopt(SO_PEERCRED)") {
            unsafe clinux_get_peer_credentials(rawValue, &credentials)
        }
        return PeerCredentials(pid: credentials.pid, uid: credentials.uid, gid: credentials.gid)
    }

    /// A pidfd of the process at the other end. Before Linux 6.5 it is opened by number, which is correct
    /// only while that process lives; this is assumed if its end of the socket is still open afterwards.
    /// `ESRCH`: it has ended.
    package borrowing func peerProcess() throws(SystemError) -> OwnedDescriptor {
        var pidfd: CInt = -1
        var length = socklen_t(MemoryLayout<CInt>.size)
        let rawValue = descriptor.rawValue
        do {
            _ = try systemCall("getsockopt(SO_PEERPIDFD)") {
                unsafe getsockopt(rawValue, SOL_SOCKET, CLINUX_SO_PEERPIDFD, &pidfd, &length)
            }
            return OwnedDescriptor(adopting: pidfd)
        } catch {
            guard error.code == ENOPROTOOPT else { throw error }
            let process = try ProcessHandle.openPidfd(try peerCredentials().pid)
            guard Poll.now(rawValue).isDisjoint(with: [.peerClosed, .hangUp]) else {
                throw SystemError(code: ESRCH, call: "pidfd_open")
            }
            return process
        }
    }
}

extension SeqPacketSocket {
    /// The supplementary groups of the process that connected, as the kernel recorded them then (Linux 4.13).
    package borrowing func peerGroups() throws(SystemError) -> [gid_t] {
        var groups: [gid_t] = []
        let rawValue = descriptor.rawValue
        while true {
            var length = socklen_t(groups.count * MemoryLayout<gid_t>.stride)
            let result = unsafe getsockopt(rawValue, SOL_SOCKET, CLINUX_SO_PEERGROUPS, &groups, &length)
            if result == 0 { return Array(groups.prefix(Int(length) / MemoryLayout<gid_t>.stride)) }
            // `length` is now the required size.
            guard errno == ERANGE, Int(length) > groups.count * MemoryLayout<gid_t>.stride else {
                throw SystemError("getsockopt(SO_PEERGROUPS)")
            }
            groups = Array(repeating: 0, count: Int(length) / MemoryLayout<gid_t>.stride)
        }
    }
}
