import NightbellWire

/// NetworkManager's word on whether traffic costs money; unknown without it.
final class MeteredConnection {
    private var service: BusService?
    private var properties: BusProperties?
    private let onChange: () -> Void
    private(set) var answer = WireMonitorAnswer.unspecified {
        didSet { if answer != oldValue { onChange() } }
    }

    private static let name = "org.freedesktop.NetworkManager"

    init(_ context: SourceContext, onChange: @escaping () -> Void) {
        self.onChange = onChange
        let service = BusService(context.buses.system(), name: Self.name) { [unowned self] presence in
            handle(presence)
        }
        self.service = service
        properties = BusProperties(
            service, path: "/org/freedesktop/NetworkManager", interface: Self.name,
            onValue: { [unowned self] name, value in
                if name == "Metered" { answer = Self.answer(value) }
            }, onRead: { _ in })
        service.begin()
    }

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present, .doubtful: properties?.read()
        case .absent: answer = .unspecified
        }
    }

    /// `NMMetered`: unknown, yes, no, and its guesses of yes and no.
    private static func answer(_ value: BusValue) -> WireMonitorAnswer {
        switch value {
        case .number(1), .number(3): .yes
        case .number(2), .number(4): .no
        default: .unspecified
        }
    }
}
