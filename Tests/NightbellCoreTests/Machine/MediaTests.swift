import NightbellCore
import Testing

@Suite("Media is a fact")
struct MediaTests {
    private var bench = Bench()

    /// A client in the background with nothing to do.
    private mutating func idle(_ name: String? = nil, user: UserID = 1_000) throws -> ClientID {
        let client = try bench.register(name, user: user)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        return client
    }

    private mutating func report(_ streaming: [ClientID]?, playing: [ClientID] = [], user: UserID = 1_000) {
        bench.turn(.fact(.media(of: user, .known(MediaFact(streaming: streaming, playing: playing)))))
    }

    private func state(_ client: ClientID) -> ClientState { bench.core.state(of: client) }

    private func witness(_ client: ClientID) -> MediaWitness? {
        bench.core.view(of: client, at: bench.now)?.media
    }

    @Test mutating func aStreamHoldsOffSuspensionUntilItHasLapsed() throws {
        let client = try bench.register()
        report([client])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.pass(.seconds(86_400))
        #expect(state(client) == .background && witness(client) == .stream)
        report([])
        bench.pass(.milliseconds(4_999))
        #expect(state(client) == .background)
        bench.pass(.milliseconds(1))
        #expect(state(client) == .suspending && witness(client) == nil)
    }

    /// Silence between two songs is no end.
    @Test mutating func aStreamThatComesBackInTimeIsOne() throws {
        let client = try bench.register()
        report([client])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        for _ in 0..<3 {
            report([])
            bench.pass(.seconds(4))
            report([client])
            bench.pass(.seconds(100))
        }
        #expect(state(client) == .background)
    }

    @Test mutating func whereStreamsAreKnownAClientsWordDoesNotCount() throws {
        let client = try bench.register()
        report([])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .refused(.noStream))
        #expect(witness(client) == nil)
        bench.pass(.milliseconds(4_500))
        #expect(state(client) == .suspending)
    }

    @Test mutating func itsWordIsNotRefusedWhileItsStreamKeepsItAwake() throws {
        let client = try bench.register()
        report([client])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .done)
        // Silence lapses, whatever the client says: it learns so while it is still awake.
        report([])
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .refused(.noStream))
        bench.pass(.milliseconds(4_999))
        #expect(state(client) == .background)
        bench.pass(.milliseconds(1))
        #expect(state(client) == .suspending)
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .refused(.noStream))
    }

    @Test mutating func aWordBeforeTheFirstReportIsNotRenewedAfterIt() throws {
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .done)
        bench.pass(.milliseconds(500))
        report([])
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .refused(.noStream))
    }

    @Test mutating func withoutPipeWireAPlayerOrItsWordCounts() throws {
        let player = try bench.register()
        let speaker = try bench.register()
        report(nil, playing: [player])
        bench.say(.mediaActivity, from: speaker)
        for client in [player, speaker] {
            bench.say(.enterBackground, from: client)
            bench.say(.backgroundEntered, from: client)
        }
        #expect(witness(player) == .player && witness(speaker) == .word)
        bench.pass(.seconds(6))
        #expect(state(player) == .background && state(speaker) == .suspending)
        // PipeWire knows better than a player's word.
        report([], playing: [player])
        bench.pass(.seconds(6))
        #expect(state(player) == .suspending)
    }

    /// Without PipeWire the end of a player's word proves no silence, however short it was.
    @Test mutating func aPlayerThatStopsCountsForTheHold() throws {
        bench = Bench { $0.budgets.mediaHold = .seconds(20) }
        let client = try bench.register()
        report(nil, playing: [client])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.pass(.seconds(100))
        report(nil)
        // Another report without it is no news of it.
        bench.pass(.seconds(10))
        report(nil)
        bench.pass(.milliseconds(9_999))
        #expect(state(client) == .background)
        bench.pass(.milliseconds(1))
        #expect(state(client) == .suspending)
    }

    /// Its monitor is being replaced: the last state holds, for a bounded time.
    @Test(arguments: [Knowledge<MediaFact>.unknown, .unavailable, .known(MediaFact(streaming: nil))])
    func theUnknownIsNotSilence(_ unknown: Knowledge<MediaFact>) throws {
        var test = self
        let client = try test.bench.register()
        test.report([client])
        test.bench.say(.enterBackground, from: client)
        test.bench.say(.backgroundEntered, from: client)
        for _ in 0..<3 {
            test.bench.turn(.fact(.media(of: 1_000, unknown)))
            test.bench.pass(.seconds(9))
        }
        #expect(test.state(client) == .background)
        test.bench.pass(.seconds(3))
        #expect(test.state(client) == .suspending)
    }

    @Test mutating func mediaKnownAgainCount() throws {
        let client = try bench.register()
        report([client])
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.turn(.fact(.media(of: 1_000, .unknown)))
        bench.pass(.seconds(29))
        report([client])
        bench.pass(.seconds(1_000))
        #expect(state(client) == .background)
        bench.turn(.fact(.media(of: 1_000, .unknown)))
        report([])
        bench.pass(.seconds(5))
        #expect(state(client) == .suspending)
    }

    @Test mutating func mediaThatComesBackWakesAndLaunchesNoClient() throws {
        let client = try bench.register()
        bench.suspend(client)
        report([client])
        #expect(bench.actions.actions.isEmpty && state(client) == .suspended)
        let launchable = try bench.register(isLaunchable: true)
        bench.suspend(launchable)
        bench.turn(.ended(launchable, .failed))
        report([launchable])
        bench.pass(.seconds(100))
        #expect(![.launching, .inactive, .background].contains(state(launchable)))
    }

    @Test mutating func aClientOnItsWayToSleepStays() throws {
        let client = try idle()
        bench.pass(.seconds(1))
        #expect(state(client) == .suspending)
        report([client])
        #expect(state(client) == .background)
        bench.pass(.seconds(100))
        #expect(state(client) == .background)
    }

    @Test mutating func theMediaOfOneUserIsNotThatOfAnother() throws {
        let other = try bench.register(user: 1_001)
        report([other], user: 1_000)
        bench.say(.enterBackground, from: other)
        bench.say(.backgroundEntered, from: other)
        bench.pass(.seconds(1))
        #expect(state(other) == .suspending)
    }

    @Test mutating func itIsNeededOnlyWhileAClientCouldHaveMedia() throws {
        #expect(bench.core.mediaUsers.isEmpty)
        _ = try bench.register(modes: .voip)
        #expect(bench.core.mediaUsers.isEmpty)
        let client = try bench.register()
        #expect(Array(bench.core.mediaUsers) == [1_000])
        bench.suspend(client)
        #expect(bench.core.mediaUsers.isEmpty)
        bench.command(.wake, client)
        #expect(bench.core.needsMedia(of: 1_000))
        bench.turn(.gone(client))
        #expect(bench.core.mediaUsers.isEmpty)
    }
}
