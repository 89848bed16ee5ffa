internal import FoundationEssentials
internal import NIOCore
internal import NIOFoundationEssentialsCompat
internal import NIOHTTP1
internal import NIOWebSocket

/// Answers requests other than for a WebSocket: with the page, the counters, or the sleepers of a room.
final class PageHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// Its resources besides the page.
    struct Facts: Sendable {
        let counters: @Sendable () -> ChatCounters
        let sleepers: @Sendable (_ room: String, any EventLoop) -> EventLoopFuture<Sleepers>
    }

    private let facts: Facts
    private var head: HTTPRequestHead?
    /// A request for a WebSocket that was refused.
    private var isRefused = false
    /// The last answer is on its way: later requests get none.
    private var isEnding = false

    init(_ facts: Facts) {
        self.facts = facts
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): self.head = head
        case .body: break
        case .end:
            if let head, !isEnding { answer(head, context) }
            head = nil
        }
    }

    private func answer(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        // The client sends requests and does not read.
        guard context.channel.isWritable else { return context.close(promise: nil) }
        guard head.localHost != nil else {
            return answer(
                .misdirectedRequest, "text/plain", Array("this server is localhost\n".utf8), head, context)
        }
        if isRefused {
            let isOld = head.headers["sec-websocket-version"] != ["13"]
            let text = isOld ? "WebSocket version 13 only\n" : "no WebSocket for this page\n"
            return answer(
                isOld ? .upgradeRequired : .forbidden, "text/plain", Array(text.utf8), head, context)
        }
        guard head.method == .GET || head.method == .HEAD else {
            return answer(.methodNotAllowed, "text/plain", Array("GET only\n".utf8), head, context)
        }
        switch head.uri.prefix(while: { $0 != "?" }) {
        case "/": answer(.ok, "text/html; charset=utf-8", PackageResources.index_html, head, context)
        case "/style.css": answer(.ok, "text/css; charset=utf-8", PackageResources.style_css, head, context)
        case "/script.js":
            answer(.ok, "text/javascript; charset=utf-8", PackageResources.script_js, head, context)
        case "/icon.svg": answer(.ok, "image/svg+xml", PackageResources.icon_svg, head, context)
        case "/counters": answer(facts.counters(), head, context)
        case "/sleepers":
            guard let room = Sleepers.room(in: head.uri) else {
                return answer(.badRequest, "text/plain", Array("which room?\n".utf8), head, context)
            }
            let late = NIOLoopBound((self, context), eventLoop: context.eventLoop)
            facts.sleepers(room, context.eventLoop).whenSuccess { sleepers in
                let (handler, context) = late.value
                handler.answer(sleepers, head, context)
            }
        default: answer(.notFound, "text/plain", Array("there is nothing here\n".utf8), head, context)
        }
    }

    private func answer(
        _ facts: some Encodable, _ head: HTTPRequestHead, _ context: ChannelHandlerContext
    ) {
        do {
            answer(.ok, "application/json", Array(try JSONEncoder().encode(facts)), head, context)
        } catch {
            preconditionFailure("numbers and names can be written as JSON: \(error)")
        }
    }

    private func answer(
        _ status: HTTPResponseStatus, _ type: String, _ body: [UInt8], _ request: HTTPRequestHead,
        _ context: ChannelHandlerContext
    ) {
        var headers: HTTPHeaders = [
            "content-type": type, "content-length": "\(body.count)", "cache-control": "no-cache",
            "content-security-policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
        ]
        if status == .methodNotAllowed { headers.add(name: "allow", value: "GET, HEAD") }
        if status == .upgradeRequired { headers.add(name: "sec-websocket-version", value: "13") }
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        if request.method != .HEAD {
            context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: body)))), promise: nil)
        }
        isEnding = isRefused || !request.isKeepAlive
        guard isEnding else { return context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil) }
        // A slow reader has not got all of it yet.
        let isWritten = context.eventLoop.makePromise(of: Void.self)
        let late = NIOLoopBound(context, eventLoop: context.eventLoop)
        isWritten.futureResult.whenComplete { _ in late.value.close(promise: nil) }
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: isWritten)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is IdleStateHandler.IdleStateEvent { return context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The request itself comes after that, and is answered.
        if error is NIOWebSocketUpgradeError || error is HTTPServerUpgradeErrors { return isRefused = true }
        context.close(promise: nil)
    }
}

extension HTTPRequestHead {
    /// The `Host` of the request, if it is a local name of this machine. A foreign page with a name that
    /// resolves to this address (DNS rebinding) has another.
    var localHost: String? {
        let hosts = headers["host"]
        guard let host = hosts.first, hosts.count == 1 else { return nil }
        for name in ["localhost", "127.0.0.1", "[::1]"] where host.hasPrefix(name) {
            let rest = host.dropFirst(name.count)
            if rest.isEmpty || (rest.hasPrefix(":") && rest.dropFirst().allSatisfy(\.isNumber)) {
                return host
            }
        }
        return nil
    }
}
