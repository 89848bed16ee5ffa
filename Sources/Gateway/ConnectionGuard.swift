import HTTPTypes
import NIOCore
import NIOHTTPTypes
import NIOHTTPTypesHTTP1

/// Closes the connection of a peer that takes too long or sends too much. A peer that sends a byte now and
/// then, or never reads, would otherwise hold one of a limited number of connections for ever.
final class ConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let limits: Limits
    private let roster: ConnectionRoster
    /// For the next complete head or body of a request.
    private var reading: Scheduled<Void>?
    /// For the peer to read what was written.
    private var writing: Scheduled<Void>?
    /// For the responses to all requests but one.
    private var answering: Scheduled<Void>?
    /// For the last responses, when the gateway ends.
    private var ending: Scheduled<Void>?
    private var bodyBytes = 0
    /// Requests without a complete response.
    private var open = 0
    /// The response that is being written is the last one.
    private var isLast = false

    private var hasAsked = false

    init(_ limits: Limits, _ roster: ConnectionRoster) {
        self.limits = limits
        self.roster = roster
    }

    func channelActive(context: ChannelHandlerContext) {
        expect(within: limits.headTime, context)
        context.fireChannelActive()
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let pipeline = context.pipeline.syncOperations
        if let codec = try? pipeline.handler(type: HTTP1ToHTTPServerCodec.self) {
            try? pipeline.addHandler(VersionRules(), position: .before(codec))
        }
        // Without it the kernel's own limit holds, which is greater.
        _ = context.channel.setOption(
            ChannelOptions.socketOption(.so_sndbuf), value: SocketOptionValue(limits.sendBufferBytes))
        if context.channel.isActive { expect(within: limits.headTime, context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { cancelAll(context) }

    func channelInactive(context: ChannelHandlerContext) {
        cancelAll(context)
        context.fireChannelInactive()
    }

    private func cancelAll(_ context: ChannelHandlerContext) {
        roster.remove(context.channel)
        for timer in [reading, writing, answering, ending] { timer?.cancel() }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            open += 1
            guard open <= limits.waitingOnConnection else { return context.close(promise: nil) }
            if open == 2 { answering = closing(after: limits.pipelineTime, context) }
            bodyBytes = 0
            expect(within: limits.bodyTime, context)
            // A peer that has to wait for the answers before sends its body after a while by itself.
            if head.headerFields[.expect]?.lowercased() == "100-continue", open == 1 {
                context.writeAndFlush(
                    wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: nil)
            }
        case .body(let bytes):
            bodyBytes += bytes.readableBytes
            // Handlers that want a body refuse a longer one by themselves; this is for the others.
            guard bodyBytes <= 16 * limits.bodyBytes else { return context.close(promise: nil) }
        case .end:
            hasAsked = true
            // A request may have been refused, and answered, before its body had come.
            if open == 0 {
                expect(within: limits.headTime, context)
            } else {
                reading?.cancel()
                reading = nil
                roster.remove(context.channel)
            }
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch unwrapOutboundIn(data) {
        case .head(let head): isLast = head.headerFields[.connection] == "close"
        case .body: break
        case .end:
            open = max(0, open - 1)
            if open <= 1 { answering?.cancel() }
            if open == 0 { expect(within: limits.headTime, context) }
            if isLast { return writeLast(data, promise, context) }
        }
        context.write(data, promise: promise)
    }

    /// Nothing else ends a connection if its request does not ask for that.
    private func writeLast(
        _ data: NIOAny, _ promise: EventLoopPromise<Void>?, _ context: ChannelHandlerContext
    ) {
        let written = promise ?? context.eventLoop.makePromise()
        let channel = context.channel
        written.futureResult.whenComplete { _ in channel.close(promise: nil) }
        context.write(data, promise: written)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // Nothing else tells that a peer has gone that follows events. One that has only closed its half has
        // time to read.
        if case .inputClosed? = event as? ChannelEvent { expect(within: limits.headTime / 5, context) }
        if event is ChannelShouldQuiesceEvent, ending == nil {
            ending = closing(after: limits.endTime, context)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        writing?.cancel()
        writing = context.channel.isWritable ? nil : closing(after: limits.writeTime, context)
        context.fireChannelWritabilityChanged()
    }

    private func expect(within time: Duration, _ context: ChannelHandlerContext) {
        reading?.cancel()
        reading = closing(after: time, context)
        roster.awaitRequest(of: context.channel, hasAsked: hasAsked)
    }

    private func closing(after time: Duration, _ context: ChannelHandlerContext) -> Scheduled<Void> {
        let channel = context.channel
        return context.eventLoop.scheduleTask(in: TimeAmount(time)) { channel.close(promise: nil) }
    }
}
