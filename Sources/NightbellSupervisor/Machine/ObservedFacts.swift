package import NightbellCore
package import NightbellWire
import SwiftProtobuf

/// The monitor's part in observations: the demand, and the facts of its reports.
extension WireMonitorDemand {
    package init(_ demand: ObservationDemand) {
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

extension WireMonitorReport {
    /// Whether what it says of subjects is as short as the schema promises: clients' records and wakes have
    /// room for that.
    var isWithinLimits: Bool {
        switch fact {
        case .value(let value): value.value.count <= Occurrence.longestValue
        case .devices(let devices):
            devices.present.allSatisfy { $0.node.utf8.count <= Occurrence.longestNode }
        default: true
        }
    }
}
