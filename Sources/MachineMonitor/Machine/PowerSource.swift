import NightbellWire

/// Whether the machine runs on battery, and whether the battery is low, by UPower.
final class PowerSource: Source {
    private let context: SourceContext
    private var service: BusService?
    private var properties: BusProperties?
    /// Of all batteries together.
    private var batteryProperties: BusProperties?
    private var power = WireMonitorReport.Power()
    /// The battery is not reported alone.
    private var isPowerKnown = false

    private static let name = "org.freedesktop.UPower"
    /// UPower's `LOW`; those above are `CRITICAL` and `ACTION`.
    private static let lowLevel: UInt32 = 3

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
                if case .bool(let isOn) = value {
                    power.onBattery = isOn ? .yes : .no
                } else {
                    power.onBattery = .unspecified
                }
            }, onRead: { [unowned self] error in learnPower(error) })
        batteryProperties = BusProperties(
            service, path: "/org/freedesktop/UPower/devices/DisplayDevice", interface: Self.name + ".Device",
            onValue: { [unowned self] name, value in
                guard name == "WarningLevel" else { return }
                if case .number(let level) = value {
                    power.batteryLow = level >= Self.lowLevel ? .yes : .no
                } else {
                    power.batteryLow = .unspecified
                }
            }, onRead: { [unowned self] error in learnBattery(error) })
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {}

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            forget()
            read()
        case .doubtful: read()
        case .absent(let absence):
            forget()
            context.reports.setAbsent(.power, absence)
        }
    }

    private func forget() {
        power = WireMonitorReport.Power()
        isPowerKnown = false
    }

    private func read() {
        // First, so that both are reported together.
        batteryProperties?.read()
        properties?.read()
    }

    private func learnPower(_ error: BusError?) {
        isPowerKnown = error == nil
        context.reports.setAvailability(.power, reason: error.map { "UPower: \($0.text)" })
        guard isPowerKnown else { return }
        context.reports.report(.power, .power(power))
    }

    /// A UPower that does not tell of the battery tells of the rest all the same.
    private func learnBattery(_ error: BusError?) {
        if error != nil { power.batteryLow = .unspecified }
        if isPowerKnown { context.reports.report(.power, .power(power)) }
    }
}
