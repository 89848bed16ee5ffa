import EventHandlers
import LinuxSystem
import NightbellWire

/// The machine's location, by GeoClue2. Nothing is asked of it while no client wants it.
final class LocationSource: Source {
    private let context: SourceContext
    private var wish: WireMonitorDemand.LocationDemand?
    private var service: BusService?
    private var client: Client?

    private static let name = "org.freedesktop.GeoClue2"

    init(_ context: SourceContext) { self.context = context }

    func update(_ demand: WireMonitorDemand) {
        let wish = demand.hasLocation ? demand.location : nil
        guard wish != self.wish || service == nil else { return }
        self.wish = wish
        guard wish != nil else {
            client = nil
            service = nil
            return context.reports.setAvailability(.location, reason: "no client wants it")
        }
        if let client {
            client.follow(wish ?? .init())
        } else if service == nil {
            let service = BusService(context.buses.system(), name: Self.name, isStarted: true) {
                [unowned self] presence in handle(presence)
            }
            self.service = service
            service.begin()
        } else if service?.owner != nil {
            requestClient()
        }
    }

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            client = nil
            requestClient()
        case .doubtful: client?.restart(wish ?? .init())
        case .absent(let absence):
            client = nil
            context.reports.setAbsent(.location, absence)
        }
    }

    private func requestClient() {
        service?.call(
            "/org/freedesktop/GeoClue2/Manager", "org.freedesktop.GeoClue2.Manager", "CreateClient"
        ) { [unowned self] reply in
            do throws(BusError) {
                let path = try reply.get().objectPath()
                guard let service, let wish, BusSubscription.isObjectPath(path) else { return }
                let client = Client(context.loop, service, path: path) { [unowned self] result in
                    report(result)
                }
                self.client = client
                client.restart(wish)
            } catch {
                context.reports.setAvailability(.location, reason: "GeoClue: \(error.text)")
            }
        }
    }

    private func report(_ result: Result<WireMonitorReport.Location?, BusError>) {
        switch result {
        case .success(let location):
            context.reports.setAvailability(.location, reason: nil)
            if let location { context.reports.report(.location, .location(location)) }
        case .failure(let error):
            context.reports.setAvailability(.location, reason: "GeoClue: \(error.text)")
        }
    }
}

extension LocationSource {
    /// The monitor's client object in GeoClue. The end of it tells GeoClue that nothing is wanted any more.
    ///
    /// GeoClue heeds thresholds from the next start on, and after each start it locates the machine anew. So
    /// a client that changes its wish again and again must not restart it each time: the others would get no
    /// location.
    private final class Client {
        private let service: BusService
        private let path: String
        /// nil: it was started, and knows no location yet.
        private let onResult: (Result<WireMonitorReport.Location?, BusError>) -> Void
        private var updates: BusSubscription?
        private var timer: LoopTimer?
        /// It was started with that, at this instant of `BootClock`.
        private var applied = WireMonitorDemand.LocationDemand()
        private var started: Int64 = 0
        /// It knows a location since it was started.
        private var isLocated = false
        private var wish = WireMonitorDemand.LocationDemand()
        /// Since when less is wanted than was applied.
        private var excessSince: Int64?
        /// An answer about an older location is not reported after one about a newer one.
        private var lastQuestion = 0

        private static let interface = "org.freedesktop.GeoClue2.Client"
        /// The least time between two starts, in nanoseconds.
        private static let pause: Int64 = 5_000_000_000
        /// The same while the first location after a start has not come.
        private static let patience: Int64 = 30_000_000_000
        /// How long more than the wish stays applied.
        private static let excessTime: Int64 = 30_000_000_000

        init(
            _ loop: HandlerLoop, _ service: BusService, path: String,
            onResult: @escaping (Result<WireMonitorReport.Location?, BusError>) -> Void
        ) {
            self.service = service
            self.path = path
            self.onResult = onResult
            updates = service.subscribe(
                BusSubscription.Rule(path: path, interface: Self.interface, member: "LocationUpdated")
            ) { [unowned self] (message) throws(BusError) in
                _ = try message.objectPath()
                ask(try message.objectPath())
            }
            timer = LoopTimer(loop) { [unowned self] in follow(wish) }
        }

