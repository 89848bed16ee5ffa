package import CLinux
import Glibc

extension SeqPacketSocket {
    /// Sends one packet with descriptors, which stay the caller's. False: the receiver's queue is full and
    /// nothing was sent. `EPIPE` or `ECONNRESET`: the other end is closed.
    package borrowing func send(
        _ bytes: UnsafeRawBufferPointer, descriptors: [CInt] = []
    ) throws(SystemError) -> Bool {
        guard descriptors.count <= Self.maximumDescriptors else {
            throw SystemError(code: EINVAL, call: "sendmsg with \(descriptors.count) descriptors")
        }
        let rawValue = descriptor.rawValue
        let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
        // The kernel does not write through this pointer: the type of `iovec` serves both directions.
        let base = unsafe UnsafeMutableRawPointer(mutating: bytes.baseAddress)
        let sent = try unsafe Self.withControl(carrying: descriptors) { control throws(SystemError) in
            try unsafe Self.withMessage(base, bytes.count, control: control) { message throws(SystemError) in
                try nonblockingSystemCall("sendmsg") { unsafe sendmsg(rawValue, &message, flags) }
            }
        }
        return sent != nil
    }

    package borrowing func send(_ bytes: [UInt8], descriptors: [CInt] = []) throws(SystemError) -> Bool {
        try unsafe bytes.span.withUnsafeBytes { bytes throws(SystemError) in
            try unsafe send(bytes, descriptors: descriptors)
        }
    }

    /// Receives one packet into the buffer. Untaken descriptors of the previous packet are closed.
    package borrowing func receive(into buffer: inout PacketBuffer) throws(SystemError) -> Reception {
        buffer.discardDescriptors()
        buffer.count = 0
        let rawValue = descriptor.rawValue
        let flags = CInt(MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
        return try unsafe Self.withMessage(
            buffer.storage.baseAddress, buffer.storage.count, control: buffer.control
        ) { message throws(SystemError) in
            var received: Int?
            do throws(SystemError) {
                received = try nonblockingSystemCall("recvmsg") { unsafe recvmsg(rawValue, &message, flags) }
            } catch {
                guard error.code == ECONNRESET else { throw error }
                // The other end closed with unread packets of ours: treated as an end. The kernel reports it
                // once, before the packets that were sent.
                received = try nonblockingSystemCall("recvmsg") { unsafe recvmsg(rawValue, &message, flags) }
            }
            guard let received else { return .wouldBlock }
            unsafe Self.collectDescriptors(of: &message, into: &buffer)
            // A packet can be empty, and so is the kernel's result at the end; only the closed state of the
            // other end distinguishes the two.
            if received == 0, buffer.descriptorCount == 0,
                !Poll.now(rawValue).isDisjoint(with: [.peerClosed, .hangUp])
            {
                return .end
            }
            buffer.count = received
            let flags = unsafe message.msg_flags
            return .packet(
                length: received, truncated: flags & CInt(MSG_TRUNC) != 0,
                controlTruncated: flags & CInt(MSG_CTRUNC) != 0)
        }
    }

    /// Whether the next packet carries descriptors. It stays in the queue with them.
    package borrowing func nextPacketCarriesDescriptors() -> Bool {
        let packet = unsafe ForeignDescriptor.receiveByte(
            descriptor.rawValue, CInt(MSG_DONTWAIT | MSG_PEEK))
        return packet.map { $0.flags & CInt(MSG_CTRUNC) != 0 } ?? false
    }

    /// Keeps the other end from sending and discards its packets: on another thread, if that may take time.
    /// If a socket is closed with unread packets, the kernel reports a reset to the other end before anything
    /// that was sent to it, and closes the descriptors in those packets synchronously: call this before a
    /// close.
    ///
    /// - Parameters:
    ///   - user: the user of the other end.
    ///   - most: the limit of descriptors of this user that wait to be closed. Beyond it the work is done here.
    package borrowing func discardInput(of user: uid_t, most: Int = .max) {
        // Fails only if there is no other end any more.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_RD))
        // Nearly always the queue is empty or holds a packet or two: a thread would cost more than that.
        if ForeignDescriptor.discardPlainInput(descriptor.rawValue, packets: 16) { return }
        if ForeignDescriptor.pendingCount(of: user) < most, let copy = try? descriptor.duplicate() {
            ForeignDescriptor.drain(copy, of: user)
        } else {
            ForeignDescriptor.discardInputPromptly(descriptor.rawValue)
        }
    }

    /// Describes one buffer and room for ancillary data to `sendmsg` and `recvmsg`.
    private static func withMessage<Result>(
        _ base: UnsafeMutableRawPointer?, _ count: Int, control: UnsafeMutableRawBufferPointer,
        _ body: (inout msghdr) throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        var vector = unsafe iovec(iov_base: base, iov_len: count)
        return try unsafe withUnsafeMutablePointer(to: &vector) { vector throws(SystemError) in
            var message = unsafe msghdr()
            unsafe message.msg_iov = vector
            unsafe message.msg_iovlen = 1
            unsafe message.msg_control = control.baseAddress
            unsafe message.msg_controllen = control.count
            return try unsafe body(&message)
        }
    }

    /// Builds the ancillary data that carries descriptors; none at all for none.
    private static func withControl<Result>(
        carrying descriptors: [CInt],
        _ body: (UnsafeMutableRawBufferPointer) throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        guard !descriptors.isEmpty else {
            return try unsafe body(UnsafeMutableRawBufferPointer(start: nil, count: 0))
        }
        let payload = descriptors.count * MemoryLayout<CInt>.size
        let control = UnsafeMutableRawBufferPointer.allocate(
            byteCount: clinux_cmsg_space(payload), alignment: MemoryLayout<cmsghdr>.alignment)
        defer { unsafe control.deallocate() }
        unsafe control.initializeMemory(as: UInt8.self, repeating: 0)
        var header = cmsghdr()
        header.cmsg_level = SOL_SOCKET
        header.cmsg_type = CInt(SCM_RIGHTS)
        header.cmsg_len = clinux_cmsg_header_length() + payload
        unsafe control.storeBytes(of: header, as: cmsghdr.self)
        unsafe descriptors.withUnsafeBytes { descriptors in
            let target = unsafe UnsafeMutableRawBufferPointer(
                rebasing: control[clinux_cmsg_header_length()...])
            unsafe target.copyMemory(from: descriptors)
        }
        return try unsafe body(control)
    }

    /// Puts all received descriptors into the buffer, from any number of headers.
    private static func collectDescriptors(of message: inout msghdr, into buffer: inout PacketBuffer) {
        var next = unsafe clinux_cmsg_first(&message)
        while let header = unsafe next {
            if unsafe header.pointee.cmsg_level == SOL_SOCKET,
                unsafe header.pointee.cmsg_type == CInt(SCM_RIGHTS),
                let data = unsafe clinux_cmsg_data(header)
            {
                let length = unsafe Int(header.pointee.cmsg_len) - clinux_cmsg_header_length()
                for offset in stride(from: 0, to: length, by: MemoryLayout<CInt>.size) {
                    buffer.hold(unsafe data.loadUnaligned(fromByteOffset: offset, as: CInt.self))
                }
            }
            unsafe next = clinux_cmsg_next(&message, header)
        }
    }
}
