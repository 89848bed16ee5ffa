import NightbellCore
import Testing

/// A client that may be called is never left without something that brings it back.
@Suite struct ReachabilityTests {
    private func launched(_ actions: [Action]) -> [ClientID] {
        actions.compactMap { if case .launch(let client) = $0 { client } else { nil } }
    }

    @discardableResult
    private func rejoin(_ bench: inout Bench, _ client: ClientID, modes: Modes = .voip) throws -> [Wake] {
        let identifier = try #require(bench.core.identifier(of: client))
        var registration = Registration(identifier: identifier, user: 1_000, modes: modes)
        registration.isLaunchable = true
        return bench.turn(.rejoined(client, registration, Bench.key)).wakes
    }

    /// A declared client with a process that has just registered.
    private func declared(_ bench: inout Bench, modes: Modes = .voip) throws -> ClientID {
        let identifier = try #require(ClientIdentifier("declared"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: modes)
        registration.isLaunchable = true
        let client = try #require(launched(bench.turn(.launch(registration, nil))).first)
        #expect(try rejoin(&bench, client, modes: modes).map(\.reasons) == [.launched])
        return client
    }

    private func view(_ bench: Bench, _ client: ClientID) throws -> ClientView {
        try #require(bench.core.view(of: client, at: bench.now))
    }

    // MARK: Memory pressure

    /// Something that a client loses with its process.
    enum Loss: CaseIterable {
        case socket, oneOfTwoSockets, keepAlive, observation, everything
    }

