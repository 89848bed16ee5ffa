import NightbellWire

/// Whether the machine runs on battery, by UPower.
final class PowerSource: Source {
    private let context: SourceContext
    private var service: BusService?
    private var properties: BusProperties?
    private var answer = WireMonitorAnswer.unspecified

    private static let name = "org.freedesktop.UPower"

    init(_ context: SourceContext) {
        self.context = context
        let service = BusService(context.buses.system(), name: Self.name, isStarted: true) {
            [unowned self] presence in handle(presence)
        }
        self.service = service
        properties = BusProperties(
            service, path: "/org/freedesktop/UPower", interface: Self.name,
            onValue: { [unowned self] name, value in
                guard name == "OnBattery" else { return }
                if case .bool(let isOn) = value { answer = isOn ? .yes : .no } else { answer = .unspecified }
            }, onRead: { [unowned self] error in report(error) })
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {}

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            answer = .unspecified
            properties?.read()
        case .doubtful: properties?.read()
        case .absent(let absence):
            answer = .unspecified
            context.reports.setAbsent(.power, absence)
        }
    }

    private func report(_ error: BusError?) {
        if let error { return context.reports.setAvailability(.power, reason: "UPower: \(error.text)") }
        context.reports.setAvailability(.power, reason: nil)
        var power = WireMonitorReport.Power()
        power.onBattery = answer
        context.reports.report(.power, .power(power))
    }
}
