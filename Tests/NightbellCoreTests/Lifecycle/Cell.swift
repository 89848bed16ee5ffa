import NightbellCore

/// Every state of a client with its sub-phases: the columns of the transition table.
enum Phase: String, CaseIterable {
    case gone
    case inactive
    case active
    case entering
    case openWake
    case lingering
    case heldByTask
    case heldByMedia
    case preparing
    case freezing
    case suspended
    case noticed
    case killed
    // Without a process.
    case resting
    case pausing
    case queued
    case launching
}

/// Everything that can happen to a client: the rows.
enum Happening: String, CaseIterable {
    // Messages from clients.
    case handOver, releaseOwn, releaseStale
    case enterBackground, backgroundEntered, enterForeground
    case setKeepAlive, setKeepAliveTooShort, clearKeepAlive
    case beginTask, endTask, endUnknownTask, timeRemaining, media
    case observe, stopObserving, schedule, cancelNotifications, setBadge
    case ready, readyStale, readyNotIdle
    case wakeDone, wakeDoneStale
    // Commands from administrators.
    case wake, suspend, quit
    // Reports from the kernel.
    case readable, peerClosed, hangUp, error, nothing
    case frozen, frozenStale, notFrozenYet, notFrozenYetStale, freezeFailed, freezeFailedStale
    case foundRunning
    case exit
    case endedWell, endedBadly, rejoin
    // Launch and hibernation.
    case saveState, hibernate, launch, declare, disown, memoryPressure
    // The machine around the clients.
    case anotherNetwork, pathBroken, pathsWhole, aboutToSleep, unlocked
    case simulateNetworkChange, simulateSleep, simulateUnlock
    // Events for all clients.
    case timer, stop, registerAgain
}

/// A client in a phase, with one socket that is still armed if the client has slept before.
struct Cell {
    var bench = Bench()
    let client: ClientID
    let socket: SocketToken
    private var task: UInt64 = 1

    init(_ phase: Phase) throws {
        bench.turn(.fact(.network(NetworkFact(fingerprint: 1, isUp: true))))
        client = try bench.register(
            "the.client", modes: [.voip, .audio, .externalAccessory], isLaunchable: true,
            wantsNetworkChanges: true)
        socket = try bench.handOver(from: client, survives: true)
        try go(to: phase)
    }

    private mutating func go(to phase: Phase) throws {
        switch phase {
        case .inactive:
            break
        case .gone:
            bench.turn(.gone(client))
        case .suspended:
            bench.suspend(client)
        case .openWake:
            try go(to: .suspended)
            bench.command(.wake, client)
        case .active:
            try go(to: .openWake)
            bench.say(.enterForeground, from: client)
        case .entering:
            try go(to: .active)
            bench.say(.enterBackground, from: client)
        case .lingering:
            try go(to: .openWake)
            bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        case .heldByTask:
            try go(to: .lingering)
            task = try bench.beginTask(client)
            bench.pass(.seconds(1))
        case .heldByMedia:
            try go(to: .lingering)
            bench.say(.mediaActivity, from: client)
            bench.pass(.seconds(1))
        case .preparing:
            try go(to: .lingering)
            bench.pass(.seconds(1))
        case .freezing:
            try go(to: .preparing)
            bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        case .noticed:
            try go(to: .active)
            bench.command(.quit, client)
        case .killed:
            try go(to: .suspended)
            bench.command(.quit, client)
        case .resting:
            try go(to: .suspended)
            bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
            bench.turn(.ended(client, .failed))
        case .pausing:
            try go(to: .active)
            bench.turn(.ended(client, .failed))
        case .queued:
            // Under memory pressure, no client is launched that no request waits for.
            try go(to: .pausing)
            bench.turn(.memoryPressure([]))
            bench.pass(.seconds(1))
        case .launching:
            try go(to: .resting)
            bench.command(.launch, client)
        }
    }

