import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The monitor's part in observations: the demand, and the facts of its reports.
extension WireMonitorDemand {
    init(_ demand: ObservationDemand) {
        self.init()
        if let wish = demand.location {
            location = .with {
                $0.accuracy = wish.accuracy
                $0.distanceM = wish.distance
                $0.intervalMs = 1_000
            }
        }
        devices = demand.accessories
        characteristics = demand.characteristics
        bluetoothDevices = demand.bluetoothDevices
    }
}

extension Fact {
    static func bluetooth(_ report: WireMonitorReport.Bluetooth) -> Fact {
        var devices: [String: Presence] = [:]
        for path in report.connected { devices[path] = .present(node: "") }
        for path in report.disconnected { devices[path] = .absent }
        return .bluetooth(devices)
    }

    static func accessories(_ report: WireMonitorReport.Devices) -> Fact {
        var accessories: [String: Presence] = [:]
        for device in report.present { accessories[device.name] = .present(node: device.node) }
        for name in report.absent { accessories[name] = .absent }
        return .accessories(accessories)
    }
}
