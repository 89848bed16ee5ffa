internal import FoundationEssentials
internal import NIOCore
internal import NIOFoundationEssentialsCompat
internal import NIOWebSocket
internal import NightbellNIO
internal import Synchronization

/// One connection while it is awake: its messages in both directions. Asleep, only the number of its row is
/// left.
final class Session: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case stranger
        /// Its welcome is on its way.
        case joining(row: UInt32, Membership)
        case member(row: UInt32, Membership)
        /// A close was sent; later input is ignored.
        case ended
    }

    private let members: Members
    private var phase = Phase.stranger
    /// Where frames are written: past the encoder that the upgrade has put there, and past the decoder.
    private var output: ChannelHandlerContext?
    /// Of a woken connection: messages to send first as soon as the channel is active.
    private var missed: [Frame]?
    /// The fragments of an incomplete text.
    private var fragments: ByteBuffer?
    /// The supervisor's last ping was not answered.
    private var isSilent = false
    private var isHibernated = false
    private var isToBeFlushed = false
    /// Its index in the members' list while it is awake.
    var place = 0
    private var lastHeard = NIODeadline.now()
    /// The time of an unanswered ping.
    private var pinged: NIODeadline?
    private var isClosing: Scheduled<Void>?

    /// Makes the session of a new connection.
    init(_ members: Members) {
        self.members = members
        members.tally.connections.add(1, ordering: .relaxed)
    }

    /// Makes the session of a woken connection.
    init(_ members: Members, _ woken: WokenConnection) {
        self.members = members
        isSilent = woken.reasons.contains(.pongMissing)
        missed = []
        guard let row = SavedSession(woken.state).row else { return }
        phase = .member(row: row, members.membership(row))
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let operations = context.pipeline.syncOperations
        output =
            (try? operations.context(handlerType: WebSocketFrameEncoder.self))
            ?? (try? operations.context(handlerType: ByteToMessageHandler<WebSocketFrameDecoder>.self))
            ?? context
        members.isAwake(self)
        if missed != nil, case .member(let row, _) = phase { missed = members.isBack(row, self) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        isClosing?.cancel()
        members.isNotAwake(self)
        output = nil
        guard !isHibernated else { return }
        leave()
        members.tally.connections.subtract(1, ordering: .relaxed)
    }

    func channelActive(context: ChannelHandlerContext) {
        let missed = missed ?? []
        self.missed = nil
        if isSilent { return context.close(promise: nil) }
        for frame in missed { _ = write(frame) }
        flush()
    }

    // MARK: Output

    /// - Returns: whether it needs a flush now and did not before.
    func write(_ frame: Frame) -> Bool {
        if missed != nil {
            missed?.append(frame)
            return false
        }
        guard let output else { return false }
        guard output.channel.isWritable else {
            // It reads more slowly than the others write. It is closed later, because the caller iterates
            // over all members.
            let late = NIOLoopBound(output, eventLoop: members.loop)
            members.loop.execute { late.value.close(promise: nil) }
            return false
        }
        output.write(wrapOutboundOut(frame.buffer), promise: nil)
        defer { isToBeFlushed = true }
        return !isToBeFlushed
    }

    func flush() {
        isToBeFlushed = false
        output?.flush()
    }

    private func tell(_ frame: Frame) {
        if write(frame) { flush() }
    }

    private func refuse(_ text: String) {
        tell(ServerWords.error(text).frame(members.encoder))
    }

    // MARK: Input

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        lastHeard = .now()
        if case .ended = phase {
            if frame.opcode == .connectionClose { context.close(promise: nil) }
            return
        }
        guard frame.maskKey != nil, !frame.rsv1, !frame.rsv2, !frame.rsv3 else { return end(.protocolError) }
        switch frame.opcode {
        case .text, .continuation: gather(frame)
        case .ping: tell(Frame(.pong, frame.unmaskedData.readableBytesView))
        case .pong: notePong()
        case .connectionClose: agreeToEnd()
        case .binary: end(.unacceptableData)
        default: end(.protocolError)
        }
    }

    /// A text may come in several frames.
    private func gather(_ frame: WebSocketFrame) {
        guard (frame.opcode == .text) == (fragments == nil) else { return end(.protocolError) }
        var text = frame.unmaskedData
        if var beginning = fragments {
            // Now the reference is unique, so appending does not copy.
            fragments = nil
            beginning.writeBuffer(&text)
            text = beginning
        }
        guard text.readableBytes <= Limits.frameBytes else { return end(.messageTooLarge) }
        fragments = frame.fin ? nil : text
        if frame.fin { hear(text) }
    }

    private func hear(_ text: ByteBuffer) {
        guard String(validating: text.readableBytesView, as: UTF8.self) != nil else {
            return end(.dataInconsistentWithMessage)
        }
        guard let words = try? members.decoder.decode(ClientWords.self, from: text) else {
            return refuse("this is not understood")
        }
        switch words.type {
        case .join: join(words)
        case .say: say(words)
        case .leave:
            // A welcome may be long: at most one is on its way.
            if case .joining = phase { return refuse("you are not in the room yet") }
            leave()
        }
    }

    private func join(_ words: ClientWords) {
        guard case .stranger = phase else { return refuse("you are in a room already") }
        guard let name = words.name, Limits.isName(name, bytes: Limits.nameBytes) else {
            return refuse("a name has 1 to \(Limits.nameBytes) bytes, all of them visible")
        }
        guard let room = words.room, Limits.isName(room, bytes: Limits.roomBytes) else {
            return refuse("the name of a room has 1 to \(Limits.roomBytes) bytes, all of them visible")
        }
        do {
            let (row, membership) = try members.join(self, name: name, room: room)
            phase = .joining(row: row, membership)
        } catch {
            refuse(error.rawValue)
        }
    }

    func isWelcome() {
        if case .joining(let row, let membership) = phase { phase = .member(row: row, membership) }
    }

    private func say(_ words: ClientWords) {
        switch phase {
        case .member(_, let membership), .joining(_, let membership):
            guard let text = words.text, Limits.isText(text) else {
                return refuse("a text has 1 to \(Limits.textBytes) bytes")
            }
            members.tally.messages.add(1, ordering: .relaxed)
            members.hall.say(text, membership)
        case .stranger, .ended:
            refuse("you are in no room")
        }
    }

    private func leave() {
        switch phase {
        case .joining(let row, let membership), .member(let row, let membership):
            phase = .stranger
            members.leave(row, membership)
        case .stranger, .ended:
            break
        }
    }

    // MARK: The end

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case NIOWebSocketError.invalidFrameLength: end(.messageTooLarge)
        case is NIOWebSocketError: end(.protocolError)
        case is HibernationError:
            break
        default:
            // Leave a moment to read the reason of the close.
            if case .ended = phase { return }
            context.close(promise: nil)
        }
    }

    /// Sends the reason, and waits a while for the other side to close: input that arrives meanwhile must not
    /// reset the connection before the reason is read.
    private func end(_ code: WebSocketErrorCode) {
        guard let output else { return }
        leave()
        if case .ended = phase { return }
        tell(.close(code))
        phase = .ended
        close(output, in: .seconds(2))
    }

    /// Answers a close: the connection is closed when the pending output is sent, if that does not take too
    /// long.
    private func agreeToEnd() {
        guard let output else { return }
        leave()
        phase = .ended
        let isWritten = members.loop.makePromise(of: Void.self)
        let late = NIOLoopBound(output, eventLoop: members.loop)
        isWritten.futureResult.whenComplete { _ in late.value.close(promise: nil) }
        output.writeAndFlush(wrapOutboundOut(Frame.close(.normalClosure).buffer), promise: isWritten)
        close(output, in: .seconds(20))
    }

    private func close(_ output: ChannelHandlerContext, in time: TimeAmount) {
        let late = NIOLoopBound(output, eventLoop: members.loop)
        isClosing = members.loop.scheduleTask(in: time) { late.value.close(promise: nil) }
    }

    // MARK: Pings, while it is awake

    /// Pings after this time of silence, and allows as much for the answer.
    func pingIfSilent(for interval: TimeAmount, at now: NIODeadline) {
        if let pinged {
            if pinged + interval <= now { output?.close(promise: nil) }
        } else if lastHeard + interval <= now, isClosing == nil {
            pinged = now
            members.tally.pingsSent.add(1, ordering: .relaxed)
            tell(Frame(.ping, []))
        }
    }

    private func notePong() {
        pinged = nil
        members.tally.pongs.add(1, ordering: .relaxed)
    }
}

extension Session: HibernatableHandler {
    func stateForHibernation() -> [UInt8]? {
        guard pinged == nil, fragments == nil else { return nil }
        switch phase {
        case .stranger: return SavedSession(row: nil).bytes
        case .member(let row, _): return SavedSession(row: row).bytes
        case .joining, .ended: return nil
        }
    }

    func didHibernate(as token: ParkingToken) {
        isHibernated = true
        if case .member(let row, _) = phase { members.fellAsleep(row, token) }
    }
}

/// The state of a session that is kept while it is hibernated.
package struct SavedSession {
    package var row: UInt32?

    package init(row: UInt32?) { self.row = row }

    package init(_ bytes: [UInt8]) {
        row = bytes.isEmpty ? nil : bytes.reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }

    package var bytes: [UInt8] {
        guard let row else { return [] }
        return (0..<4).map { UInt8(truncatingIfNeeded: row >> (8 * $0)) }
    }
}
