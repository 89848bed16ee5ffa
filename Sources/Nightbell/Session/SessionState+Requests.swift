package import NightbellWire
import SwiftProtobuf

extension SessionState {
    package enum Submission {
        /// Send it, then ask `requests` for the outcome.
        case send(number: UInt64, WireClientMessage)
        /// No request has to be sent.
        case answered(Answer)
        /// The supervisor is still being restored: try again when something has changed.
        case wait
    }

    package mutating func submit(_ request: Request, at now: Int64) throws(NightbellError) -> Submission {
        switch phase {
        case .closed(let error):
            throw NightbellError(.closed, error.code == .closed ? "" : error.description.withoutFullStop)
        case .connecting, .waiting:
            guard hasRegistered else { return .wait }
            if !requiresSupervisor, let answer = answerAlone(request, at: now) { return .answered(answer) }
            return .answered(try record(request))
        case .restoring:
            return .wait
        case .connected:
            break
        }
        switch request {
        case .release(let socket) where holdings.token(of: socket) == nil:
            throw NightbellError(.invalidToken, "it was released or lost")
        case .endTask(let task) where !task.isValid:
            return .answered(.done)
        case .endTask(let task) where holdings.tasks[task.id]?.wireID == nil:
            throw NightbellError(.invalidTask, "it was ended or lost")
        default:
            let number = requests.open(request)
            return .send(number: number, message(for: request, number: number))
        }
    }

    private func message(for request: Request, number: UInt64) -> WireClientMessage {
        switch request {
        case .handOver(let sockets): .handOver(sockets, request: number)
        case .release(let socket): .release(token: holdings.token(of: socket) ?? 0, request: number)
        case .enterBackground: WireClientMessage(.enterBackground(.init()), request: number)
        case .enterForeground: WireClientMessage(.enterForeground(.init()), request: number)
        case .setKeepAlive(let milliseconds, _): .setKeepAlive(milliseconds: milliseconds, request: number)
        case .clearKeepAlive: WireClientMessage(.clearKeepAliveTimeout_p(.init()), request: number)
        case .setFetchInterval(let interval): .setFetchInterval(interval, request: number)
        case .fetchDone(let wakeID, let result): .fetchDone(wakeID, result, request: number)
        case .pushDone(let wakeID, let result): .pushDone(wakeID, result, request: number)
        case .observe(let name, let subject): .observe(name, subject, request: number)
        case .stopObserving(let name): .stopObserving(name, request: number)
        case .schedule(let notification): .schedule(notification, request: number)
        case .cancelNotifications(let identifiers): .cancelNotifications(identifiers, request: number)
        case .setBadge(let count): .setBadge(count, request: number)
        case .listNotifications(let after): .listNotifications(after: after, request: number)
        case .beginTask(let name, _): .beginTask(name: name, request: number)
        case .endTask(let task): .endTask(holdings.tasks[task.id]?.wireID ?? 0, request: number)
        case .timeRemaining: WireClientMessage(.backgroundTimeRemaining(.init()), request: number)
        case .media: WireClientMessage(.mediaActivity(.init()), request: number)
        case .saveState(let bytes): .saveState(bytes, request: number)
        case .hibernate: WireClientMessage(.hibernate(.init()), request: number)
        }
    }

    /// Answers a request without a supervisor, for a client that needs none: the request is recorded for the
    /// next supervisor, and the client is not suspended until then. nil: treat it as usual.
    private mutating func answerAlone(_ request: Request, at now: Int64) -> Answer? {
        switch request {
        case .handOver(let new):
            return .sockets(new.map { .success(holdings.park($0, token: nil)) })
        case .setKeepAlive(let milliseconds, let handler):
            holdings.keepAlive = .init(milliseconds: milliseconds, handler: handler, lastRun: now)
            return .done
        case .beginTask(let name, let expired):
            return .task(holdings.begin(name, wireID: nil, expired: expired))
        case .timeRemaining:
            return .time(.unlimited)
        case .media:
            return .done
        case .release, .enterBackground, .enterForeground, .clearKeepAlive, .endTask, .saveState, .hibernate,
            .setFetchInterval, .fetchDone, .pushDone, .observe, .stopObserving, .schedule,
            .cancelNotifications, .setBadge, .listNotifications:
            return nil
        }
    }

