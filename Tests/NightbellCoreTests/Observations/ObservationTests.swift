import NightbellCore
import Testing

@Suite("Observations")
struct ObservationTests {
    private static let accessory = "/dev/serial/by-id/usb-one"
    private static let device = "/org/bluez/hci0/dev_1"

    private func position(_ metres: Double) -> Position? {
        Position(latitude: 0, longitude: metres / 111_195, accuracy: 10)
    }

    private func observe(
        _ bench: inout Bench, _ subject: Subject, isLaunchable: Bool = true
    ) throws -> ClientID {
        let client = try bench.register(
            modes: [.location, .bluetoothCentral, .externalAccessory], isLaunchable: isLaunchable)
        bench.say(.observe(name: "it", subject), from: client)
        #expect(bench.answer == .done)
        return client
    }

    @Test func theModeIsRequired() throws {
        var bench = Bench()
        let client = try bench.register(modes: [.voip, .location])
        for (subject, mode) in [
            (.accessory(Self.accessory), .externalAccessory),
            (.bluetoothDevice(Self.device), .bluetoothCentral),
            (.characteristic(Self.device), .bluetoothCentral),
        ] as [(Subject, Modes)] {
            bench.say(.observe(name: "it", subject), from: client)
            #expect(bench.answer == .refused(.modeRequired(mode)))
        }
        #expect(bench.core.neededFacts.isEmpty)
    }

    @Test func theirNumberIsLimited() throws {
        var bench = Bench {
            $0.quotas.observationsPerClient = 2
            $0.quotas.observationsPerUser = 3
        }
        let clients = [
            try bench.register(modes: .externalAccessory), try bench.register(modes: .externalAccessory),
        ]
        let answers = [(0, "a"), (0, "b"), (0, "c"), (0, "b"), (1, "a"), (1, "b")].map { index, name in
            bench.say(.observe(name: name, .accessory("/dev/" + name)), from: clients[index])
            return bench.answer
        }
        let refused = Answer.refused(.tooManyObservations)
        #expect(answers == [.done, .done, refused, .done, .done, refused])
        bench.say(.stopObserving(name: "a"), from: clients[0])
        bench.say(.observe(name: "b", .accessory("/dev/b")), from: clients[1])
        #expect(bench.answer == .done)
    }

    @Test func anObserverIsNotOutOfReach() throws {
        var bench = Bench()
        let clients = try (0..<2).map { _ in try bench.register(modes: [.voip, .location]) }
        bench.say(.observe(name: "it", .location(LocationService(.foreground))), from: clients[0])
        bench.say(.observe(name: "it", .location(LocationService(.significantChange))), from: clients[1])
        for client in clients { bench.suspend(client) }
        let isOutOfReach = try clients.map {
            try #require(bench.core.view(of: $0, at: bench.now)).isOutOfReach
        }
        #expect(isOutOfReach == [true, false])
    }

    /// One that is replaced frees its place, and a place is needed only for what is observed by its path.
    @Test func placesAreOfTheirUserAndOfPathsAlone() throws {
        var bench = Bench {
            $0.quotas.observationsPerClient = 128
            $0.quotas.observationsPerUser = 128
        }
        let modes: Modes = [.location, .bluetoothCentral, .externalAccessory]
        let clients = try [1, 1, 2].map { try bench.register(user: UserID($0), modes: modes) }
        func observe(_ name: String, _ subject: Subject, _ index: Int) -> Answer? {
            bench.say(.observe(name: name, subject), from: clients[index])
            return bench.answer
        }
        let refused = Answer.refused(.tooManyObservations)
        for number in 0..<40 {
            let centre = try #require(position(Double(number) * 1_000))
            let region = try #require(Region(centre: centre, radius: 100))
            #expect(observe("region.\(number)", .region(region), 0) == .done)
        }
        for number in 0..<32 {
            let path = "\(Self.device)/\(number)"
            let subject: Subject = number % 2 == 0 ? .bluetoothDevice(path) : .characteristic(path)
            #expect(observe("path.\(number)", subject, 0) == .done)
        }
        #expect(observe("more", .accessory("/dev/more"), 0) == refused)
        #expect(observe("more", .accessory("/dev/more"), 1) == refused)
        #expect(observe("more", .bluetoothDevice(Self.device + "/0"), 1) == .done, "its user observes it")
        #expect(observe("path.0", .accessory("/dev/more"), 0) == refused, "the other still observes it")
        #expect(observe("path.1", .accessory("/dev/more"), 0) == .done)
        // Whether another user observes a device makes no difference for one that has no place left.
        for number in 0..<31 { #expect(observe("\(number)", .accessory("/dev/2.\(number)"), 2) == .done) }
        #expect(observe("it", .accessory("/dev/more"), 2) == refused)
        #expect(observe("it", .accessory("/dev/new"), 2) == refused)
    }

    /// A uid gets a third of the places that the others have left, and administrators have some of their own.
    @Test func everyUserGetsPlaces() throws {
        var bench = Bench {
            $0.quotas.observationsPerClient = 128
            $0.quotas.observationsPerUser = 128
            $0.administrator = 999
        }
        func places(of user: UserID) throws -> Int {
            let client = try bench.register(user: user, modes: .externalAccessory)
            return try #require(
                (0...128).first { number in
                    bench.say(
                        .observe(name: "\(number)", .accessory("/dev/\(user).\(number)")), from: client)
                    return bench.answer == .refused(.tooManyObservations)
                })
        }
        #expect(try (1...10).map { try places(of: $0) } == [32, 21, 14, 9, 6, 4, 3, 2, 1, 1])
        #expect(try places(of: 0) == 32, "administrators' places were taken by users")
        // Of the places of users three are left, which are enough for one.
        #expect(try [places(of: 999), places(of: 11), places(of: 12)] == [3, 1, 0])
    }

