import EventLoop
import Glibc
import Keeper
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Starting clients.
extension Supervisor {
    func launch(_ client: ClientID) {
        guard let recipe = launches.recipe(of: client) else {
            preconditionFailure("only clients with a recipe are launched")
        }
        do {
            launches.killLeftovers(of: identifier(of: client))
            launches.killWrappers(of: client)
            let sockets = supervision.survivors(of: client).filter { parked.contains($0) }
            var (order, isRecorded) = try recipe.order()
            order.additions = [
                "NIGHTBELL_IDENTIFIER": identifier(of: client), "NIGHTBELL_SOCKET": configuration.socketPath,
            ]
            // If no worker is left one day, it can tell the next supervisor as its first process told us.
            if isRecorded {
                var launch = WireLaunchSpecification(order.specification)
                launch.identifier = identifier(of: client)
                order.additions["NIGHTBELL_LAUNCH"] = base64(try launch.serializedBytes())
            }
            order.sockets = sockets.compactMap { token in
                parked.descriptor(of: token).map { .init($0, name: parked.name(of: token)) }
            }
            FaultInjection.point("before a launch")
            let attempt = try begin(order, client, sockets)
            launches.setAttempt(attempt, of: client)
            store(attempt, client)
            attempt.letRun()
            FaultInjection.point("after a launch")
        } catch {
            launches.setProblem("\(error)", of: client)
            log(
                .launches, .error, of: supervision.user(of: client),
                "cannot launch \(identifier(of: client)): \(error)")
            followUps.append(.ended(client, Self.isShortage(error) ? .notStarted : .failed))
        }
    }

    /// Whether the supervisor or the machine has run out of something that its next attempt may have.
    private static func isShortage(_ error: any Error) -> Bool {
        let code: Int32? =
            switch error {
            case let error as SystemError: error.code
            case let error as LaunchError: error.code
            case let error as LoopError: error.underlying.code
            default: nil
            }
        return [EMFILE, ENFILE, ENOMEM, EAGAIN, ENOBUFS, ENOSPC].contains(code)
    }

    /// Makes the process, with a connection already open.
    private func begin(
        _ order: LaunchOrder, _ client: ClientID, _ sockets: [SocketToken]
    ) throws -> LaunchAttempt {
        let pair = try SeqPacketSocket.pair()
        return try pair.separate { (ours, theirs) throws -> LaunchAttempt in
            var order = order
            order.connection = theirs.rawValue
            // The program expects what `connect` would have given it.
            try theirs.setBlocking()
            let launch = try Launch.prepare(order, configuration.launchSlots)
            let credentials = PeerCredentials(
                pid: launch.process.pid, uid: order.identity.user, gid: order.identity.group)
            let connection = try Connection(
                key: connections.nextKey, socket: ours, credentials: credentials, loop: loop)
            connection.launched = client
            connections.insert(connection)
            do {
                return try LaunchAttempt(
                    launch, client: client, connection: connection.key, sockets: sockets, loop: loop)
            } catch {
                closeConnection(connection)
                throw error
            }
        }
    }

    /// Records a process with the keeper before the process may run.
    private func store(_ attempt: LaunchAttempt, _ client: ClientID) {
        guard var journal, var bytes = recordBytes(of: client),
            let connection = connections[attempt.connection], let gate = attempt.reportDescriptor
        else { return }
        bytes.madeProcess = UInt32(attempt.pid)
        // Another worker would not learn that this launch succeeds.
        bytes.launchProblem = nil
        bytes.previous = PreviousProcess(wasLaunched: true, isAttached: false, sockets: attempt.sockets)
        FaultInjection.point("before a launch is said")
        journal.launch(
            client,
            Journal.ClientRecord(
                bytes: bytes, connection: connection.socket.rawValue,
                process: (attempt.process.rawValue, gate)))
        FaultInjection.point("after a launch is said")
    }

    /// Asks launches without a Hello to end: the connection that such a process was given is closed with us.
    ///
    /// - Parameter deadline: when they are killed.
    func endLaunches(until deadline: Instant) {
        launches.noteAskedToEnd(until: deadline)
        for attempt in launches.silentAttempts {
            do throws(SystemError) {
                try attempt.terminate(until: deadline)
            } catch {
                logger.debug("process \(attempt.pid) has ended: \(error)")
            }
        }
    }

    /// Kills launches that were asked to end, and have not.
    ///
    /// - Parameter instant: those with time until then.
    func killLaunches(dueBy instant: Instant) {
        for attempt in launches.askedToEnd {
            guard let due = attempt.killsAt, due <= instant else { continue }
            do throws(SystemError) {
                try attempt.kill()
            } catch {
                logger.debug("process \(attempt.pid) has ended: \(error)")
            }
        }
        launches.forgetEnded()
    }

    /// Notes the outcome of a launch, if it is known.
    ///
    /// - Parameter isOver: The process has said Hello or has ended.
    func noteOutcome(_ client: ClientID, isOver: Bool) {
        guard let attempt = launches.attempt(of: client), let outcome = attempt.takeOutcome(isOver: isOver)
        else { return }
        switch outcome {
        case .failed(let error):
            let pause = Supervision.longestPauseWithoutProgram.components.seconds
            let problem =
                error.isMissing
                ? "\(error); it is tried again after pauses that double, up to \(pause) s" : "\(error)"
            // A program may stay away for ever.
            guard launches.problem(of: client) != problem else { return }
            launches.setProblem(problem, of: client)
            log(
                .launches, .error, of: supervision.user(of: client),
                "cannot launch \(identifier(of: client)): \(problem)")
        case .runs:
            launches.setProblem(nil, of: client)
            journal?.forgetGate(client)
            Launch.takeProtection(from: attempt.process)
            logger.debug("\(identifier(of: client)) runs as pid \(attempt.pid)")
        }
    }

    /// Its process has ended before it said Hello.
    ///
    /// - Parameter newcomer: says Hello at this moment.
    func launchEnded(_ client: ClientID, before newcomer: Connection? = nil) {
        noteOutcome(client, isOver: true)
        let attempt = takeAttempt(client)
        let status = attempt.flatMap { Self.exitStatus(of: $0.process) }
        if let attempt, attempt.hasRun {
            let name = "\(identifier(of: client)), pid \(attempt.pid),"
            log(
                .launches, .notice, of: supervision.user(of: client),
                "\(name) has ended before it said Hello: \(Self.text(of: status))")
        }
        let ending: Ending =
            attempt?.hasRun == true
            ? Self.ending(status) : attempt?.isProgramMissing == true ? .programMissing : .failed
        if let attempt {
            let isRestOfIt = newcomer.map { getsid($0.credentials.pid) == attempt.pid } ?? false
            if attempt.killsAt != nil {
                if attempt.hasProcesses { launches.leaveToEnd(attempt, identifier(of: client)) }
            } else if ending == .failed, !isRestOfIt {
                attempt.killRest()
            }
            end(attempt)
        }
        feed(.ended(client, ending))
    }

    /// Removes the attempt: the launch is over.
    func takeAttempt(_ client: ClientID) -> LaunchAttempt? {
        defer { launches.setAttempt(nil, of: client) }
        return launches.attempt(of: client)
    }

    func end(_ attempt: LaunchAttempt) {
        attempt.end()
        if let connection = connections[attempt.connection], connection.client == nil {
            closeConnection(connection)
        }
    }
}
