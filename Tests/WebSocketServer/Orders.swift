import NIOCore
import NIOHTTP1

/// Handles the commands of plain HTTP clients.
final class Orders: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    static let name = "orders"

    private let hub: Hub

    init(_ hub: Hub) { self.hub = hub }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data) else { return }
        let words = head.uri.split(separator: "/", maxSplits: 1).map(String.init)
        switch (words.first, words.last) {
        case ("pings", let pause?): hub.ping(every: Int64(pause) ?? 0, on: context.eventLoop)
        case ("say", let text?): hub.say(text)
        default: break
        }
        let body = context.channel.allocator.buffer(string: hub.words + "\n")
        let headers: HTTPHeaders = ["content-length": "\(body.readableBytes)", "connection": "close"]
        let answer = HTTPResponseHead(version: .http1_1, status: .ok, headers: headers)
        context.write(wrapOutboundOut(.head(answer)), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }
}