    mutating func event(_ happening: Happening) -> Event {
        switch happening {
        case .handOver: said(.handOver([SocketOffer(tag: .voip), SocketOffer(tag: .voip)]))
        case .releaseOwn: said(.release(socket))
        case .releaseStale: said(.release(SocketToken(rawValue: socket.rawValue ^ 1 << 40)))
        case .enterBackground: said(.enterBackground)
        case .backgroundEntered: said(.backgroundEntered)
        case .enterForeground: said(.enterForeground)
        case .setKeepAlive: said(.setKeepAliveTimeout(.seconds(600)))
        case .setKeepAliveTooShort: said(.setKeepAliveTimeout(.seconds(600) - .nanoseconds(1)))
        case .clearKeepAlive: said(.clearKeepAliveTimeout)
        case .beginTask: said(.beginBackgroundTask(name: "call"))
        case .endTask: said(.endBackgroundTask(task))
        case .endUnknownTask: said(.endBackgroundTask(99))
        case .timeRemaining: said(.backgroundTimeRemaining)
        case .media: said(.mediaActivity)
        case .observe: said(.observe(name: "reader", .accessory("/dev/reader")))
        case .stopObserving: said(.stopObserving(name: "reader"))
        case .schedule:
            said(.schedule(LocalNotification("tea", NotificationContent(title: "Tea"), .time(.max))))
        case .cancelNotifications: said(.cancelNotifications(nil))
        case .setBadge: said(.setBadge(3))
        case .ready: said(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []))
        case .readyStale: said(.readyToSuspend(epoch: bench.lastEpoch &- 1, notIdle: []))
        case .readyNotIdle: said(.readyToSuspend(epoch: bench.lastEpoch, notIdle: [socket]))
        case .wakeDone: said(.wakeDone(wakeID: bench.lastWakeID))
        case .wakeDoneStale: said(.wakeDone(wakeID: 0))
        case .wake: .command(.wake, client, Bench.key)
        case .suspend: .command(.suspend, client, Bench.key)
        case .quit: .command(.quit, client, Bench.key)
        case .readable: .fired(socket, .readable)
        case .peerClosed: .fired(socket, [.readable, .peerClosed])
        case .hangUp: .fired(socket, .hangUp)
        case .error: .fired(socket, .error)
        case .nothing: .fired(socket, [])
        case .frozen: .frozen(client, epoch: bench.lastEpoch)
        case .frozenStale: .frozen(client, epoch: bench.lastEpoch &- 1)
        case .notFrozenYet: .notFrozenYet(client, epoch: bench.lastEpoch)
        case .notFrozenYetStale: .notFrozenYet(client, epoch: bench.lastEpoch &- 1)
        case .freezeFailed: .freezeFailed(client, epoch: bench.lastEpoch)
        case .freezeFailedStale: .freezeFailed(client, epoch: bench.lastEpoch &- 1)
        case .foundRunning: .foundRunning(client)
        case .exit: .gone(client)
        case .endedWell: .ended(client, .succeeded)
        case .endedBadly: .ended(client, .failed)
        case .rejoin: rejoining
        case .saveState: said(.saveState(byteCount: 1_000))
        case .hibernate: said(.hibernate)
        case .launch: .command(.launch, client, Bench.key)
        case .declare: declaration
        case .disown: disowning
        case .memoryPressure: .memoryPressure([ClientSize(client, bytes: 1)])
        case .anotherNetwork: .fact(.network(Self.otherNetwork))
        case .pathBroken: inspected([BrokenPath(socket, .addressGone)])
        case .pathsWhole: inspected([])
        case .aboutToSleep: .fact(.sleepImminent(isDelayed: true))
        case .unlocked: .fact(.unlocked(.known([1_000])))
        case .simulateNetworkChange: .command(.simulateNetworkChange, client, Bench.key)
        case .simulateSleep: .command(.simulateSleep, client, Bench.key)
        case .simulateUnlock: .command(.simulateUnlock, client, Bench.key)
        case .timer: .timer
        case .stop: .stop
        case .registerAgain: registration
        }
    }

    /// Feeds the event, and returns its outcome. The timer is served at the deadline, if there is one.
    mutating func happens(_ happening: Happening) -> String {
        if happening == .timer { bench.now = bench.core.nextDeadline ?? bench.now + .seconds(3_600) }
        let before = phase(of: client, in: bench)
        bench.turn(event(happening))
        return outcome(of: client, before: before, in: bench)
    }

    private static let otherNetwork = NetworkFact(fingerprint: 2, isUp: true)

    /// The outcome of an inspection that another network has led to.
    private mutating func inspected(_ broken: [BrokenPath]) -> Event {
        bench.turn(.fact(.network(Self.otherNetwork)))
        return .pathsInspected(client, broken)
    }

    private func said(_ message: ClientMessage) -> Event {
        .message(message, from: client, Bench.key)
    }

    private var theClient: Registration? {
        guard let identifier = ClientIdentifier("the.client") else { return nil }
        var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
        registration.isLaunchable = true
        return registration
    }

    private var registration: Event { theClient.map { .registration($0, Bench.key) } ?? .timer }
    private var rejoining: Event { theClient.map { .rejoined(client, $0, Bench.key) } ?? .timer }
    private var declaration: Event { theClient.map { .launch($0, Bench.key) } ?? .timer }
    private var disowning: Event { theClient.map { .disown($0.identifier, Bench.key) } ?? .timer }
}
