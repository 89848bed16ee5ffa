import NIOCore

/// With no descriptor left for a connection, the server would try to accept it again and again, with all of a
/// processor. It looks again after a pause instead; connections wait in the kernel's queue.
final class AcceptPause: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private static let time: TimeAmount = .milliseconds(200)

    /// Adds it to the channel of a server that listens.
    static func add(to server: any Channel) async throws {
        try await server.eventLoop.submit {
            try server.pipeline.syncOperations.addHandler(AcceptPause(), position: .first)
        }.get()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard error is IOError else { return context.fireErrorCaught(error) }
        let server = context.channel
        server.setOption(.autoRead, value: false).whenSuccess {
            server.eventLoop.scheduleTask(in: Self.time) { server.setOption(.autoRead, value: true) }
        }
    }
}
