import NIOCore
import NIOWebSocket

/// The connected clients, and the counters. It is confined to the only loop.
final class Hub {
    private var conversations: [ObjectIdentifier: Conversation] = [:]
    private var pinging: RepeatedTask?
    private(set) var pings = 0
    private var pongs = 0
    /// Pongs with another payload than that of the last ping.
    private var wrong = 0
    /// Frames other than pongs.
    private var others = 0

    func add(_ conversation: Conversation) { conversations[ObjectIdentifier(conversation)] = conversation }

    func remove(_ conversation: Conversation) { conversations[ObjectIdentifier(conversation)] = nil }

    func ping(every milliseconds: Int64, on loop: any EventLoop) {
        pinging?.cancel()
        pinging = nil
        guard milliseconds > 0 else { return }
        let pause = TimeAmount.milliseconds(milliseconds)
        let hub = NIOLoopBound(self, eventLoop: loop)
        pinging = loop.scheduleRepeatedTask(initialDelay: .zero, delay: pause) { _ in hub.value.pingAll() }
    }

    private func pingAll() {
        for conversation in conversations.values {
            pings += 1
            conversation.ping("ping \(pings)")
        }
    }

    func say(_ text: String) {
        for conversation in conversations.values { conversation.say(text) }
    }

    func notePong(isRight: Bool) {
        if isRight { pongs += 1 } else { wrong += 1 }
    }

    func noteOther() { others += 1 }

    var words: String {
        "clients=\(conversations.count) pings=\(pings) pongs=\(pongs) wrong=\(wrong) others=\(others)"
    }
}

/// One client.
final class Conversation: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let hub: Hub
    private var context: ChannelHandlerContext?
    private var payload = ""

    init(_ hub: Hub) { self.hub = hub }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        hub.add(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        hub.remove(self)
        self.context = nil
    }

    func ping(_ payload: String) {
        self.payload = payload
        send(.ping, payload)
    }

    func say(_ text: String) { send(.text, text) }

    private func send(_ opcode: WebSocketOpcode, _ text: String) {
        guard let context else { return }
        let data = context.channel.allocator.buffer(string: text)
        context.writeAndFlush(
            wrapOutboundOut(WebSocketFrame(fin: true, opcode: opcode, data: data)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .pong:
            hub.notePong(isRight: String(buffer: frame.unmaskedData) == payload)
        case .ping:
            let pong = WebSocketFrame(fin: true, opcode: .pong, data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
        case .connectionClose:
            context.close(promise: nil)
        default:
            hub.noteOther()
        }
    }
}
