import NightbellCore
import Testing

@Suite("Programs as they are, which another process speaks for")
struct UnmodifiedTests {
    private func asleep(_ bench: inout Bench) throws -> (ClientID, SocketToken) {
        let client = try bench.register(modes: [], isUnmodified: true)
        guard case .success(let token) = bench.handOver(SocketOffer(tag: .device), from: client) else {
            throw Bench.Unexpected.notAdopted
        }
        bench.say(.enterBackground, from: client)
        bench.turn(.frozen(client, epoch: 1))
        return (client, token)
    }

    @Test("It is frozen on request, without preparation, and what speaks for it is told when it is")
    func sleep() throws {
        var bench = Bench()
        let client = try bench.register(modes: [], isUnmodified: true)
        guard case .success(let token) = bench.handOver(SocketOffer(tag: .device), from: client) else {
            throw Bench.Unexpected.notAdopted
        }
        let actions = bench.say(.enterBackground, from: client)
        #expect(actions.contains(.arm(token)) && actions.contains(.freeze(client, epoch: 1)))
        #expect(actions.notices.isEmpty && bench.answer == .done)
        #expect(bench.turn(.frozen(client, epoch: 1)).notices == [.suspended(epoch: 1)])
        #expect(bench.core.state(of: client) == .suspended)
    }

    @Test("A wake lets it run until it is put to sleep anew: it has no budget, and no limit of wakes")
    func wake() throws {
        var bench = Bench { $0.wakes.limit = 1 }
        let (client, token) = try asleep(&bench)
        for epoch in 2...5 as ClosedRange<UInt64> {
            let actions = bench.turn(.fired(token, .readable))
            #expect(actions.contains(.thaw(client)) && actions.wakes.count == 1)
            #expect(bench.core.state(of: client) == .active)
            #expect(bench.pass(.seconds(600)).isEmpty)
            bench.say(.enterBackground, from: client)
            bench.turn(.frozen(client, epoch: epoch))
            #expect(bench.core.state(of: client) == .suspended)
        }
        #expect(bench.counters(client)[.wakes] == 4)
        #expect(bench.counters(client)[.wakeLimitExceeded] == 0)
        #expect(bench.counters(client)[.overrunsWake] == 0)
    }

    @Test("It is called back without a wake, also while it is being frozen")
    func callBack() throws {
        var bench = Bench()
        let (client, _) = try asleep(&bench)
        let actions = bench.say(.enterForeground, from: client)
        #expect(actions.contains(.thaw(client)) && actions.notices.isEmpty)
        #expect(bench.core.state(of: client) == .active)
        bench.say(.enterBackground, from: client)
        #expect(bench.say(.enterForeground, from: client).contains(.thaw(client)))
        #expect(bench.turn(.frozen(client, epoch: 2)).isEmpty)
        #expect(bench.core.state(of: client) == .active)
        #expect(bench.counters(client)[.wakes] == 0)
    }

    @Test("A freeze that fails leaves it in the foreground")
    func failure() throws {
        var bench = Bench()
        let client = try bench.register(modes: [], isUnmodified: true)
        bench.say(.enterBackground, from: client)
        let actions = bench.turn(.freezeFailed(client, epoch: 1))
        #expect(actions.contains(.thaw(client)))
        #expect(actions.notices == [.suspendCancelled(epoch: 1)])
        #expect(bench.core.state(of: client) == .active)
        #expect(bench.pass(.seconds(600)).isEmpty)
    }

    @Test(
        "One that can be launched comes back after a crash as if its user had started it, and not after an end of its own"
    )
    func launch() throws {
        var bench = Bench()
        let client = try bench.register("program", isLaunchable: true, isUnmodified: true)
        let identifier = try #require(ClientIdentifier("program"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: [.voip, .audio])
        registration.isLaunchable = true
        registration.isUnmodified = true
        for round in 1...10 as ClosedRange<UInt64> {
            bench.say(.enterBackground, from: client)
            bench.turn(.frozen(client, epoch: round))
            #expect(bench.core.state(of: client) == .suspended)
            bench.turn(.ended(client, .failed))
            #expect(bench.core.registration(of: client)?.isUnmodified == false)
            #expect(bench.pass(.milliseconds(250)).contains(.launch(client)), "round \(round)")
            #expect(
                bench.turn(.rejoined(client, registration, Bench.key)).wakes.map(\.reasons) == [.relaunched])
            #expect(bench.core.state(of: client) == .inactive)
            #expect(bench.core.registration(of: client)?.isUnmodified == true)
            #expect(bench.pass(.seconds(600)).isEmpty)
        }
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.state(of: client) == .notRunning)
    }

    @Test("It is not ended when memory is short: it could not save what it knows")
    func memoryPressure() throws {
        var bench = Bench()
        let client = try bench.register(isLaunchable: true, isUnmodified: true)
        bench.say(.enterBackground, from: client)
        bench.turn(.frozen(client, epoch: 1))
        #expect(bench.turn(.memoryPressure([ClientSize(client, bytes: 1 << 30)])).kills.isEmpty)
        #expect(bench.core.state(of: client) == .suspended)
    }

    @Test("A wake that is decided while it is put to sleep comes first")
    func crossing() throws {
        var bench = Bench()
        let client = try bench.register(modes: [], isUnmodified: true)
        bench.say(.enterForeground, from: client)
        let actions = bench.turn(
            .command(.wake, client, Bench.key), .message(.enterBackground, from: client, Bench.key))
        #expect(actions.wakes.count == 1)
        #expect(bench.core.state(of: client) == .active)
    }
}
