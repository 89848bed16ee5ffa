import EdgeTestSupport
import Glibc
import NIOCore
import NIOPosix
import NIOTLS
import NightbellNIO
import NightbellParking
import Synchronization
import Testing

/// The observations of all sessions of a test's server.
struct Seen: Sendable {
    var tokens: [ParkingToken] = []
    var ends = 0
    var errors: [HibernationError.Code] = []
    var loops: Set<ObjectIdentifier> = []
    var wakeReasons: [String] = []
    /// The saved states of connections that could not be restored.
    var lost: [[UInt8]] = []
    /// No connection can be restored.
    var isBroken = false
}

struct Broken: Error {}

/// Answers each line with its number and itself. The number is the session.
final class LineSession: ChannelInboundHandler, HibernatableHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let seen: LineServer.Box
    private var count: UInt32
    /// TLS is agreed, but none of its bytes has arrived.
    private var willEncrypt = false
    /// Writes a lot when it is asked for its state.
    private var willSayFarewell = false
    private var context: ChannelHandlerContext?

    init(_ seen: LineServer.Box, _ state: [UInt8] = []) {
        self.seen = seen
        count = state.reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    private func sayMuch() {
        let much = ByteBuffer(repeating: UInt8(ascii: "m"), count: LineServer.much)
        context?.writeAndFlush(wrapOutboundOut(much), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let line = String(buffer: unwrapInboundIn(data))
        if line == "much" { sayMuch() }
        willSayFarewell = line == "farewell"
        if line == "hello" {
            // As of one with a ServerHello.
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: LineServer.hello)), promise: nil)
        }
        willEncrypt = line == "encrypt"
        if willEncrypt {
            try? context.pipeline.syncOperations.addHandler(FakeTLS(), position: .first)
        }
        count += 1
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: "\(count) \(line)\n")), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        seen.value.withLock { $0.ends += 1 }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? HibernationError else { return context.close(promise: nil) }
        seen.value.withLock { $0.errors.append(error.code) }
    }

    func stateForHibernation() -> [UInt8]? {
        if willSayFarewell { sayMuch() }
        willSayFarewell = false
        return willEncrypt ? nil : (0..<4).map { UInt8(truncatingIfNeeded: count >> (8 * $0)) }
    }

    func didHibernate(as token: ParkingToken) {
        seen.value.withLock { $0.tokens.append(token) }
    }
}

/// In front of all other handlers, like TLS handlers: changes each byte. It reports when the peer has sent
/// something.
class FakeTLS: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var isNew = true

    static func change(_ bytes: some Sequence<UInt8>) -> [UInt8] { bytes.map { $0 ^ 0x55 } }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if isNew {
            context.fireUserInboundEventTriggered(TLSUserEvent.handshakeCompleted(negotiatedProtocol: nil))
        }
        isNew = false
        context.fireChannelRead(
            wrapInboundOut(ByteBuffer(bytes: Self.change(unwrapInboundIn(data).readableBytesView))))
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let buffer = ByteBuffer(bytes: Self.change(unwrapOutboundIn(data).readableBytesView))
        context.write(wrapOutboundOut(buffer), promise: promise)
    }
}

/// The name of the TLS library's handler.
final class NIOSSLServerHandler: FakeTLS {}

/// Holds a partial line that is not visible from outside.
struct LineDecoder: NIOSingleStepByteToMessageDecoder, ByteToMessageDecoder {
    typealias InboundOut = ByteBuffer

    mutating func decode(buffer: inout ByteBuffer) -> ByteBuffer? {
        guard let end = buffer.readableBytesView.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        let line = buffer.readSlice(length: end - buffer.readableBytesView.startIndex)
        buffer.moveReaderIndex(forwardBy: 1)
        return line
    }

    mutating func decodeLast(buffer: inout ByteBuffer, seenEOF: Bool) -> ByteBuffer? {
        decode(buffer: &buffer)
    }
}

final class LineServer: Sendable {
    final class Box: Sendable {
        let value = Mutex(Seen())
    }

    static let much = 16 << 20
    /// The beginning of a record with a hello, and a line end for a line's boundary.
    static let hello: [UInt8] = [22, 3, 1, 0, 5, 1, 0, 0, 1, UInt8(ascii: "\n")]

    let hibernator: Hibernator
    private let box: Box
    private let group: MultiThreadedEventLoopGroup
    private let channel: any Channel
    let port: Int

    init(loops: Int = 1, idle: TimeAmount = .milliseconds(50), isEncrypted: Bool = false) throws {
        let box = Box()
        self.box = box
        group = MultiThreadedEventLoopGroup(numberOfThreads: loops)
        var configuration = Hibernator.Configuration(idleTime: idle)
        configuration.framing = .delimiter(UInt8(ascii: "\n"))
        configuration.whenLost = { woken, loop in
            loop.preconditionInEventLoop()
            box.value.withLock { $0.lost.append(woken.state) }
        }
        let hibernator = try Hibernator(configuration) { channel, woken in
            if box.value.withLock({ $0.isBroken }) { throw Broken() }
            box.value.withLock {
                $0.wakeReasons.append("\(woken.reasons)")
                $0.loops.insert(ObjectIdentifier(channel.eventLoop))
            }
            return try Self.build(channel, box, woken.state)
        }
        self.hibernator = hibernator
        channel = try ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1_024)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if isEncrypted {
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler())
                    }
                    try hibernator.watch(channel, saving: try Self.build(channel, box, []))
                }
            }
            .bind(host: "127.0.0.1", port: 0).wait()
        port = channel.localAddress?.port ?? 0
    }

    private static func build(_ channel: any Channel, _ box: Box, _ state: [UInt8]) throws -> LineSession {
        let session = LineSession(box, state)
        try channel.pipeline.syncOperations.addHandler(ByteToMessageHandler(LineDecoder()))
        try channel.pipeline.syncOperations.addHandler(session)
        return session
    }

    var seen: Seen { box.value.withLock { $0 } }

    func breakDown() { box.value.withLock { $0.isBroken = true } }

    func end() throws {
        hibernator.close()
        try channel.close().wait()
        try group.syncShutdownGracefully()
    }

    func waitUntilHibernated(_ count: Int = 1) throws {
        try #require(eventually { hibernator.counters.hibernated >= count }, "not hibernated")
    }
}

/// A client that blocks.
final class LineClient: Sendable {
    let descriptor: CInt

    init(_ server: LineServer) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(server.port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let socket = descriptor
        let result = withUnsafeBytes(of: &address) { bytes in
            connect(
                socket, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
        }
        try #require(result == 0)
    }

    deinit { close(descriptor) }

    func say(_ text: String) throws { try say(Array(text.utf8)) }

    func say(_ bytes: [UInt8]) throws {
        try #require(send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count)
    }

    func hear(_ count: Int) throws -> String { String(decoding: try hearBytes(count), as: UTF8.self) }

    func hearBytes(_ count: Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var have = 0
        while have < count {
            var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
            try #require(poll(&entry, 1, 20_000) == 1, "nothing to read")
            let more = bytes.withUnsafeMutableBytes {
                recv(descriptor, $0.baseAddress.map { $0 + have }, count - have, 0)
            }
            if more <= 0 { break }
            have += more
        }
        return Array(bytes.prefix(have))
    }

    /// Sends a line and expects the answer with this number.
    func exchange(_ line: String, _ number: Int) throws -> Bool {
        try say("\(line)\n")
        let expected = "\(number) \(line)\n"
        return try hear(expected.utf8.count) == expected
    }
}
