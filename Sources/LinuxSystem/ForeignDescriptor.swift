import CLinux
import Glibc

/// Closes descriptors that were received from other processes.
///
/// The process that made the descriptor can make close(2) block for as long as it likes: a stream with
/// `SO_LINGER` waits for its peer, a file for its file system's server. The only thread of the loop must not
/// wait for that.
package enum ForeignDescriptor {
    /// Closes at once where that cannot block, else on a thread of its own.
    package static func close(_ descriptor: consuming OwnedDescriptor) {
        if mayBlock(descriptor.rawValue) {
            SlowCloser.shared.close(descriptor)
        } else {
            descriptor.close()
        }
    }

    /// Discards the unread input of a socket and closes it, on a thread of its own: the input may hold
    /// descriptors, by the hundred thousand, and the kernel closes them synchronously.
    static func drain(_ socket: consuming OwnedDescriptor) {
        SlowCloser.shared.drain(socket)
    }

    /// Discards packets that were sent before the other end was shut down, `packets` at the most.
    static func discardInput(_ socket: CInt, packets: Int) {
        unsafe withSenderRoom(socket) { control in
            for _ in 0..<packets where unsafe receive(socket, CInt(MSG_TRUNC), control) == .end { return }
        }
    }

    /// Discards packets without descriptors, `packets` at the most. Call it once the other end cannot send
    /// any more.
    ///
    /// - Returns: whether the queue is empty then.
    static func discardPlainInput(_ socket: CInt, packets: Int) -> Bool {
        var isEmpty = false
        unsafe withSenderRoom(socket) { control in
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

    /// Makes every packet name its sender, which distinguishes an empty one from the end, and provides room
    /// for that (a process, a user and a group) and for no descriptor.
    private static func withSenderRoom(
        _ socket: CInt, _ body: (_ control: UnsafeMutableRawBufferPointer) -> Void
    ) {
        var isOn: CInt = 1
        let length = socklen_t(MemoryLayout<CInt>.size)
        guard unsafe setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &isOn, length) == 0 else {
            preconditionFailure("a Unix socket has this option")
        }
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

    /// Whether close(2) may block.
    package static func mayBlock(_ descriptor: CInt) -> Bool {
        var linger = linger()
        var length = socklen_t(MemoryLayout<linger>.size)
        if unsafe getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 {
            return linger.l_onoff != 0 && linger.l_linger > 0
        }
        guard errno == ENOTSOCK else { return true }
        let type = clinux_file_type(descriptor)
        return type != 0 && mode_t(truncatingIfNeeded: type) != S_IFIFO
    }
}

/// A pool of threads that discard input and block in close(2). They exist only while there is work.
private final class SlowCloser: @unchecked Sendable {
    private struct Item {
        let descriptor: CInt
        /// Whether input is to be discarded first.
        let isToBeDrained: Bool
    }

    // Sendable: `waiting` and `threads` are touched only with the lock held.
    static let shared = SlowCloser()
    /// The limit of blocked threads; further descriptors stay open until one of them is free.
    private static let maximumThreads = 64

    private let lock = Lock()
    private var waiting: [Item] = []
    private var threads = 0

    private init() {}

    func close(_ descriptor: consuming OwnedDescriptor) {
        append(Item(descriptor: descriptor.take(), isToBeDrained: false))
    }

    func drain(_ socket: consuming OwnedDescriptor) {
        append(Item(descriptor: socket.take(), isToBeDrained: true))
    }

    /// Includes those that a thread is working on.
    var pendingCount: Int {
        lock.lock()
        defer { lock.unlock() }
        return waiting.count + threads
    }

    private func append(_ item: Item) {
        lock.lock()
        defer { lock.unlock() }
        waiting.append(item)
        guard threads < Self.maximumThreads else { return }
        let code = Thread.start(stackSize: Thread.smallStack) {
            while let item = SlowCloser.shared.next() {
                if item.isToBeDrained { ForeignDescriptor.discardInput(item.descriptor, packets: .max) }
                OwnedDescriptor(adopting: item.descriptor).close()
            }
        }
        if code == 0 { threads += 1 }
    }

    /// The next descriptor for a thread; nil ends the thread.
    private func next() -> Item? {
        lock.lock()
        defer { lock.unlock() }
        if waiting.isEmpty {
            threads -= 1
            return nil
        }
        return waiting.removeFirst()
    }
}
