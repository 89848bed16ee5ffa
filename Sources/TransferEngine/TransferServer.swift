package import EventHandlers
import EventLoop
package import Glibc
package import LinuxSystem
import TransferModel

/// Serves the clients of the engine. The end of its loop's `run` is the end of the process's work.
package final class TransferServer {
    private let loop: HandlerLoop
    private let engine: TransferEngine
    private let listener: SeqPacketSocket
    private var listenerWatch: DescriptorWatch?
    private var signalWatch: DescriptorWatch?
    private var connections: [ObjectIdentifier: TransferConnection] = [:]
    private var idleTimer: LoopTimer?
    private var progressTimer: LoopTimer?
    private var acceptTimer: LoopTimer?
    private var descriptorTimer: LoopTimer?
    /// The user that clients must have; root may connect as well.
    private let user: uid_t
    /// nil: no supervisor has started the process.
    private let supervisor: SupervisorLink?

    private static let maximumConnections = 512
    /// Of one process. A client has one for each session, of which it observes at most 128.
    private static let maximumConnectionsOfProcess = 128
    private static let acceptsOfATurn = 64
    /// In milliseconds.
    private static let progressPeriod: Int64 = 1_000
    private static let acceptPause: Int64 = 200
    private static let descriptorPause: Int64 = 1_000
    /// Results with files that clients have not released. The kernel passes no descriptors any more, in any process of the user,
    /// when as many are on their way as a process may have open: often 1,024.
    private static let mostHeldFiles = 256

    /// - Parameter signals: of SIGTERM; the process ends in order when it is readable.
    package init(
        _ loop: HandlerLoop, _ engine: TransferEngine, listener: consuming SeqPacketSocket,
        supervisor: SupervisorLink? = nil, user: uid_t = geteuid(), signals: CInt? = nil
    ) throws(TransferError) {
        self.loop = loop
        self.engine = engine
        self.listener = listener
        self.user = user
        self.supervisor = supervisor
        let rawValue = self.listener.rawValue
        do throws(LoopError) {
            listenerWatch = try DescriptorWatch(loop, rawValue, .read, isArmed: supervisor == nil) {
                [unowned self] _ in accept()
            }
            if let signals {
                signalWatch = try DescriptorWatch(loop, signals, .read) { [unowned self] _ in
                    signalWatch = nil
                    engine.endInOrder()
                }
            }
        } catch {
            throw .loop(error)
        }
        idleTimer = LoopTimer(loop) { [unowned self] in
            if isDone { loop.stop() }
        }
        acceptTimer = LoopTimer(loop) { [unowned self] in try? listenerWatch?.setArmed(true) }
        // The loop's turn that follows sends more.
        descriptorTimer = LoopTimer(loop) {}
        progressTimer = LoopTimer(loop) { [unowned self] in
            for connection in connections.values { connection.reportProgress() }
        }
        engine.onChange = { [unowned self] task, session in
            for connection in connections.values where connection.session == session { connection.note(task) }
        }
        supervisor?.onReady = { [unowned self] in try? listenerWatch?.setArmed(true) }
        supervisor?.onRemoval = { [unowned self] sessions in
            for connection in connections.values {
                if let session = connection.session, sessions.contains(session) { connection.end() }
            }
        }
        loop.onTurnEnd = { [unowned self] in endTurn() }
    }

    /// Serves until there is nothing to do for a while, or a signal comes.
    ///
    /// - Returns: whether there is nothing left to do.
    package func run() throws(TransferError) -> Bool {
        do throws(HandlerError) {
            try loop.run()
        } catch {
            throw .handlers(error)
        }
        engine.endTurn()
        if let failure = engine.failure { throw failure }
        // Demands that come from now on would be lost. The supervisor cannot send them, and has them for the next
        // process.
        supervisor?.stopListening()
        return isDone
    }

    /// Nothing is left to do, and the supervisor has asked for nothing more.
    private var isDone: Bool { isIdle && supervisor?.hasUnread != true }

    private var isIdle: Bool { connections.isEmpty && engine.isIdle && supervisor?.isIdle ?? true }

    private func endTurn() {
        dropEnded()
        engine.endTurn()
        // Without the store nothing is answered.
        guard engine.failure == nil else { return }
        report()
        // After the clients: one that is woken finds its results.
        supervisor?.flush()
        if dropEnded() {
            engine.endTurn()
            supervisor?.flush()
        }
        if !isIdle {
            idleTimer?.deadline = nil
        } else if idleTimer?.deadline == nil {
            idleTimer?.set(milliseconds: engine.configuration.idleTime * 1_000)
        }
        if engine.attempts.isEmpty || connections.isEmpty {
            progressTimer?.deadline = nil
        } else if progressTimer?.deadline == nil {
            progressTimer?.set(milliseconds: Self.progressPeriod)
        }
    }

    private func report() {
        var room = connections.values.reduce(Self.mostHeldFiles) { $0 - $1.heldFileCount }
        for connection in connections.values { connection.flush(&room) }
        guard descriptorTimer?.deadline == nil, connections.values.contains(where: \.lacksDescriptors) else {
            return
        }
        descriptorTimer?.set(milliseconds: Self.descriptorPause)
    }

    /// - Returns: whether there were any.
    @discardableResult
    private func dropEnded() -> Bool {
        let ended = connections.filter { $0.value.hasEnded }
        for (id, connection) in ended {
            connections[id] = nil
            connection.leave()
        }
        return !ended.isEmpty
    }

    /// One process does not lock out the others.
    private func hasRoom(for process: pid_t) -> Bool {
        connections.count < Self.maximumConnections
            && connections.values.count { $0.process == process } < Self.maximumConnectionsOfProcess
    }

    private func accept() {
        do {
            // More of them are left to the next turn: the listener stays readable.
            for _ in 0..<Self.acceptsOfATurn {
                guard let socket = try listener.accept() else { return }
                let peer = try socket.peerCredentials()
                guard peer.uid == user || peer.uid == 0, hasRoom(for: peer.pid) else { continue }
                let connection = try TransferConnection(loop, engine, socket, of: peer.pid)
                connections[ObjectIdentifier(connection)] = connection
            }
        } catch {
            // Such as a shortage of descriptors: the connection stays in the queue, and the listener stays
            // readable.
            try? listenerWatch?.setArmed(false)
            acceptTimer?.set(milliseconds: Self.acceptPause)
        }
    }
}
