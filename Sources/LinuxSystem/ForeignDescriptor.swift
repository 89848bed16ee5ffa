package import CLinux
import Glibc

/// Closes descriptors that were received from other processes.
///
/// The process that made the descriptor can make close(2) block for as long as it likes: a stream with
/// `SO_LINGER` waits for its peer, and so does a Unix socket with such a stream in its unread input; a file
/// waits for its file system's server, and an epoll set is emptied, of a million members, say. The only thread of the
/// loop must not wait for that.
package enum ForeignDescriptor {
    /// Stands for the user where it is not known.
    package static let anyUser = uid_t.max

    /// Closes at once where that cannot block, else on a thread of its own.
    ///
    /// - Parameter user: it has to wait for the descriptors of the same user only.
    package static func close(_ descriptor: consuming OwnedDescriptor, of user: uid_t = anyUser) {
        if mayBlock(descriptor.rawValue) {
            SlowCloser.shared.append([descriptor.take()], SlowCloser.Kind(user: user, isToBeDrained: false))
        } else {
            closePromptly(descriptor)
        }
    }

    /// Closes many, all from the first one that may block on a thread of its own: to ask each takes longer than to close
    /// it.
    package static func close(_ descriptors: ArraySlice<CInt>, of user: uid_t = anyUser) {
        for (index, descriptor) in zip(descriptors.indices, descriptors) {
            guard !mayBlock(descriptor) else {
                return SlowCloser.shared.append(
                    descriptors[index...], SlowCloser.Kind(user: user, isToBeDrained: false))
            }
            closePromptly(OwnedDescriptor(adopting: descriptor))
        }
    }

    /// Closes one of which `mayBlock` is false: its maker may have changed that in the meantime.
    package static func closePromptly(_ descriptor: consuming OwnedDescriptor) {
        _ = clinux_close_promptly(descriptor.take())
    }

    /// Discards the unread input of a socket and closes it, on a thread of its own: the input may hold
    /// descriptors, by the hundred thousand, and the kernel closes them synchronously.
    static func drain(_ socket: consuming OwnedDescriptor, of user: uid_t) {
        SlowCloser.shared.append([socket.take()], SlowCloser.Kind(user: user, isToBeDrained: true))
    }

    /// Discards packets on this thread, which waits a millisecond at most for the descriptors in 256 of them. A user's
    /// socket holds some hundred, but one of root may hold any number: these are as many as are discarded.
    static func discardInputPromptly(_ socket: CInt) {
        nameSenders(socket)
        _ = clinux_discard_packets_promptly(socket, 4_096)
    }

    /// Discards packets without descriptors, `packets` at the most. Call it once the other end cannot send
    /// any more.
    ///
    /// - Returns: whether the queue is empty then.
    static func discardPlainInput(_ socket: CInt, packets: Int) -> Bool {
        var isEmpty = false
        nameSenders(socket)
        unsafe withRoomForSender { control in
            for _ in 0..<packets {
                switch unsafe receive(socket, CInt(MSG_PEEK), control) {
                case .end: return isEmpty = true
                case .packetWithDescriptors: return
                case .packet: _ = unsafe receive(socket, CInt(MSG_TRUNC), control)
                case .interrupted: break
                }
            }
        }
        return isEmpty
    }

    private enum Reception {
        case packet, packetWithDescriptors, interrupted
        /// There is no packet left.
        case end
    }

    /// Makes every packet name its sender, which distinguishes an empty one from the end.
    private static func nameSenders(_ socket: CInt) {
        guard SocketOption.namesSender.set(1, on: socket) else {
            preconditionFailure("a Unix socket has this option")
        }
    }

    /// Provides room for a packet's sender (a process, a user and a group) and for no descriptor.
    private static func withRoomForSender(_ body: (_ control: UnsafeMutableRawBufferPointer) -> Void) {
        let capacity = clinux_cmsg_space(3 * MemoryLayout<CInt>.size)
        unsafe withUnsafeTemporaryAllocation(
            byteCount: capacity, alignment: MemoryLayout<cmsghdr>.alignment
        ) { control in unsafe body(control) }
    }

    private static func receive(
        _ socket: CInt, _ flag: CInt, _ control: UnsafeMutableRawBufferPointer
    ) -> Reception {
        guard let packet = unsafe receiveByte(socket, CInt(MSG_DONTWAIT) | flag, control) else {
            return errno == EINTR || errno == ECONNRESET ? .interrupted : .end
        }
        guard packet.controlLength > 0 else { return .end }
        return packet.flags & CInt(MSG_CTRUNC) != 0 ? .packetWithDescriptors : .packet
    }

    /// Receives the first byte of a packet.
    ///
    /// - Parameter control: with no room for descriptors the kernel sets `MSG_CTRUNC` if the packet has any.
    /// - Returns: nil: see `errno`.
    static func receiveByte(
        _ socket: CInt, _ flags: CInt, _ control: UnsafeMutableRawBufferPointer? = nil
    ) -> (flags: CInt, controlLength: Int)? {
        var byte: UInt8 = 0
        return unsafe withUnsafeMutablePointer(to: &byte) { byte in
            var vector = unsafe iovec(iov_base: byte, iov_len: 1)
            return unsafe withUnsafeMutablePointer(to: &vector) { vector in
                var message = unsafe msghdr()
                unsafe message.msg_iov = vector
                unsafe message.msg_iovlen = 1
                unsafe message.msg_control = control?.baseAddress
                unsafe message.msg_controllen = control?.count ?? 0
                guard unsafe recvmsg(socket, &message, flags) >= 0 else { return nil }
                return unsafe (message.msg_flags, message.msg_controllen)
            }
        }
    }

    /// The number of descriptors that wait to be closed. They have no owner any more, but are still open.
    package static var pendingCount: Int { SlowCloser.shared.pendingCount }

    /// The number of those that came from one user's processes.
    package static func pendingCount(of user: uid_t) -> Int { SlowCloser.shared.pendingCount(of: user) }

    /// Whether close(2) may block.
    package static func mayBlock(_ descriptor: CInt) -> Bool {
        var linger = linger()
        var length = socklen_t(MemoryLayout<linger>.size)
        if unsafe getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 {
            // The kernel takes a negative time for a very long one.
            return linger.l_onoff != 0 && linger.l_linger != 0 || mayHoldDescriptors(descriptor)
        }
        guard errno == ENOTSOCK else { return true }
        let type = clinux_file_type(descriptor)
        guard type == 0 else { return mode_t(truncatingIfNeeded: type) != S_IFIFO }
        guard case .anonymous(let name) = try? SocketFacts.kind(of: descriptor, mode: 0) else { return true }
        return !promptKinds.contains(name)
    }

    /// Of descriptors without a file, those that hold nothing which has to be taken apart.
    private static let promptKinds = ["[eventfd]", "[timerfd]", "[signalfd]", "[pidfd]"]

    /// Whether the unread input of a socket begins with descriptors, which are closed with it. Those behind other
    /// input delay the close by a millisecond each at most.
    private static func mayHoldDescriptors(_ socket: CInt) -> Bool {
        guard SocketTraffic.mayCarryDescriptors(socket) else { return false }
        let packet = unsafe receiveByte(socket, CInt(MSG_DONTWAIT | MSG_PEEK))
        return packet.map { $0.flags & CInt(MSG_CTRUNC) != 0 } ?? false
    }
}

