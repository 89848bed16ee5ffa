import NightbellCore

/// A core with many sleeping clients, and the cycle that each goes through when traffic arrives.
package final class Sleepers {
    private var core: Supervision
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var actions = ActionBuffer()
    private var clients: [(id: ClientID, socket: SocketToken, epoch: UInt64, wake: UInt64)] = []
    private var next = 0
    private let observations: Int
    private var latitude = 0.0

    private static let key = RequestKey(connection: 1, request: 0)

    /// `count` clients with a socket each, all asleep, with budgets and limits that are never reached. Each
    /// observes so many regions.
    package init(count: Int, observations: Int = 0) {
        self.observations = observations
        var settings = Settings()
        settings.wakes.limit = 1
        settings.wakes.limitPerUser = .max
        settings.wakes.period = .nanoseconds(1)
        settings.quotas.clientsPerUser = count
        settings.quotas.socketsPerUser = count
        settings.quotas.observationsPerUser = .max
        core = Supervision(settings: settings)
        clients.reserveCapacity(count)
        for number in 0..<count { add(number) }
    }

    private func add(_ number: Int) {
        guard let identifier = ClientIdentifier("client.\(number)") else { return }
        let registration = Registration(identifier: identifier, user: 1, modes: [.voip, .location])
        turn(.registration(registration, Self.key))
        guard let id = core.client(named: identifier) else { return }
        turn(.message(.handOver([SocketOffer(tag: .voip)]), from: id, Self.key))
        guard case .success(let socket) = actions.adoptions.first else { return }
        for number in 0..<observations {
            guard let centre = Position(latitude: 60, longitude: Double(number), accuracy: 0),
                let region = Region(centre: centre, radius: 1_000)
            else { return }
            turn(.message(.observe(name: "\(number)", .region(region)), from: id, Self.key))
        }
        turn(.message(.enterBackground, from: id, Self.key))
        turn(.message(.backgroundEntered, from: id, Self.key))
        clients.append((id, socket, 1, 0))
        sleep(clients.count - 1)
    }

    private func turn(_ event: Event) {
        actions.removeAll()
        core.handle(event, at: now, into: &actions)
        core.endTurn(at: now, into: &actions)
    }

    private func sleep(_ index: Int) {
        let client = clients[index]
        turn(.message(.readyToSuspend(epoch: client.epoch, notIdle: []), from: client.id, Self.key))
        turn(.frozen(client.id, epoch: client.epoch))
    }

    /// Traffic for the next client: it is woken, has done its work, lingers, and is suspended again. Six
    /// turns of the supervisor's loop, as in life.
    package func cycle() {
        let index = next
        next = (next + 1) % clients.count
        clients[index].epoch += 1
        clients[index].wake += 1
        let client = clients[index]
        now = now + .milliseconds(1)
        turn(.fired(client.socket, .readable))
        now = now + .milliseconds(1)
        turn(.message(.wakeDone(wakeID: client.wake), from: client.id, Self.key))
        now = now + core.settings.wakes.linger
        turn(.timer)
        sleep(index)
    }

    /// The machine moves, and enters or leaves no region.
    package func move() {
        latitude = latitude == 0 ? 1 : 0
        turn(.fact(.position(Position(latitude: latitude, longitude: 0, accuracy: 10))))
    }

    /// Whether all clients sleep and were woken once for each packet.
    package func isSound(after cycles: Int) -> Bool {
        core.counters[.wakesSocket] == UInt64(cycles)
            && clients.allSatisfy { core.state(of: $0.id) == .suspended }
    }
}
