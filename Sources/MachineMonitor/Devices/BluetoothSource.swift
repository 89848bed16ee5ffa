import NightbellWire

/// Bluetooth LE, by BlueZ: whether there is an adapter that is powered, which of the demanded devices are
/// connected, and the notifications of demanded characteristics.
///
/// Adapters, devices and bluetoothd come and go: the objects are listed again then, and notifications
/// requested again.
final class BluetoothSource: Source {
    private let context: SourceContext
    private var service: BusService?
    private var subscriptions: [BusSubscription] = []
    /// Those of demanded objects, by path. One that goes on being demanded keeps its own: nothing of it is
    /// missed.
    private var deviceSubscriptions: [String: BusSubscription] = [:]
    private var valueSubscriptions: [String: BusSubscription] = [:]
    private var devices: Set<String> = []
    private var characteristics: Set<String> = []
    private var poweredAdapters: Set<String> = []
    private var connected: Set<String> = []
    /// Demanded characteristics that exist.
    private var existing: Set<String> = []
    /// Characteristics with notifications that were requested and not refused.
    private var notifying: Set<String> = []
    private var isListed = false
    private var isListing = false
    private var isStale = false

    private static let name = "org.bluez"
    private static let adapter = "org.bluez.Adapter1"
    private static let device = "org.bluez.Device1"
    private static let characteristic = "org.bluez.GattCharacteristic1"
    private static let manager = "org.freedesktop.DBus.ObjectManager"

