import NightbellCore
import Testing

@Suite("Registration, quotas and refusals of sockets")
struct QuotaTests {
    private func refusal(_ bench: inout Bench, _ name: String, user: UserID) throws -> Refusal? {
        let identifier = try #require(ClientIdentifier(name))
        let registration = Registration(identifier: identifier, user: user, modes: .voip)
        for case .refuseRegistration(let refusal, _) in bench.turn(.registration(registration, Bench.key)) {
            return refusal
        }
        return nil
    }

    @Test func identifiersBelongToTheirFirstUser() throws {
        var bench = Bench()
        let client = try bench.register("a", user: 1)
        var outcome = try refusal(&bench, "a", user: 1)
        #expect(outcome == .identifierInUse)
        outcome = try refusal(&bench, "a", user: 2)
        #expect(outcome == .identifierOfOtherUser)
        bench.turn(.gone(client))
        #expect(bench.core.identifier(of: client) == nil)
        outcome = try refusal(&bench, "a", user: 2)
        #expect(outcome == .identifierOfOtherUser, "also when it does not run")
        outcome = try refusal(&bench, "a", user: 1)
        #expect(outcome == nil)
    }

    @Test func aDeclaredIdentifierIsReserved() throws {
        var bench = Bench()
        let name = try #require(ClientIdentifier("a"))
        let client = try bench.register("a", user: 1)
        var isReserved = bench.core.reserve(name, for: 2)
        #expect(!isReserved, "a client of another user goes by it")
        bench.turn(.gone(client))
        for _ in 0..<2 {
            isReserved = bench.core.reserve(name, for: 2)
            #expect(isReserved && bench.core.ownership(of: name)?.user == 2)
        }
        var outcome = try refusal(&bench, "a", user: 1)
        #expect(outcome == .identifierOfOtherUser)
        outcome = try refusal(&bench, "a", user: 2)
        #expect(outcome == nil)
        isReserved = bench.core.reserve(name, for: 2)
        #expect(isReserved, "its own client goes by it")
    }

