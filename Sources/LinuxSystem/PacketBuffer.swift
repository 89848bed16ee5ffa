package import CLinux
import Glibc

/// Space for one packet and its descriptors, allocated once and reused for every packet.
///
/// Descriptors that were not taken are closed with the next reception, or with the buffer: a path that
/// refuses a packet cannot leak them.
@safe
package struct PacketBuffer: ~Copyable {
    /// More than the kernel allows in one message, so a message's descriptors always fit.
    static let controlCapacity = clinux_cmsg_space(
        SeqPacketSocket.maximumDescriptors * MemoryLayout<CInt>.size)

    /// The longest packet that fits; a longer one is reported as truncated.
    package let capacity: Int
    /// The length of the packet received last.
    package internal(set) var count = 0
    /// The sender's user, for the descriptors that are not taken.
    package var user = ForeignDescriptor.anyUser
    let storage: UnsafeMutableRawBufferPointer
    let control: UnsafeMutableRawBufferPointer
    /// Received descriptors in the order of arrival; `nextDescriptor` is the first that was not taken.
    private var descriptors: [CInt] = []
    private var nextDescriptor = 0

    package init(capacity: Int = 64 * 1024) {
        precondition(capacity > 0, "a packet has at least one byte")
        self.capacity = capacity
        unsafe storage = .allocate(byteCount: capacity, alignment: 16)
        unsafe control = .allocate(
            byteCount: Self.controlCapacity, alignment: MemoryLayout<cmsghdr>.alignment)
    }

    deinit {
        ForeignDescriptor.close(descriptors[nextDescriptor...])
        unsafe storage.deallocate()
        unsafe control.deallocate()
    }

    /// How many descriptors came with the packet and have not been taken.
    package var descriptorCount: Int { descriptors.count - nextDescriptor }

    /// The descriptors that were not taken, which stay the packet's, in the sender's order.
    package var descriptorNumbers: [CInt] { Array(descriptors[nextDescriptor...]) }

    /// The next descriptor in the sender's order; nil when all are taken.
    package mutating func takeDescriptor() -> OwnedDescriptor? {
        guard nextDescriptor < descriptors.count else { return nil }
        defer { nextDescriptor += 1 }
        return OwnedDescriptor(adopting: descriptors[nextDescriptor])
    }

    /// Closes every descriptor that was not taken.
    package mutating func discardDescriptors() {
        ForeignDescriptor.close(descriptors[nextDescriptor...], of: user)
        descriptors.removeAll(keepingCapacity: true)
        nextDescriptor = 0
    }

    /// The packet's bytes, valid during the call.
    package borrowing func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try unsafe body(UnsafeRawBufferPointer(rebasing: storage[..<count]))
    }

    /// The packet's bytes, copied.
    package var bytes: [UInt8] { unsafe withBytes { bytes in unsafe Array(bytes) } }

    mutating func hold(_ descriptor: CInt) {
        descriptors.append(descriptor)
    }
}