    @Test func oneIsReplacedAtTheQuota() throws {
        var bench = Bench {
            $0.quotas.observationsPerClient = 2
            $0.quotas.observationsPerUser = 2
        }
        let client = try bench.register(modes: .externalAccessory)
        for (name, path) in [("a", "/dev/a"), ("b", "/dev/b"), ("a", "/dev/c")] {
            bench.say(.observe(name: name, .accessory(path)), from: client)
            #expect(bench.answer == .done)
        }
        #expect(bench.core.observationDemand.accessories == ["/dev/b", "/dev/c"])
    }

    /// The demand has only the things that clients want at present.
    @Test func onlyWhatIsWantedIsDemanded() throws {
        var bench = Bench()
        let client = try observe(&bench, .accessory(Self.accessory))
        bench.say(
            .observe(name: "place", .location(LocationService(.foreground, distance: 7))), from: client)
        #expect(bench.core.neededFacts == [.location, .devices])
        #expect(bench.core.observationDemand.location?.distance == 7)
        bench.suspend(client)
        #expect(bench.core.neededFacts == .devices)
        #expect(bench.core.observationDemand.accessories == [Self.accessory])
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.neededFacts.isEmpty && bench.core.observationDemand.accessories.isEmpty)
    }

    @Test func anAccessoryWakesAndLaunches() throws {
        var bench = Bench()
        let client = try observe(&bench, .accessory(Self.accessory))
        let other = try bench.register(modes: .externalAccessory)
        bench.suspend(other)
        bench.suspend(client)
        let present = Fact.accessories([Self.accessory: .present(node: "/dev/ttyACM0")])
        let absent = Fact.accessories([Self.accessory: .absent])
        // As it is found, after which nothing is known for a while.
        for fact in [present, .accessories([:]), present] { #expect(bench.turn(.fact(fact)).wakes.isEmpty) }
        let wake = try #require(bench.turn(.fact(absent)).wakes.first)
        #expect(wake.reasons == .device && wake.budget == .seconds(10))
        #expect(
            Array(bench.actions.observed[wake.observed])
                == [ObservedOccurrence(name: "it", occurrence: .disconnected, isSimulated: false)])
        #expect(bench.core.state(of: other) == .suspended)
        bench.suspend(client)
        // Without a process it is launched, and told then.
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(bench.core.state(of: client) == .dormant)
        #expect(bench.turn(.fact(present)).contains(.launch(client)))
        let registration = try #require(bench.core.registration(of: client))
        let told = try #require(bench.turn(.rejoined(client, registration, Bench.key)).wakes.first)
        #expect(told.reasons == .device)
        #expect(bench.actions.observed[told.observed].map(\.occurrence) == [.connected(node: "/dev/ttyACM0")])
    }

    @Test func significantChangesAreFarAndNotTooOften() throws {
        var bench = Bench()
        let client = try observe(&bench, .location(LocationService(.significantChange)))
        bench.suspend(client)
        #expect(bench.turn(.fact(.position(position(0)))).wakes.count == 1)
        bench.suspend(client)
        bench.pass(.seconds(400))
        #expect(bench.turn(.fact(.position(position(499)))).wakes.isEmpty)
        let coarse = Position(latitude: 0, longitude: 0.1, accuracy: 50_000)
        #expect(bench.turn(.fact(.position(coarse))).wakes.isEmpty)
        #expect(bench.turn(.fact(.position(position(501)))).wakes.count == 1)
        bench.suspend(client)
        bench.pass(.seconds(100))
        // It stops there: told when the time is over, without another report.
        #expect(bench.turn(.fact(.position(position(2_000)))).wakes.isEmpty)
        #expect(bench.pass(.seconds(190)).wakes.isEmpty)
        #expect(bench.pass(.seconds(20)).wakes.count == 1)
    }

    /// A sleeper is told of each movement of its distance, whatever its accuracy; without a process it is not
    /// launched for any.
    @Test func theContinuousServiceWakesAndDoesNotLaunch() throws {
        var bench = Bench()
        let client = try observe(&bench, .location(LocationService(.continuous, distance: 50, accuracy: 6)))
        let demand = try #require(bench.core.observationDemand.location)
        #expect(demand.accuracy == 6 && demand.distance == 50)
        bench.suspend(client)
        var told: [Double] = []
        for metres in [0, 30, 49, 51, 80, 102, 20] as [Double] {
            let wakes = bench.turn(.fact(.position(position(metres)))).wakes
            guard !wakes.isEmpty else { continue }
            #expect(wakes.map(\.reasons) == [.location])
            #expect(bench.actions.observed.map(\.occurrence) == [.moved(try #require(position(metres)))])
            told.append(metres)
            bench.suspend(client)
        }
        #expect(told == [0, 51, 102, 20])
        // It stays for something else.
        bench.say(.observe(name: "reader", .accessory(Self.accessory)), from: client)
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(60))
        #expect(bench.core.state(of: client) == .dormant)
        #expect(bench.core.observationDemand.location == nil)
        let actions = bench.turn(.fact(.position(position(5_000)))) + bench.pass(.seconds(600))
        #expect(!actions.contains(.launch(client)) && bench.core.state(of: client) == .dormant)
    }

    /// After a quit by the user, only the location launches a client.
    @Test func afterAQuitOnlyLocationRemains() throws {
        for isAsleep in [false, true] {
            var bench = Bench()
            let client = try observe(&bench, .location(LocationService(.significantChange)))
            bench.say(.observe(name: "device", .bluetoothDevice(Self.device)), from: client)
            bench.turn(.fact(.position(position(0))), .fact(.bluetooth([Self.device: .absent])))
            if isAsleep { bench.suspend(client) }
            bench.command(.quit, client)
            bench.turn(.ended(client, .succeeded))
            #expect(bench.core.state(of: client) == .dormant)
            #expect(bench.core.neededFacts == .location)
            bench.pass(.seconds(400))
            bench.turn(.fact(.bluetooth([Self.device: .present(node: "")])))
            #expect(bench.core.state(of: client) == .dormant)
            #expect(bench.turn(.fact(.position(position(900)))).contains(.launch(client)))
        }
    }

    @Test func aQuitClientWithoutLocationIsForgotten() throws {
        var bench = Bench()
        let client = try observe(&bench, .accessory(Self.accessory))
        bench.command(.quit, client)
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.state(of: client) == .notRunning && bench.core.neededFacts.isEmpty)
    }

    @Test func occurrencesCanBeSimulated() throws {
        var bench = Bench()
        let client = try observe(&bench, .characteristic(Self.device))
        bench.suspend(client)
        let value = Occurrence.value([1, 2])
        let wake = try #require(
            bench.turn(.simulate(value, observation: "it", client, Bench.key)).wakes.first)
        #expect(wake.reasons == .bluetooth)
        #expect(
            Array(bench.actions.observed[wake.observed])
                == [ObservedOccurrence(name: "it", occurrence: value, isSimulated: true)])
        for (occurrence, name) in [(value, "other"), (.entered, "it")] as [(Occurrence, String)] {
            let actions = bench.turn(.simulate(occurrence, observation: name, client, Bench.key))
            #expect(actions.contains(.commandAnswer(.noSuchObservation, Bench.key)) && actions.wakes.isEmpty)
        }
    }

    /// Equal values are occurrences of their own.
    @Test func notificationsWake() throws {
        var bench = Bench()
        let client = try observe(&bench, .characteristic(Self.device))
        for _ in 0..<2 {
            bench.suspend(client)
            let wake = try #require(bench.turn(.fact(.characteristic(Self.device, [7]))).wakes.first)
            #expect(bench.actions.observed[wake.observed].map(\.occurrence) == [.value([7])])
        }
        bench.suspend(client)
        #expect(bench.turn(.fact(.characteristic(Self.device + "0", [7]))).wakes.isEmpty)
    }

    /// A new process without the mode is told of nothing, also if something else has launched it.
    @Test(arguments: [false, true]) func aProcessWithoutTheModeIsToldOfNothing(isRequested: Bool) throws {
        var bench = Bench()
        let client = try observe(&bench, .bluetoothDevice(Self.device))
        bench.turn(.fact(.bluetooth([Self.device: .absent])))
        bench.suspend(client)
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(bench.turn(.fact(.bluetooth([Self.device: .present(node: "")]))).contains(.launch(client)))
        if isRequested { bench.command(.wake, client) }
        var registration = try #require(bench.core.registration(of: client))
        registration.modes = .voip
        let wakes = bench.turn(.rejoined(client, registration, Bench.key)).wakes
        #expect(wakes.map(\.reasons) == (isRequested ? [.request] : []))
        #expect(bench.actions.observed.isEmpty && bench.core.neededFacts.isEmpty)
    }

    /// The last of several wakes that a client has not read tells of all that happened.
    @Test func aRepeatedWakeHasTheReasonsOfEarlierOnes() throws {
        var bench = Bench()
        bench.core.notesChanges = true
        let client = try observe(&bench, .accessory(Self.accessory))
        let registration = try #require(bench.core.registration(of: client))
        bench.turn(.fact(.accessories([Self.accessory: .absent])))
        bench.suspend(client)
        #expect(bench.turn(.fact(.accessories([Self.accessory: .present(node: "")]))).wakes.count == 1)
        #expect(bench.command(.wake, client).wakes.map(\.reasons) == [.request])
        var old = RecoverySnapshot.Client(id: client, registration: registration, registeredAt: bench.now)
        old.state = (bench.core.row(of: client), bench.core.statistics(of: client))
        old.observations = bench.core.observationSnapshot(of: client)
        var snapshot = RecoverySnapshot()
        snapshot.clients = [old]
        bench.actions.removeAll()
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        bench.core.endTurn(at: bench.now, into: &bench.actions)
        let wake = try #require(bench.actions.actions.wakes.first)
        #expect(wake.isRepeated && wake.reasons == [.request, .device])
        #expect(bench.actions.observed[wake.observed].map(\.occurrence) == [.connected(node: "")])
    }

    /// Others may cause these wakes at any pace.
    @Test(arguments: [Subject.bluetoothDevice(device), .characteristic(device), .accessory(accessory)])
    func theWakeLimitAppliesToThem(_ subject: Subject) throws {
        var bench = Bench { $0.wakes.limit = 3 }
        let client = try observe(&bench, subject)
        func facts(_ presence: Presence) -> [Fact] {
            [.bluetooth([Self.device: presence]), .accessories([Self.accessory: presence])]
        }
        for fact in facts(.absent) { bench.turn(.fact(fact)) }
        for number in 0..<6 {
            bench.suspend(client)
            for fact in facts(number % 2 == 0 ? .present(node: "") : .absent) { bench.turn(.fact(fact)) }
            bench.turn(.fact(.characteristic(Self.device, [1])))
        }
        #expect(bench.counters(client)[.wakes] == 6)
        #expect(bench.counters(client)[.wakeLimitExceeded] == 3)
    }

    /// All that happens until it runs counts as one wake.
    @Test func aLaunchCountsOnce() throws {
        var bench = Bench { $0.wakes.limit = 1 }
        let client = try observe(&bench, .characteristic(Self.device))
        bench.suspend(client)
        bench.turn(.ended(client, .failed))
        for _ in 0..<4 { bench.turn(.fact(.characteristic(Self.device, [1]))) }
        #expect(bench.core.state(of: client) == .dormant)
        #expect(bench.core.usage.map(\.usage.wakes) == [1])
        #expect(bench.counters(client)[.wakeLimitExceeded] == 0)
    }
}
