import NightbellWire

/// The numbers beside the icons of clients, for launchers and docks (com.canonical.Unity.LauncherEntry).
///
/// These forget what a connection to the bus has told them when it ends, so that everything is told again on the next.
final class LauncherBadges: BusClient {
    private let connection: BusConnection
    private var wanted: [String: UInt32] = [:]
    /// On this connection.
    private var told: [String: UInt32] = [:]

    init(_ connection: BusConnection) { self.connection = connection }

    /// Nothing is observed any more.
    deinit { update([]) }

    /// To be called once.
    func begin() { connection.add(self) }

    func update(_ badges: [WireMonitorDemand.Badge]) {
        wanted = Dictionary(badges.map { ($0.client, $0.count) }) { $1 }
        tellChanges()
    }

    func busOpened() { tellChanges() }

    func busClosed(_ absence: Absence) { told = [:] }

    func busDiscardedSignals() {}

    private func tellChanges() {
        guard let handle = unsafe connection.handle else { return }
        for client in Set(wanted.keys).union(told.keys).sorted() where wanted[client] != told[client] {
            unsafe BusSlot.emit(handle, Self.signal(client, wanted[client] ?? 0))
        }
        told = wanted
    }

    private static func signal(_ client: String, _ count: UInt32) -> BusCall {
        BusCall(
            destination: "", path: "/com/canonical/unity/launcherentry/nightbell",
            interface: "com.canonical.Unity.LauncherEntry", member: "Update"
        ) { (writer) throws(BusError) in
            try writer.text("application://\(client).desktop")
            try writer.dictionary { () throws(BusError) in
                try writer.property("count", .long(Int64(count)))
                try writer.property("count-visible", .bool(count > 0))
            }
        }
    }
}