    /// Records, without a supervisor, a request that only takes something back or declares something.
    private mutating func record(_ request: Request) throws(NightbellError) -> Answer {
        switch request {
        case .release(let socket):
            guard holdings.contains(socket) else {
                throw NightbellError(.invalidToken, "it was released or lost")
            }
            holdings.remove(socket.id)
        case .endTask(let task):
            guard !task.isValid || holdings.tasks.removeValue(forKey: task.id) != nil else {
                throw NightbellError(.invalidTask, "it was ended or lost")
            }
        case .clearKeepAlive:
            holdings.keepAlive = nil
        case .enterBackground:
            if holdings.ground != .background { holdings.ground = .leaving }
        case .enterForeground:
            holdings.ground = .foreground
        case .setFetchInterval(let interval):
            holdings.fetchInterval = interval
        case .fetchDone, .pushDone:
            break  // it is over with the supervisor that has begun it
        case .stopObserving(let name):
            holdings.observations[name] = nil
        case .handOver, .setKeepAlive, .observe, .beginTask, .timeRemaining, .media, .saveState, .hibernate,
            .schedule, .cancelNotifications, .setBadge, .listNotifications:
            throw NightbellError(.disconnected, "")
        }
        return .done
    }

    /// The connection ended before the answer: whatever was to be taken back is still taken back.
    package mutating func outcome(
        of request: Request, lostWith error: NightbellError
    ) -> Result<Answer, NightbellError> {
        switch request {
        case .release, .endTask, .clearKeepAlive, .enterBackground, .enterForeground, .setFetchInterval,
            .fetchDone, .pushDone, .stopObserving:
            do {
                return .success(try record(request))
            } catch {
                return .failure(error)
            }
        case .handOver, .setKeepAlive, .observe, .beginTask, .timeRemaining, .media, .saveState, .hibernate,
            .schedule, .cancelNotifications, .setBadge, .listNotifications:
            return .failure(error)
        }
    }

    // MARK: Answers

    /// Handles the answer to a caller's request.
    package mutating func answered(
        _ number: UInt64, _ body: WireSupervisorMessage.OneOf_Body?, at now: Int64
    ) -> [Action] {
        guard let recipient = requests.recipient(of: number) else {
            // The answer of the previous worker has arrived as well.
            if hasRestarted, requests.hasGiven(number) { return giveBackUnknown(body) }
            return lost(NightbellError(.malformedAnswer, "an answer to no request"), at: now)
        }
        switch recipient {
        case .abandoned(let request):
            requests.resolve(number, .success(.done))
            return giveBack(request, body)
        case .caller(let request):
            let outcome = outcome(of: request, body, at: now)
            requests.resolve(number, outcome)
            if case .failure(let error) = outcome, error.code == .malformedAnswer {
                return lost(error, at: now)
            }
            return []
        }
    }

    private mutating func outcome(
        of request: Request, _ body: WireSupervisorMessage.OneOf_Body?, at now: Int64
    ) -> Result<Answer, NightbellError> {
        switch (request, body) {
        case (_, .error(let wire)):
            let error = NightbellError(wire)
            if wire.code.endsConnection { announcedEnd = error }
            // The supervisor does not know it, so it is dropped here too.
            if case .release(let socket) = request, error.code == .invalidToken { holdings.remove(socket.id) }
            if case .endTask(let task) = request, error.code == .invalidTask { holdings.tasks[task.id] = nil }
            return .failure(error)
        case (.handOver(let new), .handedOver(let answer)) where answer.adoptions.count == new.count:
            return adopted(new, answer.adoptions)
        case (.release(let socket), .done):
            holdings.remove(socket.id)
        case (.enterBackground, .done):
            if holdings.ground != .background { holdings.ground = .leaving }
        case (.enterForeground, .done):
            holdings.ground = .foreground
        case (.setKeepAlive(let milliseconds, let handler), .done):
            holdings.keepAlive = .init(milliseconds: milliseconds, handler: handler, lastRun: now)
        case (.clearKeepAlive, .done):
            holdings.keepAlive = nil
        case (.setFetchInterval(let interval), .done):
            holdings.fetchInterval = interval
        case (.fetchDone, .done), (.pushDone, .done):
            break
        case (.observe(let name, let subject), .done):
            holdings.observations[name] = subject
        case (.stopObserving(let name), .done):
            holdings.observations[name] = nil
        case (.beginTask(let name, let expired), .backgroundTask(let answer)):
            return .success(.task(holdings.begin(name, wireID: answer.taskID, expired: expired)))
        case (.endTask(let task), .done):
            holdings.tasks[task.id] = nil
        case (.timeRemaining, .backgroundTimeLeft(let answer)):
            return remaining(answer)
        case (.media, .done), (.cancelNotifications, .done), (.setBadge, .done):
            break
        case (.schedule, .notificationScheduled(let answer)):
            return .success(.scheduled(dropped: answer.dropped.isEmpty ? nil : answer.dropped))
        case (.listNotifications, .notificationList(let list)):
            let all = list.notifications.map { NotificationInfo($0) }
            return .success(.notifications(all, hasMore: list.hasMore_p))
        case (.saveState(let bytes), .done):
            holdings.state = bytes
        case (.hibernate, .done):
            holdings.hibernates = true
        default:
            return .failure(NightbellError(.malformedAnswer, "an answer of the wrong kind"))
        }
        return .success(.done)
    }

