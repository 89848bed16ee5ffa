import Glibc
import NIOCore
import NIOPosix
import NightbellNIO

// Numbers the lines it hears. `line-server 7008 10`, then `nc 127.0.0.1 7008`: after ten idle seconds the
// channel goes, and the next line brings it back with its number.

/// A connection while it is awake.
final class LineCounter: ChannelInboundHandler, HibernatableHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var lines: UInt8

    init(lines: UInt8 = 0) { self.lines = lines }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        for byte in unwrapInboundIn(data).readableBytesView where byte == UInt8(ascii: "\n") {
            lines &+= 1
            context.write(wrapOutboundOut(ByteBuffer(string: "line \(lines)\n")), promise: nil)
        }
        context.flush()
    }

    /// The state that the next channel of this connection needs.
    func stateForHibernation() -> [UInt8]? { [lines] }

    func didHibernate(as token: ParkingToken) { report("asleep after \(lines) lines") }
}

func report(_ text: String) {
    print(text)
    fflush(nil)  // a pipe's reader sees it at once
}

let arguments = CommandLine.arguments.dropFirst().map { Int($0) }
let port = (arguments.first ?? 7008) ?? 7008
let idleSeconds = Int64((arguments.dropFirst().first ?? 10) ?? 10)

var configuration = Hibernator.Configuration(idleTime: .seconds(idleSeconds))
configuration.framing = .delimiter(UInt8(ascii: "\n"))  // no channel goes in the middle of a line
configuration.profile = try ParkingProfile.tcp()  // the kernel looks whether sleepers' peers are there
let hibernator = try Hibernator(configuration) { channel, woken in
    report("awake again: \(woken.reasons)")
    let counter = LineCounter(lines: woken.state[0])
    try channel.pipeline.syncOperations.addHandler(counter)
    return counter
}

let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
    .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
    .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
            let counter = LineCounter()
            try channel.pipeline.syncOperations.addHandler(counter)
            try hibernator.watch(channel, saving: counter)
        }
    }
    .bind(host: "127.0.0.1", port: port).get()
report("listening on 127.0.0.1:\(listener.localAddress?.port ?? port)")
try await listener.closeFuture.get()
