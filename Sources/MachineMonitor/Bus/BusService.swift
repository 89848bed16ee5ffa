import CSystemd

/// A well-known name on a bus and the peer that owns it.
///
/// Signals count only if that peer has sent them: rules with its name keep those of other peers away, but any
/// peer can send a signal to this one directly.
final class BusService: BusClient {
    private let connection: BusConnection
    private let name: String
    private let isStarted: Bool
    private let onChange: (Presence) -> Void
    /// The owner's unique name.
    private(set) var owner: String?
    /// Counts changes of the owner: calls end with them.
    fileprivate var generation = 0
    private var ownerChanges: BusSlot?
    private var subscriptions: [WeakSubscription] = []
    private var calls: [UInt64: BusSlot] = [:]
    private var lastCall: UInt64 = 0

    enum Presence {
        /// The name has an owner, or another one.
        case present
        /// It is still the same owner, but some of its signals may be lost.
        case doubtful
        case absent(Absence)
    }

    private struct WeakSubscription {
        weak var subscription: BusSubscription?
    }

    /// - Parameters:
    ///   - isStarted: asks the bus to start the service, once, if it is not running.
    ///   - onChange: called when it becomes known whether there is an owner, and with each change.
    init(
        _ connection: BusConnection, name: String, isStarted: Bool = false,
        onChange: @escaping (Presence) -> Void
    ) {
        self.connection = connection
        self.name = name
        self.isStarted = isStarted
        self.onChange = onChange
    }

    /// To be called once, when the caller is ready for `onChange`.
    func begin() { connection.add(self) }

    // MARK: The owner

    private static let bus = "org.freedesktop.DBus"

    func busOpened() {
        guard let handle = unsafe connection.handle else { return }
        let rule =
            "type='signal',sender='\(Self.bus)',interface='\(Self.bus)',member='NameOwnerChanged',arg0='\(name)'"
        ownerChanges = unsafe BusSlot.match(handle, rule) { [unowned self] message in
            guard message.sender == Self.bus else { return }
            do throws(BusError) {
                guard try message.text() == name else { return }
                _ = try message.text()
                setOwner(try message.text())
            } catch {
                // The bus itself sends nothing else.
            }
        }
        askForOwner()
    }

    func busClosed(_ absence: Absence) {
        ownerChanges = nil
        lose(absence)
    }

    func busDiscardedSignals() { askForOwner() }

    private func askForOwner() {
        callBus("GetNameOwner") { [unowned self] reply in
            do throws(BusError) {
                let current = try reply.get().text()
                if current == owner { onChange(.doubtful) } else { setOwner(current) }
            } catch {
                if isStarted { start() } else { lose(isNotRunning) }
            }
        }
    }

    private func start() {
        callBus("StartServiceByName", flags: 0) { [unowned self] reply in
            if case .failure(let error) = reply {
                lose(Absence(reason: "\(name) cannot be started: \(error.text)"))
            }
            // Otherwise a change of the owner is reported as well.
        }
    }

    /// Calls of the bus itself do not end with the owner.
    private func callBus(
        _ member: String, flags: UInt32? = nil,
        reply: @escaping (Result<BusReader, BusError>) -> Void
    ) {
        let name = name
        send(
            BusCall(
                destination: Self.bus, path: "/org/freedesktop/DBus", interface: Self.bus, member: member
            ) { (writer) throws(BusError) in
                try writer.text(name)
                if let flags { try writer.number(flags) }
            }, reply)
    }

    private func setOwner(_ owner: String) {
        guard !owner.isEmpty else { return lose(isNotRunning) }
        guard owner != self.owner else { return }
        self.owner = owner
        generation += 1
        calls = [:]
        subscriptions.removeAll { $0.subscription == nil }
        for entry in subscriptions { install(entry.subscription) }
        onChange(.present)
    }

    private var isNotRunning: Absence { Absence(reason: "\(name) is not running") }

    private func lose(_ absence: Absence) {
        owner = nil
        generation += 1
        calls = [:]
        for entry in subscriptions { entry.subscription?.slot = nil }
        onChange(.absent(absence))
    }

    // MARK: Signals and calls

    /// Signals of the owner, as long as the subscription exists.
    func subscribe(
        _ rule: BusSubscription.Rule, _ handler: @escaping (BusReader) throws(BusError) -> Void
    ) -> BusSubscription {
        let subscription = BusSubscription(rule, handler)
        subscriptions.removeAll { $0.subscription == nil }
        subscriptions.append(WeakSubscription(subscription: subscription))
        if owner != nil { install(subscription) }
        return subscription
    }

    private func install(_ subscription: BusSubscription?) {
        guard let subscription, let handle = unsafe connection.handle else { return }
        let rule = "type='signal',sender='\(name)'" + subscription.rule.text
        subscription.slot = unsafe BusSlot.match(handle, rule) {
            [unowned self, unowned subscription] message in
            guard let sender = message.sender, sender == owner else { return }
            subscription.handle(message)
        }
    }

