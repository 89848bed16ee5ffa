import NIOCore
import NIOPosix
import NIOTLS

/// At the head of a pipeline: notes what goes in and out, and takes the socket away when nothing has for a while.
final class HibernationHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = IOData
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case watching
        /// An end has been seen or sent, or the connection is encrypted: it stays a channel until it is closed.
        case resident
        /// The socket is parked; what becomes of the channel is nobody's business.
        case hibernated
    }

    private let hibernator: Hibernator
    private let loop: any EventLoop
    private var framing: StreamFraming
    private var outbound: OutboundFraming
    private var phase = Phase.watching
    private var lastActivity = NIODeadline.now()
    /// There was some since the watch has looked: it knows the time.
    private var isActive = false
    /// Whether what is written has anything to tell. Every message passes here for each of those who hear it, and between two
    /// looks of the watch the first of them tells all.
    private var looksAtWrites = true
    private let watch: IdleWatch
    /// Where the watch has it.
    var place: Int?
    private var context: ChannelHandlerContext?
    /// Something was under way: it is tried again then.
    private var postponedUntil = NIODeadline.distantPast
    /// Whether the first bytes of the connection, in and out, are still to come.
    private var isNew: (inbound: Bool, outbound: Bool)
    /// What is read further on has come by here.
    private var isReading = false
    private let saver: any HibernatableHandler
    /// The end of what was sent while it was hibernated. It goes before everything else.
    private var unsent: [UInt8]

    init(
        _ hibernator: Hibernator, _ loop: any EventLoop, _ watch: IdleWatch,
        _ saver: any HibernatableHandler, isNew: Bool, unsent: [UInt8]
    ) {
        self.hibernator = hibernator
        self.loop = loop
        self.watch = watch
        self.saver = saver
        self.isNew = (isNew, isNew)
        self.unsent = unsent
        framing = hibernator.configuration.framing
        outbound = OutboundFraming(framing)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        watch.add(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        stopWatching()
    }

    private func stopWatching() {
        watch.remove(self)
        context = nil
    }

    // MARK: What goes in and out

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = unwrapInboundIn(data)
        // In the middle of a message anything may come.
        if framing.isAtBoundary, buffer.beginsTLS(isNew: isNew.inbound) { refuseTLS(context) }
        isNew.inbound = false
        if framing.note(buffer) { isActive = true }
        isReading = true
        context.fireChannelRead(data)
        isReading = false
    }

    /// Bytes that may not have come by here: see `EarlyBytes`.
    ///
    /// - Returns: whether they had not.
    func noteEarly(_ buffer: ByteBuffer) -> Bool {
        guard !isReading else { return false }
        if framing.note(buffer) { isActive = true }
        return true
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if looksAtWrites {
            noteOutbound(context, unwrapOutboundIn(data))
            writeUnsent(context)
            // Elsewhere than in a WebSocket TLS may begin with any of them.
            looksAtWrites =
                !(isActive && framing.isWebSocket && outbound.isAtBoundary && !isNew.outbound)
        }
        context.write(data, promise: promise)
    }

    private func noteOutbound(_ context: ChannelHandlerContext, _ data: IOData) {
        guard case .byteBuffer(let buffer) = data else { return isActive = true }
        // What is inside a WebSocket is written on its own, and may be a TLS of somebody else's.
        if isNew.outbound || !framing.isWebSocket, buffer.beginsTLS(isNew: isNew.outbound) {
            refuseTLS(context)
        }
        isNew.outbound = false
        if outbound.note(buffer) { isActive = true }
    }

    func channelActive(context: ChannelHandlerContext) {
        if !unsent.isEmpty {
            writeUnsent(context)
            context.flush()
            // That may have taken a while, and nothing has been read yet.
            isActive = true
        }
        context.fireChannelActive()
    }

    private func writeUnsent(_ context: ChannelHandlerContext) {
        guard !unsent.isEmpty else { return }
        context.write(wrapOutboundOut(ByteBuffer(bytes: unsent)), promise: nil)
        unsent = []
    }

    /// It may begin at any time (STARTTLS). Behind this handler, its records come by here instead of the messages; a handler
    /// in front of this one hides them, and says when it has agreed with the peer.
    private func refuseTLS(_ context: ChannelHandlerContext) {
        guard phase == .watching else { return }
        phase = .resident
        context.fireErrorCaught(HibernationError.tls)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // Its end was read: parked, it would wake at once, and for ever.
        if case .some(.inputClosed) = event as? ChannelEvent, phase == .watching { phase = .resident }
        if event is TLSUserEvent { refuseTLS(context) }
        context.fireUserInboundEventTriggered(event)
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        if phase == .watching { phase = .resident }
        context.close(mode: mode, promise: promise)
    }

    // MARK: The end of a channel that is only hibernated

    func channelInactive(context: ChannelHandlerContext) {
        if phase != .hibernated { context.fireChannelInactive() }
    }

    func channelUnregistered(context: ChannelHandlerContext) {
        if phase != .hibernated { context.fireChannelUnregistered() }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if phase != .hibernated { context.fireChannelReadComplete() }
    }

    // MARK: Falling asleep

    func isDue(at now: NIODeadline) -> Bool {
        if isActive {
            isActive = false
            looksAtWrites = true
            lastActivity = now
        }
        return lastActivity + hibernator.configuration.idleTime <= now && postponedUntil <= now
    }

    func hibernateIfPossible() {
        guard phase == .watching, let context else { return stopWatching() }
        do {
            if try hibernate(context) { return stopWatching() }
        } catch {
            context.fireErrorCaught(error)
        }
        guard phase == .watching else { return stopWatching() }
        hibernator.count { $0.postponed += 1 }
        postponedUntil = .now() + hibernator.configuration.idleTime
    }

    /// Nothing can be read or written in between: this is the channel's event loop.
    private func hibernate(_ context: ChannelHandlerContext) throws -> Bool {
        let channel = context.channel
        if isNew.inbound || isNew.outbound, context.pipeline.hasTLS {
            refuseTLS(context)
            return false
        }
        guard channel.isActive, framing.isAtBoundary, try isWritten(channel),
            let state = saver.stateForHibernation()
        else { return false }
        // It may have said something, or closed.
        guard phase == .watching, try isWritten(channel) else { return false }
        let operations = context.pipeline.syncOperations
        let parked = try operations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) { socket in
            try hibernator.park(socket, state: state, on: loop)
        }
        guard let parked else { preconditionFailure("what is watched has a socket") }
        guard let token = parked else { return false }
        phase = .hibernated
        hibernator.didHibernate(on: loop)
        saver.didHibernate(as: token)
        // From here to the head: no handler is asked, and the connection does not end with this descriptor.
        context.close(mode: .all, promise: nil)
        return true
    }

    private func isWritten(_ channel: any Channel) throws -> Bool {
        try channel.syncOptions?.getOption(.bufferedWritableBytes) == 0
    }
}

extension ChannelPipeline {
    /// Whether SwiftNIO SSL encrypts, which no byte shows before the next one comes by. Nightbell does not depend on it and
    /// cannot name its handlers, but can read what they are called.
    fileprivate var hasTLS: Bool { debugDescription.contains("NIOSSL") }
}

extension ByteBuffer {
    /// Whether it begins with a record of TLS (RFC 8446, section 5.1): the first bytes of a connection with any, later ones
    /// with one that has a ClientHello or a ServerHello in it, which no message is like by chance.
    fileprivate func beginsTLS(isNew: Bool) -> Bool {
        let view = readableBytesView
        guard let type = view.first, (20...23).contains(type), view.count >= 5 else { return false }
        let start = view.startIndex
        guard view[start + 1] == 3, view[start + 2] <= 4,
            Int(view[start + 3]) << 8 | Int(view[start + 4]) <= 18_432
        else { return false }
        if isNew { return true }
        // The first byte of a length in three bytes, as no hello is so long that it would be another.
        return type == 22 && view.count >= 7 && (1...2).contains(view[start + 5]) && view[start + 6] == 0
    }
}