        deinit {
            let path = path
            service.call(
                "/org/freedesktop/GeoClue2/Manager", "org.freedesktop.GeoClue2.Manager", "DeleteClient",
                { (writer) throws(BusError) in try writer.objectPath(path) }, reply: { _ in })
        }

        /// Restarts it for another wish, soon if more is wanted than was applied, and otherwise later.
        func follow(_ wish: WireMonitorDemand.LocationDemand) {
            self.wish = wish
            timer?.deadline = nil
            guard wish != applied else { return excessSince = nil }
            let now = BootClock.now()
            var due = started + (isLocated ? Self.pause : Self.patience)
            let union = applied.union(wish)
            if union == applied {
                let since = excessSince ?? now
                excessSince = since
                due = max(due, since + Self.excessTime)
            } else {
                excessSince = nil
            }
            guard due <= now else {
                timer?.deadline = due
                return
            }
            start(union == applied ? wish : union)
            // More than the wish may be applied now.
            follow(wish)
        }

        /// Starts it for this wish at once.
        func restart(_ wish: WireMonitorDemand.LocationDemand) {
            self.wish = wish
            timer?.deadline = nil
            start(wish)
        }

        private func start(_ wish: WireMonitorDemand.LocationDemand) {
            applied = wish
            started = BootClock.now()
            isLocated = false
            excessSince = nil
            set("DesktopId", .text("nightbell"))
            set("RequestedAccuracyLevel", .number(wish.accuracy))
            set("DistanceThreshold", .number(wish.distanceM))
            // In seconds; a longer pause than demanded would be wrong, a shorter one is not.
            set("TimeThreshold", .number(UInt32(clamping: wish.intervalMs / 1_000)))
            // One that is started already answers with an error on some versions, and goes on.
            service.call(path, Self.interface, "Stop", reply: { _ in })
            service.call(path, Self.interface, "Start") { [weak self] reply in
                self?.onResult(reply.map { _ in nil })
            }
        }

        private func set(_ name: String, _ value: BusValue) {
            service.call(
                path, BusProperties.interface, "Set",
                { (writer) throws(BusError) in
                    try writer.text(Self.interface)
                    try writer.text(name)
                    try writer.variant(value)
                }, reply: { _ in })
        }

        private func ask(_ location: String) {
            guard location != "/" else { return }
            lastQuestion += 1
            let question = lastQuestion
            service.call(
                location, BusProperties.interface, "GetAll",
                { (writer) throws(BusError) in try writer.text("org.freedesktop.GeoClue2.Location") },
                reply: { [weak self] reply in
                    guard let self, question == lastQuestion else { return }
                    do throws(BusError) {
                        onResult(.success(try Self.location(try reply.get())))
                        guard !isLocated else { return }
                        isLocated = true
                        follow(wish)
                    } catch {
                        onResult(.failure(error))
                    }
                })
        }

        private static func location(_ message: BusReader) throws(BusError) -> WireMonitorReport.Location {
            var values: [String: Double] = [:]
            try message.properties { (name, value) throws(BusError) in
                if case .double(let number) = value, number.isFinite { values[name] = number }
            }
            guard let latitude = values["Latitude"], let longitude = values["Longitude"],
                let accuracy = values["Accuracy"]
            else { throw BusError.unexpected }
            var location = WireMonitorReport.Location()
            location.latitudeDegrees = latitude
            location.longitudeDegrees = longitude
            location.accuracyM = accuracy
            return location
        }
    }
}

extension WireMonitorDemand.LocationDemand {
    /// The least wish that satisfies both.
    fileprivate func union(_ other: Self) -> Self {
        var union = self
        union.accuracy = max(accuracy, other.accuracy)
        union.distanceM = min(distanceM, other.distanceM)
        union.intervalMs = min(intervalMs, other.intervalMs)
        return union
    }
}
