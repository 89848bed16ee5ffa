import NIOCore
import NIOHTTP1

/// A request of HTTP/1.1 names one host (RFC 9112, section 3.2). Another one is answered as bytes that are no HTTP.
final class HostRule: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart

    private var isBroken = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isBroken else { return }
        if case .head(let head) = unwrapInboundIn(data) {
            let count = head.headers["Host"].count
            guard count == 1 || count == 0 && head.version == .http1_0 else {
                isBroken = true
                return context.fireErrorCaught(HTTPParserError.invalidHeaderToken)
            }
        }
        context.fireChannelRead(data)
    }
}
