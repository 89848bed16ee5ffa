import Glibc
import LinuxSystem
import Testing

@Suite("Closing descriptors of other processes")
struct ForeignDescriptorTests {
    @Test("A stream that lingers for its peer does not hold up its close")
    func lingering() throws {
        let pair = try Pair()
        pair.fill()
        let own = OwnedDescriptor(adopting: pair.own)
        var option = linger(l_onoff: 1, l_linger: 30)
        let length = socklen_t(MemoryLayout<linger>.size)
        #expect(setsockopt(own.rawValue, SOL_SOCKET, SO_LINGER, &option, length) == 0)
        let start = BootClock.now()
        ForeignDescriptor.closePromptly(own)
        #expect(BootClock.now() - start < 5_000_000_000)
        withExtendedLifetime(pair) {}
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

        /// Sends until there is no room.
        func fill() {
            let bytes = [UInt8](repeating: 0, count: 65_536)
            while send(own, bytes, bytes.count, CInt(MSG_DONTWAIT)) > 0 {}
        }
    }
}
