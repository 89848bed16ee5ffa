import NIOCore
import NIOHTTP1

/// The rules that depend on the version of a request. One of HTTP/1.1 names one host (RFC 9112, section 3.2); another is
/// answered as bytes that are no HTTP. The end of the connection ends the response to one of HTTP/1.0, which knows no
/// chunks.
final class VersionRules: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    private var isBroken = false
    /// Whether the requests without a response are of HTTP/1.0, the oldest first.
    private var areOld: [Bool] = []

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isBroken else { return }
        guard case .head(var head) = unwrapInboundIn(data) else { return context.fireChannelRead(data) }
        let count = head.headers["Host"].count
        guard count == 1 || count == 0 && head.version == .http1_0 else {
            isBroken = true
            return context.fireErrorCaught(HTTPParserError.invalidHeaderToken)
        }
        areOld.append(head.version == .http1_0)
        guard head.version == .http1_0 else { return context.fireChannelRead(data) }
        head.headers.replaceOrAdd(name: "Connection", value: "close")
        // It knows no response before the last one (RFC 9110, section 10.1.1).
        head.headers.remove(name: "Expect")
        context.fireChannelRead(wrapInboundOut(.head(head)))
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard case .head(var head) = unwrapOutboundIn(data), let isOld = areOld.first else {
            return context.write(data, promise: promise)
        }
        // Others come before the response itself.
        if head.status.code >= 200 { areOld.removeFirst() }
        if isOld { head.version = .http1_0 }
        context.write(wrapOutboundOut(.head(head)), promise: promise)
    }
}
