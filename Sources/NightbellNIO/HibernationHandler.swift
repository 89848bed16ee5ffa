import NIOCore
import NIOPosix
import NIOTLS

/// At the head of a pipeline: tracks traffic in both directions, and hibernates the channel after an idle
/// time.
final class HibernationHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = IOData
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case watching
        /// The end of a half was seen or sent, or the connection is encrypted: it stays a channel until it is
        /// closed.
        case resident
        /// The socket is parked; this channel is only torn down.
        case hibernated
    }

    private let hibernator: Hibernator
    private let loop: any EventLoop
    private var framing: StreamFraming
    private var outbound: OutboundFraming
    private var phase = Phase.watching
    private var lastActivity = NIODeadline.now()
    /// There was activity since the last check by the watch, which knows the time.
    private var isActive = false
    /// Whether writes have to be inspected. Every message to each of its receivers passes here, and between
    /// two checks of the watch the first one suffices.
    private var looksAtWrites = true
    private let watch: IdleWatch
    /// The index in the watch.
    var place: Int?
    private var context: ChannelHandlerContext?
    /// Work was under way: the next attempt is at this time.
    private var postponedUntil = NIODeadline.distantPast
    /// Whether the first bytes of the connection, in each direction, are still to come.
    private var isNew: (inbound: Bool, outbound: Bool)
    /// Later reads have passed this handler.
    private var isReading = false
    private let saver: any HibernatableHandler
    /// The unsent rest of what was sent during hibernation. It is written before all other data.
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

    // MARK: Traffic

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = unwrapInboundIn(data)
        // Within a message any bytes may occur.
        if framing.isAtBoundary, buffer.beginsTLS(isNew: isNew.inbound) { refuseTLS(context) }
        isNew.inbound = false
        if framing.note(buffer) { isActive = true }
        isReading = true
        context.fireChannelRead(data)
        isReading = false
    }

    /// Bytes that may not have passed this handler: see `EarlyBytes`.
    ///
    /// - Returns: whether they had not passed it.
    func noteEarly(_ buffer: ByteBuffer) -> Bool {
        guard !isReading else { return false }
        if framing.note(buffer) { isActive = true }
        return true
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if looksAtWrites {
            noteOutbound(context, unwrapOutboundIn(data))
            writeUnsent(context)
            // Outside a WebSocket, any write may begin TLS.
            looksAtWrites =
                !(isActive && framing.isWebSocket && outbound.isAtBoundary && !isNew.outbound)
        }
        context.write(data, promise: promise)
    }

    private func noteOutbound(_ context: ChannelHandlerContext, _ data: IOData) {
        guard case .byteBuffer(let buffer) = data else { return isActive = true }
        // The payload in a WebSocket is written separately, and may be a TLS stream of another connection.
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

    /// TLS may begin at any time (STARTTLS). Behind this handler, its records pass here instead of the
    /// messages; a handler in front of this one hides them, and reports when TLS is agreed with the peer.
    private func refuseTLS(_ context: ChannelHandlerContext) {
        guard phase == .watching else { return }
        phase = .resident
        context.fireErrorCaught(HibernationError.tls)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // The end of input was read: if parked, the socket would wake at once, again and again.
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

    // MARK: Hibernating

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

    /// No read or write can happen in between: this runs on the channel's event loop.
    private func hibernate(_ context: ChannelHandlerContext) throws -> Bool {
        let channel = context.channel
        if isNew.inbound || isNew.outbound, context.pipeline.hasTLS {
            refuseTLS(context)
            return false
        }
        guard channel.isActive, framing.isAtBoundary, try isWritten(channel),
            let state = saver.stateForHibernation()
        else { return false }
        // The handler may have written something, or closed.
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
        // From the head on, so that no handler is called; the connection stays open after this descriptor is
        // closed.
        context.close(mode: .all, promise: nil)
        return true
    }

    private func isWritten(_ channel: any Channel) throws -> Bool {
        try channel.syncOptions?.getOption(.bufferedWritableBytes) == 0
    }
}

extension ChannelPipeline {
    /// Whether SwiftNIO SSL encrypts, which no byte shows before the next record. Nightbell does not depend
    /// on it and cannot name its handlers, but can look at their names.
    fileprivate var hasTLS: Bool { debugDescription.contains("NIOSSL") }
}

extension ByteBuffer {
    /// Whether it begins with a TLS record (RFC 8446, section 5.1): the first bytes of a connection with any
    /// record, later ones with a ClientHello or a ServerHello, which a message does not resemble by chance.
    fileprivate func beginsTLS(isNew: Bool) -> Bool {
        let view = readableBytesView
        guard let type = view.first, (20...23).contains(type), view.count >= 5 else { return false }
        let start = view.startIndex
        guard view[start + 1] == 3, view[start + 2] <= 4,
            Int(view[start + 3]) << 8 | Int(view[start + 4]) <= 18_432
        else { return false }
        if isNew { return true }
        // The first byte of a three-byte length, which is 0 because no hello is that long.
        return type == 22 && view.count >= 7 && (1...2).contains(view[start + 5]) && view[start + 6] == 0
    }
}
