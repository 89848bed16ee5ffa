import NightbellCore
import Testing

@Suite("Launching and relaunching")
struct LaunchTests {
    /// A client that runs and can be launched, with a socket that survives.
    private func phone(_ bench: inout Bench, _ name: String? = nil) throws -> (ClientID, SocketToken) {
        let client = try bench.register(name, isLaunchable: true)
        return (client, try bench.handOver(from: client, survives: true))
    }

    private func rejoin(_ bench: inout Bench, _ client: ClientID) throws -> [Wake] {
        let identifier = try #require(bench.core.identifier(of: client))
        var registration = Registration(identifier: identifier, user: 1_000, modes: [.voip, .audio])
        registration.isLaunchable = true
        return bench.turn(.rejoined(client, registration, Bench.key)).wakes
    }

    private func launched(_ actions: [Action]) -> [ClientID] {
        actions.compactMap { if case .launch(let client) = $0 { client } else { nil } }
    }

    // MARK: Crashes

    @Test("A client that crashes is launched again after doubling pauses, five times in a row")
    func pauses() throws {
        var bench = Bench()
        let (client, _) = try phone(&bench)
        bench.turn(.ended(client, .failed))
        for crash in 0..<5 {
            let pause = Duration.milliseconds(250 << crash)
            #expect(launched(bench.pass(pause - .nanoseconds(1))).isEmpty)
            #expect(launched(bench.pass(.nanoseconds(1))) == [client], "after crash \(crash)")
            #expect(try rejoin(&bench, client).map(\.reasons) == [.relaunched])
            #expect(bench.core.view(of: client, at: bench.now)?.launches.inRow == crash + 1)
            bench.turn(.ended(client, .failed))
        }
        #expect(bench.core.state(of: client) == .notRunning)
        #expect(bench.core.counters[.gaveUp] == 1 && bench.core.counters[.crashes] == 6)
        #expect(bench.core.socketCount == 0)
    }