    private func remaining(_ answer: WireBackgroundTimeLeft) -> Result<Answer, NightbellError> {
        switch answer.left {
        case .remainingMs(let milliseconds): .success(.time(.limited(.wireMilliseconds(milliseconds))))
        case .unlimited(true): .success(.time(.unlimited))
        case .unlimited(false), nil:
            .failure(NightbellError(.malformedAnswer, "a background time that is neither limited nor not"))
        }
    }

    private mutating func adopted(
        _ new: [NewSocket], _ adoptions: [WireHandedOver.Adoption]
    ) -> Result<Answer, NightbellError> {
        var results: [Result<ParkedSocket, NightbellError>] = []
        for (socket, adoption) in zip(new, adoptions) {
            switch adoption.result {
            case .token(let token): results.append(.success(holdings.park(socket, token: token)))
            case .error(let error): results.append(.failure(NightbellError(error)))
            case nil: return .failure(NightbellError(.malformedAnswer, "an adoption without a result"))
            }
        }
        return .success(.sockets(results))
    }

    /// An answer came after its caller had given up: release whatever it granted, because no caller knows of
    /// it.
    private mutating func giveBack(
        _ request: Request, _ body: WireSupervisorMessage.OneOf_Body?
    ) -> [Action] {
        switch (request, body) {
        case (.handOver, .handedOver(let answer)):
            answer.adoptions.compactMap { adoption in
                if case .token(let token)? = adoption.result { .send(.release(token: token)) } else { nil }
            }
        case (.beginTask, .backgroundTask(let answer)) where answer.taskID != 0:
            [.send(.endTask(answer.taskID))]
        case (.release(let socket), .done):
            forget(socket)
        default:
            []
        }
    }

    /// An answer came twice: release what only the second one grants.
    private func giveBackUnknown(_ body: WireSupervisorMessage.OneOf_Body?) -> [Action] {
        switch body {
        case .handedOver(let answer):
            return answer.adoptions.compactMap { adoption in
                guard case .token(let token)? = adoption.result, holdings.socket(of: token) == nil else {
                    return nil
                }
                return .send(.release(token: token))
            }
        case .backgroundTask(let answer) where answer.taskID != 0:
            let isKnown = holdings.tasks.values.contains { $0.wireID == answer.taskID }
            return isKnown ? [] : [.send(.endTask(answer.taskID))]
        default:
            return []
        }
    }

    // MARK: Asking again

    /// Another worker has taken over this connection. Requests that were not sent or not certainly answered
    /// are sent again, and messages without an answer are repeated.
    package mutating func repeatUnanswered(_ restarted: WireSupervisorRestarted) -> [Action] {
        hasRestarted = true
        var again: [Repetition] = []
        if case .restoring(let restoration) = phase,
            case .send(let message, let descriptors) = send(restoration.current, number: restoration.number)
        {
            again.append(Repetition(message: message, descriptors: descriptors))
        }
        for (number, request) in requests.waiting {
            again.append(
                Repetition(message: message(for: request, number: number), descriptors: request.descriptors))
        }
        if holdings.ground == .background {
            again.append(Repetition(message: WireClientMessage(.backgroundEntered(.init()))))
        }
        for index in again.indices { again[index].message.isRepeated = true }
        let noted = WireClientMessage(.restartNoted(.with { $0.restart = restarted.restart }))
        return [.sendAgain(again, then: noted)]
    }

    private mutating func forget(_ socket: ParkedSocket) -> [Action] {
        holdings.remove(socket.id)
        return []
    }
}

extension WireErrorCode {
    /// The schema keeps the numbers below 32 for errors that close the connection.
    package var endsConnection: Bool { rawValue < 32 }
}

extension Duration {
    /// Durations from the wire may be of any length.
    package static func wireMilliseconds(_ value: UInt64) -> Duration {
        .milliseconds(Int64(clamping: value))
    }

    package static func wireNanoseconds(_ value: UInt64) -> Duration {
        .nanoseconds(Int64(clamping: value))
    }

    /// Nanoseconds, clamped to the range.
    var wholeNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        guard seconds < Int64.max / 2_000_000_000 else { return .max / 2 }
        return max(0, seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
}

extension String {
    package var withoutFullStop: String { hasSuffix(".") ? String(dropLast()) : self }
}
