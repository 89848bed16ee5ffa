import NIOCore

/// Sits in front of a decoder that took over from another: reports bytes to the watcher at the head that had
/// passed it before it was added. It removes itself when the first bytes arrive that the watcher has seen.
final class EarlyBytes: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let watcher: HibernationHandler

    init(_ watcher: HibernationHandler) {
        self.watcher = watcher
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let isEarly = watcher.noteEarly(unwrapInboundIn(data))
        context.fireChannelRead(data)
        if !isEarly { context.pipeline.syncOperations.removeHandler(context: context, promise: nil) }
    }
}
