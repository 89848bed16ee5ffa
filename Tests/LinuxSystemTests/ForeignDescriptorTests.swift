import Glibc
import LinuxSystem
import Testing

@Suite("Closing descriptors of other processes")
struct ForeignDescriptorTests {
    @Test("A stream that lingers for its peer does not hold up its close")
    func lingering() throws {
        let pair = try Pair()
        try pair.fillAndLinger()
        let own = OwnedDescriptor(adopting: pair.own)
        let start = BootClock.now()
        ForeignDescriptor.closePromptly(own)
        #expect(BootClock.now() - start < 5_000_000_000)
        withExtendedLifetime(pair) {}
    }

    @Test("A descriptor that has members is closed on another thread")
    func members() throws {
        let set = try PollSet()
        let event = try EventDescriptor()
        let notifications = OwnedDescriptor(adopting: try systemCall("inotify_init1") { inotify_init1(0) })
        #expect(ForeignDescriptor.mayBlock(set.rawValue))
        #expect(ForeignDescriptor.mayBlock(notifications.rawValue))
        #expect(!ForeignDescriptor.mayBlock(event.rawValue))
    }

    @Test("Of many descriptors all are closed, whichever of them may block")
    func many() throws {
        var pairs: [Pair] = []
        var descriptors: [CInt] = []
        for number in 0..<60 {
            let pair = try Pair()
            // Of some the last close waits for the peer, which does not read.
            if number >= 20, number % 3 == 0 { try pair.fillAndLinger() }
            descriptors.append(pair.own)
            pairs.append(pair)
        }
        let (user, start) = (uid_t(4_712), BootClock.now())
        ForeignDescriptor.close(descriptors[...], of: user)
        #expect(BootClock.now() - start < 5_000_000_000)
        for pair in pairs { #expect(pair.isClosed) }
        let deadline = start + 20_000_000_000
        while ForeignDescriptor.pendingCount(of: user) > 0, BootClock.now() < deadline { usleep(1_000) }
        #expect(ForeignDescriptor.pendingCount(of: user) == 0)
    }

    @Test("Unread input with such streams is discarded at once where no more may wait for that")
    func unreadInput() throws {
        let ends = try SeqPacketSocket.pair()
        var pairs: [Pair] = []
        for _ in 0..<20 {
            let pair = try Pair()
            try pair.fillAndLinger()
            let own = OwnedDescriptor(adopting: pair.own)
            #expect(try ends.first.send([1], descriptors: [own.rawValue]))
            #expect(try ends.first.send([]))
            pairs.append(pair)
        }
        let (user, start) = (uid_t(4_711), BootClock.now())
        ends.second.discardInput(of: user, most: 0)
        #expect(BootClock.now() - start < 5_000_000_000)
        #expect(ForeignDescriptor.pendingCount(of: user) == 0)
        // The end of the input.
        var buffer = PacketBuffer()
        #expect(try ends.second.receive(into: &buffer) == .end)
        for pair in pairs { #expect(pair.isClosed) }
    }

    /// Two ends of a TCP connection on this machine.
    private final class Pair {
        /// The caller closes it.
        let own: CInt
        private let peer: OwnedDescriptor

        init() throws {
            let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
            let listener = OwnedDescriptor(adopting: try systemCall("socket") { socket(AF_INET, type, 0) })
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let listening = listener.rawValue
            let connecting = try systemCall("socket") { socket(AF_INET, type, 0) }
            try withUnsafeMutablePointer(to: &address) { pointer in
                try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                    _ = try systemCall("bind") { bind(listening, pointer, length) }
                    _ = try systemCall("listen") { listen(listening, 1) }
                    _ = try systemCall("getsockname") { getsockname(listening, pointer, &length) }
                    _ = try systemCall("connect") { connect(connecting, pointer, length) }
                }
            }
            own = connecting
            peer = OwnedDescriptor(adopting: try systemCall("accept") { accept(listening, nil, nil) })
        }

        /// Sends until there is no room. From now on the last close of `own` waits for the peer.
        func fillAndLinger() throws {
            let bytes = [UInt8](repeating: 0, count: 65_536)
            while send(own, bytes, bytes.count, CInt(MSG_DONTWAIT)) > 0 {}
            var option = linger(l_onoff: 1, l_linger: 30)
            let length = socklen_t(MemoryLayout<linger>.size)
            _ = try systemCall("setsockopt") { setsockopt(own, SOL_SOCKET, SO_LINGER, &option, length) }
        }

        /// Whether `own` has been closed: what was sent is followed by the end.
        var isClosed: Bool {
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let deadline = BootClock.now() + 20_000_000_000
            while BootClock.now() < deadline {
                let count = recv(peer.rawValue, &bytes, bytes.count, CInt(MSG_DONTWAIT))
                if count == 0 || count < 0 && errno == ECONNRESET { return true }
                if count < 0 { _ = Poll.wait(peer.rawValue, for: .readable, timeoutMilliseconds: 1_000) }
            }
            return false
        }
    }
}