    init(_ context: SourceContext) {
        self.context = context
        let service = BusService(context.buses.system(), name: Self.name) { [unowned self] presence in
            handle(presence)
        }
        self.service = service
        for member in ["InterfacesAdded", "InterfacesRemoved"] {
            subscriptions.append(
                service.subscribe(
                    BusSubscription.Rule(path: "/", interface: Self.manager, member: member)
                ) { [unowned self] (_) throws(BusError) in list() })
        }
        subscriptions.append(
            service.subscribe(.propertiesChanged(of: Self.adapter)) {
                [unowned self] (message) throws(BusError) in
                guard let path = message.path else { return }
                _ = try message.text()
                try message.properties { (name, value) throws(BusError) in
                    if name == "Powered" { setPowered(path, value) }
                }
                report()
            })
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {
        let devices = Self.paths(demand.bluetoothDevices)
        let characteristics = Self.paths(demand.characteristics)
        guard devices != self.devices || characteristics != self.characteristics else { return }
        for path in self.characteristics.subtracting(characteristics) where notifying.remove(path) != nil {
            service?.call(path, Self.characteristic, "StopNotify", reply: { _ in })
        }
        if devices != self.devices {
            isListed = false
            context.reports.forgetLevel(.bluetooth)
        }
        self.devices = devices
        connected.formIntersection(devices)
        self.characteristics = characteristics
        context.reports.keepCharacteristics(characteristics)
        subscribe()
        if service?.owner != nil { list() }
    }

    private static func paths(_ demanded: [String]) -> Set<String> {
        Set(demanded.filter(BusSubscription.isObjectPath))
    }

    private func handle(_ presence: BusService.Presence) {
        if case .doubtful = presence { return list() }
        poweredAdapters = []
        connected = []
        existing = []
        notifying = []
        isListed = false
        isListing = false
        switch presence {
        case .present, .doubtful: list()
        case .absent(let absence): context.reports.setAbsent(.bluetooth, absence)
        }
    }

    // MARK: Changes

    /// The device that a characteristic belongs to: `/org/bluez/hci0/dev_XX/service0010/char0011`.
    private static func device(of characteristic: String) -> String {
        characteristic.split(separator: "/").dropLast(2).reduce(into: "") { $0 += "/" + $1 }
    }

    private func subscribe() {
        guard let service else { return }
        let owners = devices.union(characteristics.map(Self.device(of:)))
        deviceSubscriptions = deviceSubscriptions.filter { owners.contains($0.key) }
        for path in owners.sorted() where deviceSubscriptions[path] == nil {
            deviceSubscriptions[path] =
                service.subscribe(.propertiesChanged(of: Self.device, path: path)) {
                    [unowned self] (message) throws(BusError) in
                    _ = try message.text()
                    try message.properties { (name, value) throws(BusError) in
                        changeDevice(path, name, value)
                    }
                    report()
                }
        }
        valueSubscriptions = valueSubscriptions.filter { characteristics.contains($0.key) }
        for path in characteristics.sorted() where valueSubscriptions[path] == nil {
            valueSubscriptions[path] =
                service.subscribe(.propertiesChanged(of: Self.characteristic, path: path)) {
                    [unowned self] (message) throws(BusError) in
                    _ = try message.text()
                    try message.properties { (name, value) throws(BusError) in
                        changeCharacteristic(path, name, value)
                    }
                }
        }
    }

    private func setPowered(_ path: String, _ value: BusValue) {
        if value == .bool(true) { poweredAdapters.insert(path) } else { poweredAdapters.remove(path) }
    }

    private func changeDevice(_ path: String, _ name: String, _ value: BusValue) {
        switch (name, value) {
        case ("Connected", .bool(true)): if devices.contains(path) { connected.insert(path) }
        case ("Connected", _):
            connected.remove(path)
            // BlueZ requests them again itself when the device comes back, but does not say so.
            for characteristic in notifying where characteristic.hasPrefix(path + "/") {
                notifying.remove(characteristic)
            }
        case ("ServicesResolved", .bool(true)): requestNotifications()
        default: break
        }
    }

    private func changeCharacteristic(_ path: String, _ name: String, _ value: BusValue) {
        switch (name, value) {
        case ("Value", .bytes(let bytes)): context.reports.report(characteristic: path, bytes)
        case ("Notifying", .bool(true)): notifying.insert(path)
        default: break
        }
    }

    private func requestNotifications() {
        for path in existing.subtracting(notifying).sorted() {
            notifying.insert(path)
            service?.call(path, Self.characteristic, "StartNotify") { [unowned self] reply in
                // The device is not connected: requested again when its services are known.
                if case .failure = reply { notifying.remove(path) }
            }
        }
    }

    // MARK: Listing

    private func list() {
        guard !isListing else {
            isStale = true
            return
        }
        isListing = true
        isStale = false
        service?.call("/", Self.manager, "GetManagedObjects") { [unowned self] reply in
            isListing = false
            do throws(BusError) {
                try readObjects(try reply.get())
            } catch {
                return context.reports.setAvailability(.bluetooth, reason: "BlueZ: \(error.text)")
            }
            isListed = true
            report()
            requestNotifications()
            if isStale { list() }
        }
    }

    private func readObjects(_ message: BusReader) throws(BusError) {
        poweredAdapters = []
        connected = []
        existing = []
        try message.array(of: "{oa{sa{sv}}}") { () throws(BusError) in
            try message.entry("oa{sa{sv}}") { () throws(BusError) in
                let path = try message.objectPath()
                try message.array(of: "{sa{sv}}") { () throws(BusError) in
                    try message.entry("sa{sv}") { () throws(BusError) in
                        try readInterface(try message.text(), of: path, message)
                    }
                }
            }
        }
        notifying.formIntersection(existing)
    }

    private func readInterface(
        _ interface: String, of path: String, _ message: BusReader
    ) throws(BusError) {
        if interface == Self.characteristic, characteristics.contains(path) { existing.insert(path) }
        try message.properties { (name, value) throws(BusError) in
            switch (interface, name, value) {
            case (Self.adapter, "Powered", _): setPowered(path, value)
            case (Self.device, "Connected", .bool(true)):
                if devices.contains(path) { connected.insert(path) }
            default: break
            }
        }
    }

    private func report() {
        guard isListed else { return }
        context.reports.setAvailability(.bluetooth, reason: nil)
        var bluetooth = WireMonitorReport.Bluetooth()
        bluetooth.isPowered = !poweredAdapters.isEmpty
        bluetooth.connected = connected.sorted()
        bluetooth.disconnected = devices.subtracting(connected).sorted()
        context.reports.report(.bluetooth, .bluetooth(bluetooth))
    }
}
