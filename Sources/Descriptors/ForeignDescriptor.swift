import CLinux
import Glibc

/// Closing what others have handed to us.
///
/// close(2) can block for as long as whoever made the descriptor likes: a stream with `SO_LINGER` waits for its
/// peer, a file for its file system's server. The one thread that serves everybody must not wait for that.
package enum ForeignDescriptor {
    /// Closes at once where that cannot block, else on a thread of its own.
    package static func close(_ descriptor: consuming OwnedDescriptor) {
        if mayBlock(descriptor.rawValue) {
            SlowCloser.shared.close(descriptor)
        } else {
            descriptor.close()
        }
    }

    /// Throws away what has been sent to a socket, and closes it, on a thread of its own: what is thrown away may hold
    /// descriptors, by the hundred thousand, and the kernel closes them on the spot.
    static func drain(_ socket: consuming OwnedDescriptor) {
        SlowCloser.shared.drain(socket)
    }

    /// Throws away what was sent before the other end was kept from sending, so many packets at the most.
    static func discardInput(_ socket: CInt, packets: Int) {
        // A packet may be empty, and then looks like the end. More of them than this in a row do not fit into a queue.
        var empty = 0
        var byte: UInt8 = 0
        var looks = 0
        while looks < packets, empty < 4_096 {
            looks += 1
            let count = unsafe recv(socket, &byte, 1, CInt(MSG_DONTWAIT | MSG_TRUNC))
            if count < 0, errno != EINTR, errno != ECONNRESET { return }
            empty = count == 0 ? empty + 1 : 0
        }
    }

    /// Throws away packets that carry no descriptors, so many at the most. To be called once the other end can send no
    /// more.
    ///
    /// - Returns: whether nothing is left then.
    static func discardPlainInput(_ socket: CInt, packets: Int) -> Bool {
        // With it every packet names its sender, which tells an empty one from the end.
        var isOn: CInt = 1
        let length = socklen_t(MemoryLayout<CInt>.size)
        guard unsafe setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &isOn, length) == 0 else { return false }
        // There is room for that (a process, a user and a group), and for no descriptor.
        let capacity = clinux_cmsg_space(3 * MemoryLayout<CInt>.size)
        return unsafe withUnsafeTemporaryAllocation(
            byteCount: capacity, alignment: MemoryLayout<cmsghdr>.alignment
        ) { control in
            var byte: UInt8 = 0
            for _ in 0..<packets {
                let next = unsafe peek(socket, control)
                if next.failed, errno == EINTR || errno == ECONNRESET { continue }
                if next.failed || next.isEnd { return true }
                if next.carriesDescriptors { return false }
                _ = unsafe recv(socket, &byte, 1, CInt(MSG_DONTWAIT | MSG_TRUNC))
            }
            return false
        }
    }

    private static func peek(
        _ socket: CInt, _ control: UnsafeMutableRawBufferPointer
    ) -> (failed: Bool, isEnd: Bool, carriesDescriptors: Bool) {
        var byte: UInt8 = 0
        return unsafe withUnsafeMutablePointer(to: &byte) { byte in
            var vector = unsafe iovec(iov_base: byte, iov_len: 1)
            return unsafe withUnsafeMutablePointer(to: &vector) { vector in
                var message = unsafe msghdr()
                unsafe message.msg_iov = vector
                unsafe message.msg_iovlen = 1
                unsafe message.msg_control = control.baseAddress
                unsafe message.msg_controllen = control.count
                let count = unsafe recvmsg(socket, &message, CInt(MSG_DONTWAIT | MSG_PEEK))
                return unsafe (
                    count < 0, message.msg_controllen == 0, message.msg_flags & CInt(MSG_CTRUNC) != 0
                )
            }
        }
    }

    /// How many descriptors wait to be closed. They are not anybody's any more, and still there.
    package static var pendingCount: Int { SlowCloser.shared.pendingCount }

    /// Whether close(2) may take longer than a moment.
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

/// Some threads that do nothing but throw away, and wait in close(2). They exist only while there is something to close.
private final class SlowCloser: @unchecked Sendable {
    private struct Item {
        let descriptor: CInt
        /// There may be something to be thrown away first.
        let isToBeDrained: Bool
    }

    // Sendable: `waiting` and `threads` are touched only with the lock held.
    static let shared = SlowCloser()
    /// So many can be stuck at a time; what comes after them keeps its descriptor until one is not.
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

    /// Those that a thread is busy with, too.
    var pendingCount: Int {
        lock.lock()
        defer { lock.unlock() }
        return waiting.count + threads
    }

    private func append(_ item: Item) {
        lock.lock()
        defer { lock.unlock() }
        waiting.append(item)
        if threads < Self.maximumThreads, startThread() { threads += 1 }
    }

    private func startThread() -> Bool {
        var attributes = pthread_attr_t()
        unsafe pthread_attr_init(&attributes)
        unsafe pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
        unsafe pthread_attr_setstacksize(&attributes, 256 * 1_024)
        defer { unsafe pthread_attr_destroy(&attributes) }
        var thread = pthread_t()
        let code = unsafe pthread_create(
            &thread, &attributes,
            { _ in
                while let item = SlowCloser.shared.next() {
                    if item.isToBeDrained { ForeignDescriptor.discardInput(item.descriptor, packets: .max) }
                    OwnedDescriptor(adopting: item.descriptor).close()
                }
                return nil
            }, nil)
        return code == 0
    }

    /// What a thread closes next; none, and it ends.
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
