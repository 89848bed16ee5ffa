package import NightbellCore

/// The texts of events and actions in a trace.
package enum TraceFormat {
    package static func name(_ client: ClientID) -> String {
        "client \(client.slot)#\(client.rawValue >> 32)"
    }

    package static func name(_ token: SocketToken) -> String {
        "socket \(token.slot)#\(token.rawValue >> 32)"
    }

    /// Seconds since the beginning of the world, to the microsecond.
    package static func time(_ instant: Instant) -> String {
        words(.nanoseconds(instant.nanoseconds - 1_000_000_000_000))
    }

    package static func words(_ duration: Duration) -> String {
        let microseconds = duration.nanoseconds / 1_000
        let fraction = String(abs(microseconds) % 1_000_000)
        let padding = String(repeating: "0", count: 6 - fraction.count)
        return "\(microseconds / 1_000_000).\(padding)\(fraction) s"
    }

    static func words(_ conditions: Conditions) -> String {
        let names: [(Conditions, String)] = [
            (.readable, "readable"), (.peerClosed, "peer closed"), (.hangUp, "hang-up"), (.error, "error"),
            (.unanswered, "unanswered"), (.flooded, "flooded"), (.unanswerable, "unanswerable"),
            (.pathLost, "path lost"),
        ]
        let present = names.filter { conditions.contains($0.0) }.map(\.1)
        return present.isEmpty ? "nothing" : present.joined(separator: ", ")
    }

    static func words(_ reasons: WakeReasons) -> String {
        let names: [(WakeReasons, String)] = [
            (.socket, "socket"), (.keepAlive, "keep-alive"), (.request, "request"),
            (.clientMessage, "its own message"), (.supervisorStopping, "supervisor stops"),
            (.launched, "launched"), (.relaunched, "launched again"),
            (.unanswered, "no answer"), (.pathLost, "path lost"), (.fetch, "fetch"),
            (.networkChanged, "network changed"), (.location, "location"), (.device, "device"),
            (.bluetooth, "Bluetooth"), (.transfer, "transfer"), (.push, "push"),
            (.notification, "notification"),
        ]
        return names.filter { reasons.contains($0.0) }.map(\.1).joined(separator: ", ")
    }

    package static func words(_ event: Event) -> String {
        switch event {
        case .registration(let registration, _):
            "\(registration.identifier) of uid \(registration.user) registers"
        case .message(let message, let client, _): "\(name(client)) says \(words(message))"
        case .command(let command, let client, _): "an administrator asks to \(command) \(name(client))"
        case .simulate(let occurrence, let observation, let client, _):
            "an administrator simulates for \(observation) of \(name(client)): \(occurrence)"
        case .fired(let token, let conditions): "\(name(token)) fired: \(words(conditions))"
        case .thawedEarly(let token, let conditions): "\(name(token)) thawed its owner: \(words(conditions))"
        case .inspected(let token, let inspection):
            "\(name(token)) was inspected: \(inspection.noise) pieces of noise, then \(inspection.rest)"
        case .offloadBegan(let token, let terms, let isAwaitingAnswer):
            "\(name(token)) is offloaded" + (terms.map { ", pings every \(words($0.latest))" } ?? "")
                + (isAwaitingAnswer ? ", an answer is pending" : "")
        case .pingFailed(let token): "no ping could be sent on \(name(token))"
        case .delegatedStateLost(let token): "the delegated state of \(name(token)) is lost"
        case .pingOmitted(let token): "no ping was due on \(name(token))"
        case .answerLookedFor(let token): "\(name(token)) was checked for an answer"
        case .frozen(let client, let epoch): "\(name(client)) is frozen, epoch \(epoch)"
        case .notFrozenYet(let client, let epoch): "\(name(client)) is not frozen yet, epoch \(epoch)"
        case .freezeFailed(let client, let epoch): "\(name(client)) cannot be frozen, epoch \(epoch)"
        case .foundRunning(let client): "\(name(client)) is found running"
        case .gone(let client): "\(name(client)) is gone"
        case .ended(let client, let ending): "the process of \(name(client)) has \(ending)"
        case .rejoined(let client, let registration, _):
            "\(name(client)) reconnects as \(registration.identifier)"
        case .launch(let registration, let key):
            "\(registration.identifier) is to be launched " + (key == nil ? "from the start" : "on request")
        case .declare(let registration, _, _): "something has come for \(registration.identifier)"
        case .quitAbsent(let identifier, _): "an administrator quits \(identifier), which is not back yet"
        case .disown(let identifier, _): "an administrator asks to forget \(identifier)"
        case .memoryPressure(let sizes): "memory is short, with \(sizes.count) sizes"
        case .fact(let fact): words(fact)
        case .pathsInspected(let client, let broken):
            "\(name(client)) was inspected: "
                + broken.map { "\(name($0.token)) \($0.reason)" }.joined(separator: ", ")
        case .machineSlept(let total): "the machine has slept for \(words(total)) in all"
        case .stop: "the supervisor stops"
        case .timer: "the timer fires"
        }
    }

    static func words(_ fact: Fact) -> String {
        switch fact {
        case .network(let network):
            network.map {
                "the network is \($0.fingerprint), \($0.isUp ? "up" : "down"), change \($0.generation)"
            } ?? "the network is unknown"
        case .power(let isOnBattery, let isLow):
            (isOnBattery.map { $0 ? "the machine runs on battery" : "the machine has power" }
                ?? "the power supply is unknown") + (isLow == true ? ", the battery is low" : "")
        case .sleepImminent(let isDelayed):
            "the machine is about to sleep" + (isDelayed ? " and waits" : "")
        case .resumed: "the machine is awake"
        case .wallClock(let offset): "local time is elapsed time plus \(words(offset))"
        case .shortage(let isShort): isShort ? "memory or processors are short" : "there is no shortage"
        case .unlocked(.unknown): "unlocked users are unknown"
        case .unlocked(.unavailable): "unlocked users cannot be known"
        case .unlocked(.known(let users)): "unlocked users: \(users.sorted())"
        case .position(let position):
            position.map { "the machine is at \($0.latitude), \($0.longitude)" } ?? "its position is unknown"
        case .bluetooth(let devices): "Bluetooth devices: \(words(devices))"
        case .characteristic(let path, let value): "\(path) has notified \(value.count) bytes"
        case .pushServiceChanged: "another push service"
        case .pushes(let waiting):
            "pushes \(waiting.number) for \(waiting.client): \(waiting.urgency.map { "\($0)" } ?? "none")"
        case .transfers(let ended):
            "transfers \(ended.session) of \(ended.client) are finished (\(ended.number))"
                + (ended.mayWait ? ", which can wait" : "")
        case .discretionaryTransfers(let user, let waits):
            "transfers of uid \(user) " + (waits ? "wait" : "do not wait") + " for a good moment"
        case .accessories(let accessories): "accessories: \(words(accessories))"
        case .clock(let clock):
            "UTC is elapsed time plus \(words(clock.utc)), local time that plus \(words(clock.zone))"
                + (clock.change.map { ", plus \(words($0.zone)) from \($0.at) ns on" } ?? "")
        case .notifications(let user, let fact): "notifications of uid \(user): \(fact)"
        case .media(let user, .unknown): "the media of uid \(user) is unknown"
        case .media(let user, .unavailable): "the media of uid \(user) cannot be known"
        case .media(let user, .known(let media)):
            "the media of uid \(user): streams "
                + (media.streaming?.map(name).joined(separator: ", ") ?? "unknown")
                + "; players " + media.playing.map(name).joined(separator: ", ")
        }
    }

    private static func words(_ devices: [String: Presence]) -> String {
        devices.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
    }

    static func words(_ message: ClientMessage) -> String {
        switch message {
        case .handOver(let offers): "handOver of \(offers.count)"
        case .release(let token): "release \(name(token))"
        case .enterBackground: "enterBackground"
        case .backgroundEntered: "backgroundEntered"
        case .enterForeground: "enterForeground"
        case .setKeepAliveTimeout(let timeout): "setKeepAliveTimeout \(words(timeout))"
        case .clearKeepAliveTimeout: "clearKeepAliveTimeout"
        case .setMinimumFetchInterval(let interval): "setMinimumFetchInterval \(interval)"
        case .fetchDone(let wakeID, let result): "fetchDone \(wakeID): \(result)"
        case .pushDone(let wakeID, let result): "pushDone \(wakeID): \(result)"
        case .observe(let name, let subject): "observe \(name): \(subject)"
        case .stopObserving(let name): "stopObserving \(name)"
        case .schedule(let notification): "schedule \(notification.identifier), \(notification.trigger)"
        case .cancelNotifications: "cancelNotifications"
        case .setBadge(let count): "setBadge \(count)"
        case .beginBackgroundTask: "beginBackgroundTask"
        case .endBackgroundTask(let task): "endBackgroundTask \(task)"
        case .backgroundTimeRemaining: "backgroundTimeRemaining"
        case .mediaActivity: "mediaActivity"
        case .restartNoted: "restartNoted"
        case .readyToSuspend(let epoch, let notIdle):
            "readyToSuspend epoch \(epoch), \(notIdle.count) not idle"
        case .wakeDone(let wakeID): "wakeDone \(wakeID)"
        case .saveState(let byteCount): "saveState of \(byteCount) bytes"
        case .hibernate: "hibernate"
        }
    }

    /// `nil` if another line of the trace says the same.
    static func words(_ action: Action, in buffer: ActionBuffer) -> String? {
        switch action {
        case .registered(let client, _): "\(name(client)) is admitted"
        case .refuseRegistration(let refusal, _): "not admitted: \(refusal)"
        case .answer(let answer, let client, _): "answer to \(name(client)): \(answer)"
        case .handedOver(let range, let client, _):
            "answer to \(name(client)): " + buffer.adoptions[range].map(words).joined(separator: ", ")
        case .commandAnswer(let refusal, _):
            "answer to the administrator: " + words(refusal)
        case .notify(let client, let notice): "notify \(name(client)): \(words(notice, in: buffer))"
        case .arm(let token): "arm \(name(token))"
        case .armPastEnd(let token): "arm \(name(token)) for bytes only"
        case .inspectPaths(let client): "inspect the sockets of \(name(client))"
        case .beginOffload(let token): "begin to offload \(name(token))"
        case .endOffload(let token): "stop offloading \(name(token))"
        case .ping(let token, let again): "ping on \(name(token))" + (again ? " once more" : "")
        case .lookForAnswer(let token): "check for an answer on \(name(token))"
        case .close(let token, _): "close \(name(token))"
        case .freeze(let client, let epoch): "freeze \(name(client)), epoch \(epoch)"
        case .checkFreeze(let client, _): "check the freeze of \(name(client))"
        case .thaw(let client): "thaw \(name(client))"
        case .kill(let client, let reason): "kill \(name(client)): \(reason)"
        case .makeDormant(let client): "make dormant \(name(client))"
        case .launch(let client): "launch \(name(client))"
        case .rejoined(let client, _): "\(name(client)) is admitted again"
        case .declared(let client): "\(name(client)) is declared"
        case .storeState(let client): "keep the state of \(name(client))"
        case .dropState(let client): "drop the state of \(name(client))"
        case .forget(let client, _, _): "forget \(name(client))"
        case .trace(let client, .state(let old, let new)): "\(name(client)): \(old) → \(new)"
        case .trace(let client, .overran(let step)): "\(name(client)) overran: \(step)"
        case .trace: nil
        }
    }

    static func words(_ refusal: Refusal?) -> String { refusal.map { "\($0)" } ?? "done" }

    private static func words(_ adoption: Result<SocketToken, Refusal>) -> String {
        switch adoption {
        case .success(let token): name(token)
        case .failure(let refusal): "refused: \(refusal)"
        }
    }

    private static func words(_ notice: Notice, in buffer: ActionBuffer) -> String {
        switch notice {
        case .didEnterBackground(let budget): "didEnterBackground, \(words(budget))"
        case .prepareToSuspend(let epoch, let budget): "prepareToSuspend epoch \(epoch), \(words(budget))"
        case .suspendCancelled(let epoch): "suspendCancelled epoch \(epoch)"
        case .suspended(let epoch): "suspended epoch \(epoch)"
        case .backgroundTimeExpiring(let remaining): "backgroundTimeExpiring, \(words(remaining))"
        case .willTerminate(let budget, let reason): "willTerminate, \(words(budget)): \(reason)"
        case .wake(let wake):
            buffer.firedSockets[wake.sockets].reduce("wake \(wake.wakeID): \(words(wake.reasons))") {
                "\($0); \(name($1.token)) \(words($1.conditions))"
            }
        }
    }

    /// The counters that differ between two sets.
    static func difference(_ recorded: Counters, _ happened: Counters, of owner: String) -> String {
        var differences = Counter.allCases.filter { recorded[$0] != happened[$0] }.map {
            "\($0) of \(owner): \(recorded[$0]) recorded, \(happened[$0]) happened"
        }
        if recorded.asleepNanoseconds != happened.asleepNanoseconds {
            differences.append(
                "time asleep of \(owner): \(recorded.asleepNanoseconds) ns recorded, "
                    + "\(happened.asleepNanoseconds) ns happened")
        }
        return differences.joined(separator: "; ")
    }
}
