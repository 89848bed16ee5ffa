import CLinux
import Glibc

/// The kind and state of a descriptor, inspected without side effects: no byte is read, no pending error
/// consumed, no option set.
package struct SocketFacts: Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        case tcp
        case udp
        case unixStream
        case unixDatagram
        case unixSeqPacket
        case otherSocket
        /// A pipe or a FIFO.
        case pipe
        case device
        /// A descriptor without a file, with the kernel's name for it, such as `[timerfd]`.
        case anonymous(String)
        case regularFile
        case directory
    }

    package let kind: Kind
    package let isListening: Bool
    /// Whether it has a peer. A stream that was reset has none.
    package let isConnected: Bool
    package let readiness: Readiness
    /// Whether it can be polled: files and directories are always ready and cannot.
    package let isPollable: Bool
    /// `127.0.0.1:5060`, `[::1]:5060`, `/run/x.sock`, `@abstract`; nil without a socket or an address.
    package let local: String?
    package let peer: String?

    package var isSocket: Bool {
        switch kind {
        case .tcp, .udp, .unixStream, .unixDatagram, .unixSeqPacket, .otherSocket: true
        case .pipe, .device, .anonymous, .regularFile, .directory: false
        }
    }

    /// A byte stream, on which an end of input is final.
    package var isStream: Bool {
        switch kind {
        case .tcp, .unixStream, .pipe: true
        case .udp, .unixDatagram, .unixSeqPacket, .otherSocket, .device, .anonymous, .regularFile, .directory:
            false
        }
    }

    /// `EBADF`: it is not open.
    package init(inspecting descriptor: CInt) throws(SystemError) {
        // Not fstat(2), nor any other file operation: a file system's server may never answer.
        let type = try systemCall("statx") { clinux_file_type(descriptor) }
        kind = try Self.kind(of: descriptor, mode: mode_t(type))
        switch kind {
        case .regularFile, .directory, .anonymous("[eventpoll]"):
            // The kernel asks all members of an epoll set whether they are ready, and counts them when it is added
            // to another one: servers of theirs may never answer, and there may be a million.
            readiness = []
            isPollable = false
            isListening = false
            local = nil
            peer = nil
            isConnected = false
            return
        case .tcp, .udp, .unixStream, .unixDatagram, .unixSeqPacket, .otherSocket, .pipe, .device, .anonymous:
            readiness = Poll.now(descriptor)
        }
        switch kind {
        case .tcp, .udp, .unixStream, .unixDatagram, .unixSeqPacket, .otherSocket:
            isPollable = true
            isListening = Self.option(SO_ACCEPTCONN, of: descriptor) == 1
            local = SocketAddressText.local(of: descriptor)
            peer = SocketAddressText.peer(of: descriptor)
            isConnected = SocketAddressText.hasPeer(descriptor)
        case .pipe, .device, .anonymous, .regularFile, .directory:
            isPollable = try Self.canBeWatched(descriptor)
            isListening = false
            local = nil
            peer = nil
            isConnected = false
        }
    }

    /// The facts that decide whether a descriptor is adopted: `SocketFacts` without the addresses and with a
    /// third of the system calls, for thousands in a row.
    package struct Brief: Sendable, Hashable {
        package private(set) var isSocket = true
        package private(set) var isStream = false
        package private(set) var isListening = false
        /// Set for streams only.
        package private(set) var isConnected = false
        package private(set) var isPollable = true
        /// Set for sockets only. Reading it does not consume the error.
        package private(set) var hasPendingError = false
        private var canListen = true

        /// Inspects all of them; nil where the kernel gives no information, so that it cannot be watched
        /// either.
        ///
        /// - Throws: `EMFILE` or `ENFILE`: inspection may need a descriptor, and none is free.
        package static func inspect(_ descriptors: [CInt]) throws(SystemError) -> [Brief?] {
            var briefs: [Brief?] = []
            briefs.reserveCapacity(descriptors.count)
            for descriptor in descriptors {
                do {
                    briefs.append(try Brief(kindOf: descriptor))
                } catch {
                    guard error.code != EMFILE, error.code != ENFILE else { throw error }
                    briefs.append(nil)
                }
            }
            // Sockets only: drivers and servers of other files may be slow to answer.
            let readiness = Poll.now(
                descriptors.indices.map { briefs[$0]?.isSocket == true ? descriptors[$0] : -1 })
            for index in briefs.indices { briefs[index]?.complete(descriptors[index], readiness[index]) }
            return briefs
        }

        private init(kindOf descriptor: CInt) throws(SystemError) {
            guard let type = SocketFacts.option(SO_TYPE, of: descriptor) else {
                let facts = try SocketFacts(inspecting: descriptor)
                isSocket = facts.isSocket
                isStream = facts.isStream
                isPollable = facts.isPollable
                return
            }
            isStream = type == CInt(SOCK_STREAM.rawValue)
            canListen = isStream || type == CInt(SOCK_SEQPACKET.rawValue)
        }

        private mutating func complete(_ descriptor: CInt, _ readiness: Readiness) {
            guard isSocket else { return }
            hasPendingError = readiness.contains(.error)
            // A stream that is writable and not hung up has a peer, and a socket with a peer does not listen.
            isConnected =
                isStream
                && (readiness.contains(.writable) && readiness.isDisjoint(with: [.hangUp, .error])
                    || SocketAddressText.hasPeer(descriptor))
            isListening =
                canListen && !isConnected && SocketFacts.option(SO_ACCEPTCONN, of: descriptor) == 1
        }
    }

    static func kind(of descriptor: CInt, mode: mode_t) throws(SystemError) -> Kind {
        switch mode & S_IFMT {
        case S_IFSOCK: return socketKind(of: descriptor)
        case S_IFIFO: return .pipe
        case S_IFCHR, S_IFBLK: return .device
        case S_IFDIR: return .directory
        case S_IFREG: return .regularFile
        default:
            // timerfd, eventfd, epoll, pidfd (of older kernels) and others: `anon_inode:[eventfd]`.
            let link = try readLink("/proc/self/fd/\(descriptor)")
            let prefix = "anon_inode:"
            return .anonymous(link.hasPrefix(prefix) ? String(link.dropFirst(prefix.count)) : link)
        }
    }

    /// Whether it is an Internet datagram socket, such as UDP.
    package static func isDatagram(_ descriptor: CInt) -> Bool {
        let domain = option(SO_DOMAIN, of: descriptor)
        return option(SO_TYPE, of: descriptor) == CInt(SOCK_DGRAM.rawValue)
            && (domain == AF_INET || domain == AF_INET6)
    }

    static func socketKind(of descriptor: CInt) -> Kind {
        let type = option(SO_TYPE, of: descriptor)
        let streams = CInt(SOCK_STREAM.rawValue)
        let datagrams = CInt(SOCK_DGRAM.rawValue)
        switch option(SO_DOMAIN, of: descriptor) {
        case AF_UNIX where type == streams: return .unixStream
        case AF_UNIX where type == datagrams: return .unixDatagram
        case AF_UNIX where type == CInt(SOCK_SEQPACKET.rawValue): return .unixSeqPacket
        case AF_INET where type == streams, AF_INET6 where type == streams:
            let multipathTCP: CInt = 262
            let transport = option(SO_PROTOCOL, of: descriptor)
            return transport == CInt(IPPROTO_TCP) || transport == multipathTCP ? .tcp : .otherSocket
        case AF_INET where type == datagrams, AF_INET6 where type == datagrams:
            return option(SO_PROTOCOL, of: descriptor) == CInt(IPPROTO_UDP) ? .udp : .otherSocket
        default: return .otherSocket
        }
    }

    fileprivate static func option(_ name: CInt, of descriptor: CInt) -> CInt? {
        var value: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard unsafe getsockopt(descriptor, SOL_SOCKET, name, &value, &length) == 0 else { return nil }
        return value
    }

    /// Adds it to a temporary epoll instance: only the kernel knows the answer.
    private static func canBeWatched(_ descriptor: CInt) throws(SystemError) -> Bool {
        let closeOnExec = CInt(EPOLL_CLOEXEC)
        let created = try systemCall("epoll_create1") { epoll_create1(closeOnExec) }
        let scratch = OwnedDescriptor(adopting: created)
        var event = unsafe epoll_event()
        return unsafe epoll_ctl(scratch.rawValue, EPOLL_CTL_ADD, descriptor, &event) == 0
    }
}
