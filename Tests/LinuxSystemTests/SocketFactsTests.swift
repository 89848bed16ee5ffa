import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// Sockets of the loopback interface.
private enum Loopback {
    static func socket(_ type: __socket_type) throws -> OwnedDescriptorBox {
        let flags = CInt(type.rawValue | SOCK_CLOEXEC.rawValue)
        return OwnedDescriptorBox(try systemCall("socket") { Glibc.socket(AF_INET, flags, 0) })
    }

    static func address(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return address
    }

    static func call(
        _ name: String, _ address: sockaddr_in, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt
    ) throws {
        try withUnsafePointer(to: address) { address in
            try address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                _ = try systemCall(name) { body(address, socklen_t(MemoryLayout<sockaddr_in>.size)) }
            }
        }
    }

    static func bound(_ type: __socket_type) throws -> (OwnedDescriptorBox, port: UInt16) {
        let socket = try socket(type)
        try call("bind", address(port: 0)) { bind(socket.rawValue, $0, $1) }
        let local = try #require(try SocketFacts(inspecting: socket.rawValue).local)
        return (socket, try #require(local.split(separator: ":").last.flatMap { UInt16($0) }))
    }
}

@Suite struct SocketFactsTests {
    @Test func aConnectedStream() throws {
        let (listener, port) = try Loopback.bound(SOCK_STREAM)
        #expect(listen(listener.rawValue, 1) == 0)
        let client = try Loopback.socket(SOCK_STREAM)
        let before = try SocketFacts(inspecting: client.rawValue)
        #expect(before.kind == .tcp)
        #expect(!before.isConnected)
        try Loopback.call("connect", Loopback.address(port: port)) { connect(client.rawValue, $0, $1) }

        let facts = try SocketFacts(inspecting: client.rawValue)
        #expect(facts.kind == .tcp)
        #expect(facts.isSocket && facts.isStream && facts.isConnected && facts.isPollable)
        #expect(!facts.isListening)
        #expect(facts.peer == "127.0.0.1:\(port)")
        #expect(facts.readiness == .writable)

        let listening = try SocketFacts(inspecting: listener.rawValue)
        #expect(listening.isListening && !listening.isConnected && listening.peer == nil)
        #expect(listening.local == "127.0.0.1:\(port)")
    }

    @Test func aPendingErrorIsSeenAndLeftAlone() throws {
        let (listener, port) = try Loopback.bound(SOCK_STREAM)
        #expect(listen(listener.rawValue, 1) == 0)
        let client = try Loopback.socket(SOCK_STREAM)
        try Loopback.call("connect", Loopback.address(port: port)) { connect(client.rawValue, $0, $1) }
        // Closing with a linger time of zero resets the connection.
        let server = OwnedDescriptorBox(try systemCall("accept") { accept(listener.rawValue, nil, nil) })
        var linger = linger(l_onoff: 1, l_linger: 0)
        let size = socklen_t(MemoryLayout.size(ofValue: linger))
        #expect(setsockopt(server.rawValue, SOL_SOCKET, SO_LINGER, &linger, size) == 0)
        server.close()
        #expect(eventually { Poll.now(client.rawValue).contains(.error) })
        let facts = try SocketFacts(inspecting: client.rawValue)
        #expect(facts.readiness.contains(.error))
        #expect(!facts.isConnected)
        var pending: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        #expect(getsockopt(client.rawValue, SOL_SOCKET, SO_ERROR, &pending, &length) == 0)
        #expect(pending == ECONNRESET)
    }

    @Test func datagrams() throws {
        let (socket, port) = try Loopback.bound(SOCK_DGRAM)
        let facts = try SocketFacts(inspecting: socket.rawValue)
        #expect(facts.kind == .udp)
        #expect(!facts.isStream && !facts.isConnected && facts.isPollable && !facts.isListening)
        try Loopback.call("connect", Loopback.address(port: port)) { connect(socket.rawValue, $0, $1) }
        #expect(try SocketFacts(inspecting: socket.rawValue).isConnected)
    }

    @Test func unixSockets() throws {
        let pair = try SeqPacketSocket.pair()
        let facts = try SocketFacts(inspecting: pair.first.rawValue)
        #expect(facts.kind == .unixSeqPacket)
        #expect(facts.isConnected && facts.local == nil && !facts.isStream)
        let kinds: [(__socket_type, SocketFacts.Kind)] = [
            (SOCK_STREAM, .unixStream), (SOCK_DGRAM, .unixDatagram),
        ]
        for (type, kind) in kinds {
            let descriptor = OwnedDescriptorBox(socket(AF_UNIX, CInt(type.rawValue), 0))
            #expect(try SocketFacts(inspecting: descriptor.rawValue).kind == kind)
        }
        let directory = try TemporaryDirectory()
        let listener = try SeqPacketSocket.listen(path: directory.file("socket"), mode: 0o600)
        let listening = try SocketFacts(inspecting: listener.rawValue)
        #expect(listening.isListening)
        #expect(listening.local == directory.file("socket"))
    }

    @Test func othersThanSockets() throws {
        let (reader, writer) = try makePipe()
        defer { writer.close() }
        let pipe = try SocketFacts(inspecting: reader.rawValue)
        #expect(pipe.kind == .pipe && pipe.isPollable && pipe.isStream && !pipe.isSocket)
        let timer = try TimerDescriptor()
        let anonymous = try SocketFacts(inspecting: timer.rawValue)
        #expect(anonymous.kind == .anonymous("[timerfd]") && anonymous.isPollable)
        let null = try OwnedDescriptor(opening: "/dev/null", O_RDONLY)
        #expect(try SocketFacts(inspecting: null.rawValue).kind == .device)
        let directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(opening: directory.file("file"), O_WRONLY | O_CREAT, mode: 0o600)
        let regular = try SocketFacts(inspecting: file.rawValue)
        #expect(regular.kind == .regularFile && !regular.isPollable)
        let opened = try OwnedDescriptor(opening: directory.path, O_RDONLY)
        let folder = try SocketFacts(inspecting: opened.rawValue)
        #expect(folder.kind == .directory && !folder.isPollable)
        let error = #expect(throws: SystemError.self) { _ = try SocketFacts(inspecting: 1 << 20) }
        #expect(error?.code == EBADF)
    }
}
