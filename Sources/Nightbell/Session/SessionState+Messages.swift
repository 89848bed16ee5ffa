package import NightbellWire
import SwiftProtobuf

extension SessionState {
    /// Handles a packet from the supervisor.
    package mutating func received(_ message: WireSupervisorMessage, at now: Int64) -> [Action] {
        switch phase {
        case .connecting, .waiting, .closed:
            // It was read before the connection ended and processed after.
            return []
        case .restoring(let restoration) where message.request != 0 && message.request == restoration.number:
            return restored(restoration, message.body, at: now)
        case .restoring, .connected:
            break
        }
        if message.request != 0 { return answered(message.request, message.body, at: now) }
        switch message.body {
        case .error(let wire):
            let error = NightbellError(wire)
            announcedEnd = nil
            return lost(error, at: now)
        case .didEnterBackground:
            return toldToEnterBackground()
        case .prepareToSuspend(let prepare):
            return [.notify(.prepareToSuspend(epoch: prepare.epoch, connection: connection))]
        case .suspendCancelled(let cancelled):
            holdings.restore(returned: cancelled.returned)
            return [.notify(.suspendCancelled(epoch: cancelled.epoch))]
        case .suspended:
            return [.notify(.programSuspended)]
        case .wake(let wake):
            return woken(wake, at: now)
        case .backgroundTimeExpiring(let expiring):
            return [.notify(.backgroundTimeExpiring(.wireMilliseconds(expiring.remainingMs)))]
        case .supervisorRestarted(let restarted):
            return repeatUnanswered(restarted)
        case .willTerminate where isToldOfTermination:
            return []
        case .willTerminate(let end):
            isToldOfTermination = true
            return [.notify(.willTerminate(.wireMilliseconds(end.budgetMs)))]
        case .done, .welcome, .handedOver, .backgroundTask, .backgroundTimeLeft, .notificationScheduled,
            .notificationList, .supervisorStatus,
            .clientInfo, .clientInfos,
            .watchEvents, .reloaded:
            return lost(NightbellError(.malformedAnswer, "an answer without a request"), at: now)
        case nil:
            // From a newer supervisor, or empty: unknown messages are ignored.
            return []
        }
    }

    /// The handler for entering the background has returned. False: the client is in the foreground again.
    package mutating func enteredBackground() -> Bool {
        switch holdings.ground {
        case .leaving, .background:
            holdings.ground = .background
            isToldToEnterBackground = false
            return true
        case .undeclared, .foreground:
            return false
        }
    }

    private mutating func toldToEnterBackground() -> [Action] {
        if isReentering {
            isReentering = false
            return [.send(WireClientMessage(.backgroundEntered(.init())))]
        }
        // Repeated by a new worker that does not know whether it was sent.
        if hasRestarted, isToldToEnterBackground { return [] }
        if hasRestarted, holdings.ground == .background {
            return [.send(WireClientMessage(.backgroundEntered(.init())))]
        }
        isToldToEnterBackground = true
        return [.notify(.didEnterBackground)]
    }

    private mutating func woken(_ message: WireWake, at now: Int64) -> [Action] {
        if message.repeated, message.wakeID <= lastWakeID { return [] }
        lastWakeID = message.wakeID
        holdings.restore(returned: message.returned)
        var wake = Wake(
            id: message.wakeID, reasons: [], sockets: [], budget: .wireMilliseconds(message.budgetMs),
            asleepFor: .wireNanoseconds(message.asleepNs), isRepeated: message.repeated)
        wake.fetchBudget = .wireMilliseconds(message.fetchBudgetMs)
        wake.pushBudget = .wireMilliseconds(message.pushBudgetMs)
        wake.occurrences = message.occurrences.compactMap(Occurrence.init)
        wake.notifications = message.notifications.compactMap { NotificationEvent($0) }
        for reason in message.reasons {
            switch reason {
            case .socket: wake.reasons.insert(.socket)
            case .keepAlive: wake.reasons.insert(.keepAlive)
            case .request: wake.reasons.insert(.request)
            case .clientMessage: wake.reasons.insert(.clientMessage)
            case .supervisorStopping: wake.reasons.insert(.supervisorStopping)
            case .launched: wake.reasons.insert(.launched)
            case .relaunched: wake.reasons.insert(.relaunched)
            case .unanswered: wake.reasons.insert(.unanswered)
            case .pathLost: wake.reasons.insert(.pathLost)
            case .fetch: wake.reasons.insert(.fetch)
            case .networkChanged: wake.reasons.insert(.networkChanged)
            case .location: wake.reasons.insert(.location)
            case .device: wake.reasons.insert(.device)
            case .bluetooth: wake.reasons.insert(.bluetooth)
            case .transfer: wake.reasons.insert(.transfer)
            case .push: wake.reasons.insert(.push)
            case .notification: wake.reasons.insert(.notification)
            case .unspecified, .UNRECOGNIZED: break
            }
        }
        for event in message.sockets {
            // A socket that was released in the meantime is ignored.
            guard let socket = holdings.socket(of: event.token) else { continue }
            wake.sockets.append(
                .init(socket: socket, conditions: event.conditions, dropped: Int(event.dropped)))
        }
        if wake.reasons.contains(.keepAlive) {
            holdings.keepAlive?.lastRun = now
            holdings.keepAlive?.isDue = true
        }
        if wake.reasons.contains(.supervisorStopping) {
            announcedEnd = NightbellError(.shuttingDown, "it announced its end")
        }
        return [.notify(.wake(wake, connection: connection))]
    }

    /// The tokens of the sockets that still have work, for `ReadyToSuspend`.
    package func readyToSuspend(epoch: UInt64, notIdle: [ParkedSocket]) -> WireClientMessage {
        WireClientMessage(
            .readyToSuspend(
                .with {
                    $0.epoch = epoch
                    $0.notIdle = notIdle.compactMap(holdings.token(of:))
                    $0.delegated = holdings.delegated
                }))
    }
}

extension WireWake.Socket {
    package var conditions: SocketConditions {
        var conditions: SocketConditions = []
        if readable { conditions.insert(.readable) }
        if peerClosed { conditions.insert(.peerClosed) }
        if hangUp { conditions.insert(.hangUp) }
        if error { conditions.insert(.error) }
        if unanswered { conditions.insert(.unanswered) }
        if flooded { conditions.insert(.flooded) }
        if unanswerable { conditions.insert(.unanswerable) }
        if pathLost { conditions.insert(.pathLost) }
        return conditions
    }
}