    /// Calls the owner. The reply does not come if the owner goes. `isPatient`: it may take any time.
    func call(
        _ path: String, _ interface: String, _ member: String, isPatient: Bool = false,
        _ write: @escaping (BusWriter) throws(BusError) -> Void = { (_) throws(BusError) in },
        reply: @escaping (Result<BusReader, BusError>) -> Void
    ) {
        // By its unique name: a reply of another owner would be of no use.
        guard let owner else { return }
        send(
            BusCall(
                destination: owner, path: path, interface: interface, member: member,
                timeout: isPatient ? .max : 0, write: write), reply)
    }

    private func send(_ call: BusCall, _ reply: @escaping (Result<BusReader, BusError>) -> Void) {
        guard let handle = unsafe connection.handle else { return }
        lastCall += 1
        let number = lastCall
        calls[number] = unsafe BusSlot.call(handle, call) { [unowned self] message in
            calls[number] = nil
            if let error = message.error { reply(.failure(error)) } else { reply(.success(message)) }
        }
    }
}

/// The interest in signals of a service.
final class BusSubscription {
    struct Rule {
        var path: String?
        var pathNamespace: String?
        var interface: String
        var member: String
        /// The first argument.
        var argument: String?

        fileprivate var text: String {
            var text = ",interface='\(interface)',member='\(member)'"
            if let path { text += ",path='\(path)'" }
            if let pathNamespace { text += ",path_namespace='\(pathNamespace)'" }
            if let argument { text += ",arg0='\(argument)'" }
            return text
        }

        static func propertiesChanged(of interface: String, path: String? = nil, below: String? = nil) -> Rule
        {
            Rule(
                path: path, pathNamespace: below, interface: "org.freedesktop.DBus.Properties",
                member: "PropertiesChanged", argument: interface)
        }
    }

    fileprivate let rule: Rule
    fileprivate var slot: BusSlot?
    private let handler: (BusReader) throws(BusError) -> Void

    fileprivate init(_ rule: Rule, _ handler: @escaping (BusReader) throws(BusError) -> Void) {
        self.rule = rule
        self.handler = handler
    }

    fileprivate func handle(_ message: BusReader) {
        // The rest of a message with unexpected content is ignored.
        try? handler(message)
    }

    /// Whether a peer may name an object so. Everything else could change the meaning of a rule.
    static func isObjectPath(_ path: String) -> Bool {
        guard path.utf8.count <= 512, path.hasPrefix("/"), path == "/" || !path.hasSuffix("/") else {
            return false
        }
        return !path.contains("//")
            && path.utf8.allSatisfy { byte in
                let letter = byte | 0x20
                return (0x61...0x7A).contains(letter) || (0x30...0x39).contains(byte)
                    || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "/")
            }
    }
}

/// The properties of one interface of one object: read when the service appears, and followed from then on.
final class BusProperties {
    private let service: BusService
    private let path: String
    private let interface: String
    private let onValue: (String, BusValue) -> Void
    private let onRead: (BusError?) -> Void
    private var changes: BusSubscription?
    /// The owner that is being asked.
    private var askedGeneration: Int?

    static let interface = "org.freedesktop.DBus.Properties"

    /// - Parameters:
    ///   - onValue: called with each property that was read or has changed.
    ///   - onRead: called after all were read or have changed, or could not be read.
    init(
        _ service: BusService, path: String, interface: String,
        onValue: @escaping (_ name: String, _ value: BusValue) -> Void,
        onRead: @escaping (BusError?) -> Void
    ) {
        self.service = service
        self.path = path
        self.interface = interface
        self.onValue = onValue
        self.onRead = onRead
        changes = service.subscribe(.propertiesChanged(of: interface, path: path)) {
            [unowned self] (message) throws(BusError) in try handleChange(message)
        }
    }

    /// To be called when the service has appeared.
    func read() {
        guard askedGeneration != service.generation else { return }
        askedGeneration = service.generation
        let interface = interface
        service.call(
            path, Self.interface, "GetAll",
            { (writer) throws(BusError) in try writer.text(interface) },
            reply: { [weak self] reply in self?.handle(reply) })
    }

    private func handle(_ reply: Result<BusReader, BusError>) {
        askedGeneration = nil
        do throws(BusError) {
            try reply.get().properties { (name, value) throws(BusError) in onValue(name, value) }
            onRead(nil)
        } catch {
            onRead(error)
        }
    }

    private func handleChange(_ message: BusReader) throws(BusError) {
        guard try message.text() == interface else { return }
        try message.properties { (name, value) throws(BusError) in onValue(name, value) }
        var isInvalidated = false
        try message.array(of: "s") { () throws(BusError) in
            _ = try message.text()
            isInvalidated = true
        }
        if isInvalidated { read() } else { onRead(nil) }
    }
}