    @Test func clientsPerUser() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 2 }
        let first = try bench.register(user: 1)
        _ = try bench.register(user: 1)
        var outcome = try refusal(&bench, "more", user: 1)
        #expect(outcome == .tooManyClients)
        outcome = try refusal(&bench, "others", user: 2)
        #expect(outcome == nil)
        bench.turn(.gone(first))
        outcome = try refusal(&bench, "more", user: 1)
        #expect(outcome == nil)
    }

    /// Clients above a lowered quota stay, and none is added.
    @Test func numbersChange() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 2 }
        let first = try bench.register(user: 1)
        _ = try bench.register(user: 1)
        var settings = bench.core.settings
        settings.quotas.clientsPerUser = 1
        bench.core.change(settings)
        bench.turn(.gone(first))
        var outcome = try refusal(&bench, "more", user: 1)
        #expect(outcome == .tooManyClients)
        settings.quotas.clientsPerUser = 2
        bench.core.change(settings)
        outcome = try refusal(&bench, "more", user: 1)
        #expect(outcome == nil)
    }

    /// A uid has four identifiers for each client. One more frees the one that was unused for longest, for
    /// any uid.
    @Test func theOldestUnusedIdentifierIsRecycled() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 2 }
        let stays = try bench.register("stays", user: 1)
        for number in 1...7 {
            let client = try bench.register("name.\(number)", user: 1)
            bench.turn(.gone(client))
        }
        // Used again, it is the latest.
        bench.turn(.gone(try bench.register("name.1", user: 1)))
        for number in 1...7 {
            let outcome = try refusal(&bench, "name.\(number)", user: 2)
            #expect(outcome == .identifierOfOtherUser, "as long as there is room")
        }
        bench.turn(.gone(try bench.register("ninth", user: 1)))
        var outcome = try refusal(&bench, "name.2", user: 2)
        #expect(outcome == nil, "it was the oldest")
        outcome = try refusal(&bench, "stays", user: 2)
        #expect(outcome == .identifierOfOtherUser, "older, but in use")
        for name in ["name.1", "name.3", "name.7", "ninth"] {
            outcome = try refusal(&bench, name, user: 2)
            #expect(outcome == .identifierOfOtherUser)
        }
        #expect(bench.core.usage.first { $0.user == 1 }?.usage.identifiers == 8)
        #expect(bench.core.contains(stays))
    }

    /// Otherwise a client that was quit would be launched with the next supervisor, because its user has run
    /// others since.
    @Test func identifiersThatWereQuitAreRecycledLast() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 2 }
        func isQuit(_ name: String) throws -> Bool? {
            bench.core.ownership(of: try #require(ClientIdentifier(name)))?.isQuit
        }
        for number in 1...3 {
            let client = try bench.register("quit.\(number)", user: 1)
            bench.turn(.command(.quit, client, Bench.key))
            bench.turn(.ended(client, .succeeded))
        }
        // One that was quit while it had no process.
        bench.turn(.gone(try bench.register("absent", user: 1)))
        bench.turn(.quitAbsent(try #require(ClientIdentifier("absent")), Bench.key))
        for number in 0..<100 { bench.turn(.gone(try bench.register("name.\(number)", user: 1))) }
        #expect(try (1...3).map { try isQuit("quit.\($0)") } == [true, true, true])
        #expect(try isQuit("absent") == true)
        // Their number is limited as well, and the first to be quit is the first to be forgotten.
        for number in 4...9 {
            let client = try bench.register("quit.\(number)", user: 1)
            bench.turn(.command(.quit, client, Bench.key))
            bench.turn(.ended(client, .succeeded))
        }
        #expect(
            try (1...9).map { try isQuit("quit.\($0)") } == [nil, nil] + Array(repeating: true, count: 7))
        #expect(bench.core.usage.map(\.usage.identifiers) == [8])
        // One that is started again counts as any other.
        bench.turn(.gone(try bench.register("quit.3", user: 1)))
        bench.turn(.gone(try bench.register("last", user: 1)))
        #expect(try isQuit("quit.3") == nil)
    }

    /// A client that takes a new identifier each time is never locked out.
    @Test func newIdentifiersForEver() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 3 }
        _ = try bench.register("stays", user: 1)
        for number in 0..<10_000 {
            bench.turn(.gone(try bench.register("name.\(number)", user: 1)))
            // One that comes and goes besides.
            bench.turn(.gone(try bench.register("again", user: 1)))
        }
        #expect(bench.core.usage.map(\.usage.identifiers) == [12])
        for number in 0..<10_000 {
            let outcome = try refusal(&bench, "name.\(number)", user: 2)
            #expect((outcome == .identifierOfOtherUser) == (number >= 9_990), "name.\(number)")
            guard outcome == nil, let identifier = ClientIdentifier("name.\(number)") else { continue }
            if let client = bench.core.client(named: identifier) { bench.turn(.gone(client)) }
        }
    }

    @Test func noClientIsAcceptedWhileStopping() throws {
        var bench = Bench()
        bench.turn(.stop)
        let outcome = try refusal(&bench, "a", user: 1)
        #expect(outcome == .shuttingDown)
    }

    @Test func socketsPerClientAndPerUser() throws {
        var bench = Bench {
            $0.quotas.socketsPerClient = 3
            $0.quotas.socketsPerUser = 5
        }
        let first = try bench.register(user: 1)
        let second = try bench.register(user: 1)
        let offers = Array(repeating: SocketOffer(tag: .voip), count: 4)
        bench.say(.handOver(offers), from: first)
        #expect(bench.actions.adoptions.map { (try? $0.get()) != nil } == [true, true, true, false])
        #expect(bench.actions.adoptions[3] == .failure(.tooManySockets))
        let tokens = try bench.actions.adoptions.prefix(3).map { try $0.get() }
        bench.say(.handOver(offers), from: second)
        #expect(bench.actions.adoptions.map { (try? $0.get()) != nil } == [true, true, false, false])
        #expect(bench.counters(second)[.socketsRefused] == 2 && bench.counters(second)[.socketsAdopted] == 2)
        bench.say(.release(tokens[0]), from: first)
        #expect(bench.actions.actions.contains(.close(tokens[0], of: 1)))
        _ = try bench.handOver(from: second)
        bench.turn(.gone(first), .gone(second))
        #expect(bench.core.socketCount == 0)
        #expect(bench.core.usage.allSatisfy { $0.usage.sockets == 0 && $0.usage.clients == 0 })
    }

    /// One packet tells the next process of both.
    @Test func stateAndSurvivingSocketsShareTheirRoom() throws {
        var bench = Bench { $0.quotas.socketsPerClient = 10_000 }
        let client = try bench.register(isLaunchable: true)
        var offer = SocketOffer(tag: .voip)
        offer.survives = true
        let saved = bench.say(.saveState(byteCount: 40_000), from: client)
        #expect(saved.contains(.storeState(client)))
        bench.say(.handOver(Array(repeating: offer, count: 1_000)), from: client)
        let adopted = bench.actions.adoptions.map { (try? $0.get()) != nil }
        #expect(adopted.count { $0 } == (122_880 - 40_000) / 84 && adopted.last == false)
        #expect(bench.actions.adoptions.last == .failure(.tooManySockets))
        // Others share no room, and neither does a smaller state.
        #expect(try bench.handOver(SocketOffer(tag: .voip), from: client)?.get() != nil)
        #expect(bench.say(.saveState(byteCount: 40_000), from: client).contains(.storeState(client)))
        #expect(!bench.say(.saveState(byteCount: 40_100), from: client).contains(.storeState(client)))
        bench.say(.saveState(byteCount: 0), from: client)
        #expect(try bench.handOver(offer, from: client)?.get() != nil)
    }

    @Test func noClientCanReleaseTheSocketsOfOthers() throws {
        var bench = Bench()
        let owner = try bench.register(user: 1)
        let thief = try bench.register(user: 2)
        let token = try bench.handOver(from: owner)
        bench.say(.release(token), from: thief)
        #expect(bench.answer == .refused(.invalidToken) && bench.core.socketCount == 1)
        #expect(bench.core.state(of: owner) == .inactive)
    }

    /// Every kind of descriptor under every tag.
    @Test(
        arguments: [
            (SocketOffer(tag: .voip), nil),
            (SocketOffer(tag: .voip, isStream: false, isConnected: false), nil),
            (SocketOffer(tag: .voip, isPollable: false), .notPollable),
            (SocketOffer(tag: .voip, isSocket: false), .notASocket),
            (SocketOffer(tag: .voip, isListening: true, isConnected: false), .listeningSocket),
            (SocketOffer(tag: .voip, isConnected: false), .notConnected),
            (SocketOffer(tag: .voip, hasPendingError: true), .socketError),
            (SocketOffer(tag: .listener, isListening: true, isConnected: false), nil),
            (SocketOffer(tag: .listener), .notAListener),
            (SocketOffer(tag: .listener, isPollable: false), .notPollable),
            (SocketOffer(tag: .listener, isListening: true, hasPendingError: true), .socketError),
            (SocketOffer(tag: .device, isSocket: false, isStream: false, isConnected: false), nil),
            (SocketOffer(tag: .device, isPollable: false, isSocket: false), .notPollable),
            (SocketOffer(tag: .device, isListening: true), .listeningSocket),
        ] as [(SocketOffer, Refusal?)])
    func offersAreJudgedByWhatTheyAre(_ offer: SocketOffer, _ refusal: Refusal?) throws {
        var bench = Bench()
        let client = try bench.register(modes: [.voip, .externalAccessory])
        let outcome = bench.handOver(offer, from: client)
        switch try #require(outcome) {
        case .success: #expect(refusal == nil)
        case .failure(let actual): #expect(actual == refusal)
        }
        #expect(bench.core.socketCount == (refusal == nil ? 1 : 0))
    }

    @Test func voipNeedsItsMode() throws {
        var bench = Bench()
        let client = try bench.register(modes: .audio)
        let refused = bench.handOver(SocketOffer(tag: .voip), from: client)
        #expect(refused == .failure(.modeRequired(.voip)))
        let listener = SocketOffer(tag: .listener, isListening: true, isConnected: false)
        let adopted = bench.handOver(listener, from: client)
        #expect(throws: Never.self) { try #require(adopted).get() }
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        #expect(bench.answer == .refused(.modeRequired(.voip)))
    }

    /// Whichever of them: the supervisor cannot see which device is behind a descriptor.
    @Test func devicesNeedOneOfTheirModes() throws {
        let ofDevices: [Modes] = [.bluetoothCentral, .bluetoothPeripheral, .externalAccessory]
        for (mode, _) in Modes.named {
            var bench = Bench()
            let client = try bench.register(modes: mode)
            let outcome = bench.handOver(SocketOffer(tag: .device), from: client)
            switch try #require(outcome) {
            case .success: #expect(ofDevices.contains(mode))
            case .failure(let refusal):
                #expect(!ofDevices.contains(mode) && refusal == .modeRequired(Modes(ofDevices)))
            }
            #expect(bench.counters(client)[.socketsRefused] == (ofDevices.contains(mode) ? 0 : 1))
        }
    }

    /// An adopted socket stays, whatever the next process declares: that may hand no more over.
    @Test func aDeviceOutlivesItsMode() throws {
        var bench = Bench()
        let client = try bench.register(modes: .externalAccessory, isLaunchable: true)
        var offer = SocketOffer(tag: .device)
        offer.survives = true
        let adopted = bench.handOver(offer, from: client)
        let device = try #require(try adopted?.get())
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(60))
        #expect(bench.turn(.fired(device, .readable)).contains(.launch(client)))
        let identifier = try #require(bench.core.identifier(of: client))
        let next = Registration(identifier: identifier, user: 1_000, modes: .voip)
        let wake = try #require(bench.turn(.rejoined(client, next, Bench.key)).wakes.first)
        #expect(bench.actions.firedSockets[wake.sockets].map(\.token) == [device])
        let refused = bench.handOver(SocketOffer(tag: .device), from: client)
        #expect(refused == .failure(.modeRequired(SocketTag.device.modes)))
    }
}