    @Test("A program that is not there is tried again less and less often, and costs no relaunch")
    func missing() throws {
        var bench = Bench()
        let (client, _) = try phone(&bench)
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.milliseconds(250))) == [client])
        for pause in [10, 20, 40, 80, 160, 300, 300, 300] {
            bench.turn(.ended(client, .programMissing))
            #expect(launched(bench.pass(.seconds(pause) - .nanoseconds(1))).isEmpty)
            #expect(launched(bench.pass(.nanoseconds(1))) == [client])
        }
        #expect(bench.core.view(of: client, at: bench.now)?.launches.inRow == 1)
        #expect(bench.core.counters[.gaveUp] == 0 && bench.core.counters[.crashes] == 1)
        #expect(try rejoin(&bench, client).map(\.reasons) == [.relaunched])
        // It was there in between.
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.milliseconds(500))) == [client])
        bench.turn(.ended(client, .programMissing))
        #expect(launched(bench.pass(.seconds(10))) == [client])
    }

    @Test("Ten seconds of life are a success, and so is having slept")
    func success() throws {
        for isAsleep in [false, true] {
            var bench = Bench()
            let (client, _) = try phone(&bench)
            for _ in 0..<20 {
                if isAsleep { bench.suspend(client) } else { bench.pass(.seconds(10)) }
                bench.turn(.ended(client, .failed))
                #expect(launched(bench.pass(.milliseconds(250))) == [client])
                _ = try rejoin(&bench, client)
            }
            #expect(bench.core.counters[.gaveUp] == 0)
        }
    }

    @Test("A program that never says Hello, and ends after a long time, has not crashed at its start")
    func silent() throws {
        var bench = Bench()
        let identifier = try #require(ClientIdentifier("declared"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
        registration.isLaunchable = true
        #expect(launched(bench.turn(.launch(registration, nil))).count == 1)
        let client = try #require(bench.core.client(named: identifier))
        for _ in 0..<20 {
            bench.pass(bench.core.settings.launches.budget)
            #expect(bench.core.view(of: client, at: bench.now)?.launches.until == nil)
            bench.turn(.ended(client, .failed))
            #expect(launched(bench.pass(.milliseconds(250))) == [client])
        }
        #expect(bench.core.counters[.gaveUp] == 0)
    }

    @Test("Without the mode voip only traffic brings it back, and not before the pause is over")
    func trafficOnly() throws {
        var bench = Bench()
        let client = try bench.register(modes: .bluetoothCentral, isLaunchable: true)
        var offer = SocketOffer(tag: .device)
        offer.survives = true
        let socket = try #require(try bench.handOver(offer, from: client)?.get())
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.seconds(60))).isEmpty)
        #expect(launched(bench.turn(.fired(socket, .readable))) == [client])
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.turn(.fired(socket, .readable))).isEmpty)
        #expect(launched(bench.pass(.milliseconds(500))) == [client])
        let wakes = try rejoin(&bench, client)
        #expect(wakes.map(\.reasons) == [.socket])
        #expect(bench.actions.firedSockets.map(\.token) == [socket])
    }

    @Test("Without a surviving socket and without the mode voip, or without a recipe, it is forgotten")
    func forgotten() throws {
        var bench = Bench()
        let silent = try bench.register(modes: .externalAccessory, isLaunchable: true)
        _ = bench.handOver(SocketOffer(tag: .device), from: silent)
        bench.turn(.ended(silent, .failed))
        #expect(bench.core.state(of: silent) == .notRunning)
        let unknown = try bench.register()
        _ = try bench.handOver(from: unknown)
        bench.turn(.ended(unknown, .failed))
        #expect(bench.core.state(of: unknown) == .notRunning)
        var offer = SocketOffer(tag: .voip)
        offer.survives = true
        let other = try bench.register()
        #expect(bench.handOver(offer, from: other) == .failure(.cannotLaunch))
        #expect(bench.core.socketCount == 0)
    }

    @Test("Sockets that do not survive are closed with the process; the others are armed and wake once")
    func sockets() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true)
        let kept = try (0..<3).map { _ in try bench.handOver(from: client, survives: true) }
        let lost = try (0..<3).map { _ in try bench.handOver(from: client) }
        let actions = bench.turn(.ended(client, .failed))
        let closed = actions.compactMap { if case .close(let token, _) = $0 { token } else { nil } }
        let armed = actions.compactMap { if case .arm(let token) = $0 { token } else { nil } }
        #expect(closed.sorted { $0.rawValue < $1.rawValue } == lost && armed == kept)
        #expect(bench.core.survivors(of: client) == kept)
        for token in kept { bench.turn(.fired(token, .readable)) }
        bench.pass(.milliseconds(250))
        #expect(try rejoin(&bench, client).count == 1)
        #expect(bench.actions.firedSockets.map(\.token) == kept)
        #expect(bench.core.usage.first?.usage.sockets == 3)
    }

    @Test("Events delivered but not handled before a crash fire again, ends included")
    func toldAgain() throws {
        var bench = Bench()
        let (client, socket) = try phone(&bench)
        bench.suspend(client)
        #expect(bench.turn(.fired(socket, [.readable, .peerClosed])).wakes.count == 1)
        #expect(bench.core.condition(of: socket) == .ended)
        bench.turn(.ended(client, .failed))
        #expect(bench.core.condition(of: socket) == .armed)
    }

    // MARK: State

    @Test("State is kept within quotas, and dropped after two crashes at the start")
    func state() throws {
        var bench = Bench {
            $0.quotas.stateBytesPerClient = 1_000
            $0.quotas.stateBytesPerUser = 1_500
        }
        let (client, _) = try phone(&bench)
        let (other, _) = try phone(&bench)
        func save(_ bytes: Int, _ client: ClientID) -> Answer? {
            bench.say(.saveState(byteCount: bytes), from: client)
            return bench.answer
        }
        #expect(save(1_001, client) == .refused(.stateTooLarge(limit: 1_000)))
        #expect(save(1_000, client) == .done)
        #expect(save(501, other) == .refused(.stateTooLarge(limit: 500)))
        #expect(save(500, other) == .done)
        #expect(save(900, client) == .done)
        #expect(save(600, other) == .done)
        #expect(bench.core.usage.first?.usage.stateBytes == 1_500)

        for crash in 1...2 {
            #expect(bench.core.view(of: client, at: bench.now)?.launches.stateBytes == 900)
            bench.turn(.ended(client, .failed))
            let isDropped = bench.actions.actions.contains(.dropState(client))
            #expect(isDropped == (crash == 2))
            bench.pass(.seconds(1))
            _ = try rejoin(&bench, client)
        }
        #expect(bench.core.usage.first?.usage.stateBytes == 600)
        #expect(save(0, other) == .done)
        #expect(bench.core.usage.first?.usage.stateBytes == 0)
    }

    // MARK: Many

    @Test("At the start clients are launched a few at a time; urgent launches do not wait for them")
    func boot() throws {
        var bench = Bench()
        let (phone, socket) = try phone(&bench)
        bench.suspend(phone)
        bench.turn(.memoryPressure([ClientSize(phone, bytes: 1)]))
        bench.turn(.ended(phone, .failed))
        bench.pass(.seconds(60))
        var waiting: [ClientID] = []
        for number in 0..<100 {
            let identifier = try #require(ClientIdentifier("declared.\(number)"))
            var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
            registration.isLaunchable = true
            waiting += launched(bench.turn(.launch(registration, nil)))
        }
        #expect(waiting.count == 3)
        #expect(launched(bench.turn(.fired(socket, .readable))) == [phone])
        var launches = 3
        while let client = waiting.first {
            waiting.removeFirst()
            let wakes = try rejoin(&bench, client)
            #expect(wakes.map(\.reasons) == [.launched])
            let next = launched(bench.actions.actions)
            launches += next.count
            waiting += next
            #expect(waiting.count <= 3)
        }
        #expect(launches == 100)
    }

    @Test("Under memory pressure, only urgent launches take place")
    func pressure() throws {
        var bench = Bench()
        let (client, socket) = try phone(&bench)
        let (other, _) = try phone(&bench)
        bench.turn(.memoryPressure([]))
        bench.turn(.ended(client, .failed))
        bench.turn(.ended(other, .failed))
        #expect(launched(bench.pass(.seconds(29))).isEmpty)
        #expect(launched(bench.turn(.fired(socket, .readable))) == [client])
        #expect(
            bench.core.view(of: other, at: bench.now)?.launches.waitsForMemoryUntil
                == bench.now + .seconds(1))
        #expect(launched(bench.pass(.seconds(1))) == [other])
    }

    @Test("The largest sleepers are ended first, but none that could not come back")
    func largestFirst() throws {
        var bench = Bench { $0.memoryPressure.endsAtOnce = 2 }
        var sizes: [ClientSize] = []
        for bytes in [3, 9, 5, 9] {
            let (client, _) = try phone(&bench)
            bench.suspend(client)
            sizes.append(ClientSize(client, bytes: bytes))
        }
        let stranger = try bench.register()
        bench.suspend(stranger)
        sizes.append(ClientSize(stranger, bytes: 100))
        let running = try bench.register(isLaunchable: true)
        sizes.append(ClientSize(running, bytes: 100))
        func ended() -> [ClientID] {
            bench.turn(.memoryPressure(sizes)).compactMap { action in
                if case .kill(let client, .memoryPressure) = action { client } else { nil }
            }
        }
        #expect(ended() == [sizes[1].client, sizes[3].client])
        #expect(ended() == [sizes[2].client, sizes[0].client])
        #expect(ended().isEmpty)
    }

    // MARK: Owners

    @Test("New owners, quit clients and given-up identifiers are reported for the records")
    func ownership() throws {
        var bench = Bench()
        let identifier = try #require(ClientIdentifier("a.b"))
        let client = try bench.register("a.b", isLaunchable: true)
        #expect(bench.core.changedOwnerships == [identifier])
        bench.command(.quit, client)
        #expect(bench.core.changedOwnerships == [identifier])
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.ownership(of: identifier)?.isQuit == true)
        _ = try bench.register("a.b", isLaunchable: true)
        #expect(bench.core.changedOwnerships == [identifier])
        #expect(bench.core.ownership(of: identifier)?.isQuit == false)

        var later = Bench()
        later.core.remember(identifier, of: 7, isQuit: true)
        #expect(throws: Bench.Unexpected.self) { try later.register("a.b") }
        later.turn(.disown(identifier, Bench.key))
        #expect(later.core.ownership(of: identifier) == nil && later.core.changedOwnerships == [identifier])
        _ = try later.register("a.b")
    }

    @Test("A client that exits on suspend is told to end instead, and traffic brings it back")
    func exitsOnSuspend() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true, exitsOnSuspend: true)
        let socket = try bench.handOver(from: client, survives: true)
        let actions = bench.say(.enterBackground, from: client)
        #expect(actions.notices == [.willTerminate(budget: .seconds(5), .exitsOnSuspend)])
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.state(of: client) == .dormant)
        #expect(launched(bench.turn(.fired(socket, .readable))) == [client])
    }

    @Test("The modes that were declared hold until a process says Hello, with its own")
    func declaredModes() throws {
        var bench = Bench()
        let identifier = try #require(ClientIdentifier("a.b"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: [.voip, .location])
        registration.isLaunchable = true
        let client = try #require(launched(bench.turn(.launch(registration, nil))).first)
        func modes() -> Modes? { bench.core.view(of: client, at: bench.now)?.modes }
        #expect(modes() == [.voip, .location])
        registration.modes = [.voip, .audio]
        bench.turn(.rejoined(client, registration, Bench.key))
        #expect(modes() == [.voip, .audio] && bench.core.needsMedia(of: 1_000))
        bench.say(.observe(name: "it", .location(LocationService(.significantChange))), from: client)
        #expect(bench.answer == .refused(.modeRequired(.location)))
        // The next process is launched as what the last one was.
        bench.turn(.ended(client, .failed))
        #expect(launched(bench.pass(.milliseconds(250))) == [client])
        #expect(modes() == [.voip, .audio])
    }

    @Test("A keep-alive timeout that was declared holds from each launch on")
    func declaredKeepAlive() throws {
        var bench = Bench()
        let identifier = try #require(ClientIdentifier("a.b"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
        registration.isLaunchable = true
        registration.keepAliveTimeout = .seconds(1)
        let client = try #require(launched(bench.turn(.launch(registration, nil))).first)
        #expect(bench.turn(.rejoined(client, registration, Bench.key)).wakes.map(\.reasons) == [.launched])
        #expect(bench.core.view(of: client, at: bench.now)?.keepAliveTimeout == .seconds(600), "the minimum")
        #expect(bench.pass(.seconds(600)).wakes.contains { $0.reasons == .keepAlive })
        bench.turn(.ended(client, .failed))
        #expect(bench.core.view(of: client, at: bench.now)?.keepAliveTimeout == nil)
    }
}