/// A pool of threads that discard input and block in close(2). They exist only while there is work.
private final class SlowCloser: @unchecked Sendable {
    /// Descriptors wait for those of the same kind only: one user's delay no other's, and files that their
    /// server does not let go delay the end of no connection.
    struct Kind: Hashable {
        let user: uid_t
        /// Whether input is to be discarded first.
        let isToBeDrained: Bool
    }

    private struct Queue {
        var waiting: [CInt] = []
        /// Those that wait and those that a thread is working on.
        var count = 0
        var threads = 0
    }

    // Sendable: `queues` and `count` are touched only with the lock held.
    static let shared = SlowCloser()
    /// The limit of blocked threads of a kind; further descriptors stay open until one of them is free.
    private static let maximumThreads = 4
    /// So many descriptors that come together have another thread.
    private static let closesPerThread = 128

    private let lock = Lock()
    private var queues: [Kind: Queue] = [:]
    /// Of all queues.
    private var count = 0

    private init() {}

    var pendingCount: Int {
        lock.lock()
        defer { lock.unlock() }
        return count
    }

    func pendingCount(of user: uid_t) -> Int {
        lock.lock()
        defer { lock.unlock() }
        guard count > 0 else { return 0 }
        return [true, false].reduce(0) { $0 + (queues[Kind(user: user, isToBeDrained: $1)]?.count ?? 0) }
    }

    func append(_ descriptors: ArraySlice<CInt>, _ kind: Kind) {
        lock.lock()
        defer { lock.unlock() }
        var queue = queues.removeValue(forKey: kind) ?? Queue()
        queue.waiting += descriptors
        queue.count += descriptors.count
        count += descriptors.count
        // All that there are may be blocked. To start one takes as long as some closes that do not block.
        let most = min(Self.maximumThreads, queue.threads + 1 + descriptors.count / Self.closesPerThread)
        while queue.threads < most,
            Thread.start(stackSize: Thread.smallStack, { SlowCloser.shared.closeAll(kind) }) == 0
        {
            queue.threads += 1
        }
        queues[kind] = queue
    }

    private func closeAll(_ kind: Kind) {
        // A stream lingers for as long as its maker likes, but only until a signal arrives.
        var timer: timer_t?
        let isInterrupted = unsafe clinux_interrupt_each_millisecond(&timer) == 0
        var descriptor = next(kind)
        while let open = descriptor {
            // Those of `discardPlainInput` have made it name senders.
            if kind.isToBeDrained { while clinux_discard_packets(open, .max) == 0 {} }
            OwnedDescriptor(adopting: open).close()
            descriptor = next(kind, afterAnother: true)
        }
        if isInterrupted { unsafe timer_delete(timer) }
    }

    /// The next descriptor for a thread; nil ends the thread.
    private func next(_ kind: Kind, afterAnother: Bool = false) -> CInt? {
        lock.lock()
        defer { lock.unlock() }
        guard var queue = queues.removeValue(forKey: kind) else {
            preconditionFailure("a queue stays as long as it has threads")
        }
        if afterAnother {
            queue.count -= 1
            count -= 1
        }
        let descriptor = queue.waiting.isEmpty ? nil : queue.waiting.removeFirst()
        if descriptor == nil { queue.threads -= 1 }
        if queue.threads > 0 || queue.count > 0 { queues[kind] = queue }
        return descriptor
    }
}
