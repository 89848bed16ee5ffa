import EventHandlers
import NightbellWire

/// A part of the machine that is observed. It exists while it is demanded, holds no timer and no traffic
/// while nothing happens, and does no harm where its component is missing: it says so, and tries again when
/// the component appears.
protocol Source: AnyObject {
    /// The demand has changed, or is the first one.
    func update(_ demand: WireMonitorDemand)
}

/// The things that sources share.
struct SourceContext {
    let loop: HandlerLoop
    let reports: Reports
    let configuration: MonitorConfiguration
    let buses: BusPool
}

/// The place that the monitor observes from.
package struct MonitorConfiguration: Sendable {
    /// It runs as the user of a session, and observes that as well.
    package var isSession: Bool
    /// The D-Bus addresses.
    package var systemBusAddress: String
    package var sessionBusAddress: String
    /// The directory of the user's sockets, such as PipeWire's.
    package var runtimeDirectory: String

    package init(
        isSession: Bool, systemBusAddress: String, sessionBusAddress: String, runtimeDirectory: String
    ) {
        self.isSession = isSession
        self.systemBusAddress = systemBusAddress
        self.sessionBusAddress = sessionBusAddress
        self.runtimeDirectory = runtimeDirectory
    }
}