    @Test(arguments: Loss.allCases)
    func aClientMadeUnreachableByMemoryPressureIsLaunchedAfterIt(_ loss: Loss) throws {
        var bench = Bench()
        let client = try bench.register(modes: [.voip, .location], isLaunchable: true)
        switch loss {
        case .socket: _ = try bench.handOver(from: client)
        case .oneOfTwoSockets:
            _ = try bench.handOver(from: client)
            _ = try bench.handOver(from: client, survives: true)
        case .keepAlive:
            _ = try bench.handOver(from: client, survives: true)
            bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        case .observation:
            _ = try bench.handOver(from: client, survives: true)
            bench.say(.observe(name: "track", .location(LocationService(.continuous))), from: client)
            #expect(bench.answer == .done)
        case .everything: break
        }
        bench.suspend(client)
        #expect(bench.turn(.memoryPressure([ClientSize(client, bytes: 1)])).kills == [.memoryPressure])
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.seconds(30) - .nanoseconds(1))).isEmpty)
        #expect(launched(bench.pass(.nanoseconds(1))) == [client])
        #expect(try rejoin(&bench, client).map(\.reasons) == [.relaunched])
        #expect(bench.counters(client)[.crashes] == 0)
    }

    /// A listening socket needs no mode.
    @Test func aClientWithoutModesThatLosesASocketToMemoryPressureIsLaunchedAfterIt() throws {
        var bench = Bench()
        let client = try bench.register(modes: [], isLaunchable: true)
        let listener = SocketOffer(tag: .listener, isListening: true, isConnected: false)
        let adoption = bench.handOver(listener, from: client)
        _ = try #require(adoption).get()
        bench.suspend(client)
        #expect(bench.turn(.memoryPressure([ClientSize(client, bytes: 1)])).kills == [.memoryPressure])
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.seconds(30))) == [client])
        #expect(try rejoin(&bench, client, modes: []).map(\.reasons) == [.relaunched])
    }

    @Test func aClientStillReachableAfterMemoryPressureRestsUntilItIsCalled() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        let socket = try bench.handOver(from: client, survives: true)
        bench.suspend(client)
        bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.seconds(3_600))).isEmpty)
        #expect(try !view(bench, client).isOutOfReach)
        #expect(launched(bench.turn(.fired(socket, .readable))) == [client])
    }

    @Test func aClientMadeUnreachableIsLaunchedThoughThePressureGoesOn() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.suspend(client)
        #expect(bench.turn(.memoryPressure([ClientSize(client, bytes: 1)])).kills == [.memoryPressure])
        let end = bench.now
        bench.turn(.ended(client, .failed))
        var launches: [ClientID] = []
        while launches.isEmpty, bench.now < end + .seconds(600) {
            launches = launched(bench.pass(.seconds(2)) + bench.turn(.memoryPressure([])))
        }
        #expect(bench.now == end + .seconds(30))
    }

    /// They would be launched again soon, and use their memory once more.
    @Test func thoseThatLoseReachAreEndedAfterAllOthers() throws {
        var bench = Bench { $0.memoryPressure.endsAtOnce = 2 }
        let clients = try (0..<3).map { _ in try bench.register(isLaunchable: true) }
        for client in clients {
            _ = try bench.handOver(from: client, survives: client != clients[1])
            bench.suspend(client)
        }
        bench.turn(.memoryPressure(clients.enumerated().map { ClientSize($1, bytes: $0) }))
        #expect(clients.map { bench.core.state(of: $0) } == [.terminating, .suspended, .terminating])
    }

    @Test func aHibernatingClientThatNothingLaunchesIsReportedAsOutOfReach() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.say(.hibernate, from: client)
        bench.suspend(client)
        #expect(bench.core.state(of: client) == .terminating)
        #expect(bench.turn(.ended(client, .failed)).contains(.trace(client, .outOfReach)))
        #expect(try view(bench, client).isOutOfReach)
    }

    @Test func aCallDoesNotWaitForTheEndOfMemoryPressure() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        let socket = try bench.handOver(from: client, survives: true)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.suspend(client)
        bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(launched(bench.turn(.fired(socket, .readable))) == [client])
        #expect(try rejoin(&bench, client).map(\.reasons) == [[.socket, .relaunched]])
    }

    // MARK: Other ends

    @Test(arguments: [false, true])
    func aClientThatOverrunsItsTasksComesBackAfterAPause(_ survives: Bool) throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        _ = try bench.handOver(from: client, survives: survives)
        _ = try bench.beginTask(client)
        bench.say(.enterBackground, from: client)
        #expect(bench.pass(.seconds(180)).kills == [.backgroundTasksOverran])
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.milliseconds(250) - .nanoseconds(1))).isEmpty)
        #expect(launched(bench.pass(.nanoseconds(1))) == [client])
        #expect(try rejoin(&bench, client).map(\.reasons) == [.relaunched])
        #expect(bench.counters(client)[.crashes] == 1)
    }

    @Test func aClientWokenTooOftenComesBackLaterAndLater() throws {
        var bench = Bench {
            $0.wakes.limit = 1
            $0.wakes.linger = .seconds(1)
            $0.wakes.lingerMaximum = .seconds(4)
        }
        let client = try bench.register(policy: .terminate, isLaunchable: true)
        var socket = try bench.handOver(from: client)
        bench.suspend(client)
        bench.turn(.fired(socket, .readable))
        for pause in [2, 4, 4] as [Int64] {
            bench.suspend(client)
            #expect(bench.turn(.fired(socket, .readable)).kills == [.tooManyWakes])
            bench.turn(.ended(client, .failed))
            #expect(launched(bench.pass(.seconds(pause) - .nanoseconds(1))).isEmpty)
            #expect(launched(bench.pass(.nanoseconds(1))) == [client])
            let identifier = try #require(bench.core.identifier(of: client))
            var registration = Registration(
                identifier: identifier, user: 1_000, modes: .voip, wakeLimitPolicy: .terminate)
            registration.isLaunchable = true
            let wakes = bench.turn(.rejoined(client, registration, Bench.key)).wakes
            #expect(wakes.map(\.reasons) == [.relaunched])
            socket = try bench.handOver(from: client)
        }
        #expect(bench.counters(client)[.crashes] == 0, "its peers must not have it given up")
    }

    @Test func trafficDoesNotShortenThePauseOfAClientWokenTooOften() throws {
        var bench = Bench { $0.wakes.limit = 1 }
        let client = try bench.register(modes: .externalAccessory, policy: .terminate, isLaunchable: true)
        var offer = SocketOffer(tag: .device)
        offer.survives = true
        let socket = try #require(try bench.handOver(offer, from: client)?.get())
        bench.suspend(client)
        bench.turn(.fired(socket, .readable))
        bench.suspend(client)
        #expect(bench.turn(.fired(socket, .readable)).kills == [.tooManyWakes])
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.turn(.fired(socket, .readable))).isEmpty)
        #expect(launched(bench.pass(.seconds(1) - .nanoseconds(1))).isEmpty)
        #expect(launched(bench.pass(.nanoseconds(1))) == [client])
    }

    // MARK: Setting up

    @Test func aLaunchedClientIsLeftAwakeUntilSomethingCouldWakeIt() throws {
        for setsKeepAlive in [false, true] {
            var bench = Bench()
            let client = try declared(&bench)
            bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
            bench.pass(.seconds(15))
            #expect(bench.core.state(of: client) == .background)
            #expect(try view(bench, client).holds == .settingUp)
            if setsKeepAlive {
                bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
            } else {
                _ = try bench.handOver(from: client)
            }
            bench.pass(.milliseconds(500) - .nanoseconds(1))
            #expect(bench.core.state(of: client) == .background, "it tells its peer")
            bench.pass(.nanoseconds(1))
            #expect(bench.core.state(of: client) == .suspending)
        }
    }

    @Test(arguments: [Modes.voip, .audio])
    func afterTheLaunchBudgetItSleepsAndIsShownAsOutOfReach(_ modes: Modes) throws {
        var bench = Bench()
        let client = try declared(&bench, modes: modes)
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.pass(.seconds(20) - .nanoseconds(1))
        #expect(bench.core.state(of: client) == .background)
        bench.pass(.nanoseconds(1))
        #expect(bench.core.state(of: client) == .suspending)
        #expect(try !view(bench, client).isOutOfReach)
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        #expect(bench.turn(.frozen(client, epoch: bench.lastEpoch)).contains(.trace(client, .outOfReach)))
        #expect(try view(bench, client).isOutOfReach)
        bench.command(.wake, client)
        #expect(try !view(bench, client).isOutOfReach)
    }

    @Test func aSocketThatHasEndedWakesNothing() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        let socket = try bench.handOver(from: client, survives: true)
        bench.turn(.ended(client, .failed))
        bench.turn(.fired(socket, .peerClosed))
        #expect(launched(bench.pass(.milliseconds(250))) == [client])
        #expect(try rejoin(&bench, client).map(\.reasons) == [[.socket, .relaunched]])
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.pass(.seconds(19))
        #expect(bench.core.state(of: client) == .background, "it connects again")
        _ = try bench.handOver(from: client, survives: true)
        bench.pass(.milliseconds(500))
        #expect(bench.core.state(of: client) == .suspending)
    }

    /// The next writer of a FIFO opens it again.
    @Test func aDeviceThatHasEndedMayWake() throws {
        var bench = Bench()
        let client = try bench.register(modes: [.voip, .externalAccessory])
        let offered = bench.handOver(SocketOffer(tag: .device), from: client)
        let fifo = try #require(try offered?.get())
        bench.suspend(client)
        bench.turn(.fired(fifo, .hangUp))
        bench.suspend(client)
        #expect(try !view(bench, client).isOutOfReach)
        #expect(bench.turn(.fired(fifo, .readable)).wakes.count == 1)
    }

    @Test func aClientToldToSleepSleeps() throws {
        for way in 0..<3 {
            var bench = Bench()
            let client = try declared(&bench)
            bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
            bench.pass(.seconds(1))
            switch way {
            case 0: bench.command(.suspend, client)
            case 1: bench.say(.hibernate, from: client)
            default:
                bench.say(.enterForeground, from: client)
                bench.say(.enterBackground, from: client)
                bench.say(.backgroundEntered, from: client)
            }
            #expect(bench.core.state(of: client) == .suspending)
        }
    }

    @Test func aClientThatExitedByItselfIsShown() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        bench.say(.hibernate, from: client)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.ended(client, .failed))
        #expect(bench.core.state(of: client) == .dormant)
        #expect(try view(bench, client).isOutOfReach)
    }
}
