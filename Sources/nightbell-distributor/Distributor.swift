import CSystemd
import EventHandlers
import EventLoop
import LinuxSystem
import MachineMonitor
import Nightbell
import NightbellWire

/// A distributor of UnifiedPush (D-Bus specification 0.3, and 0.2): programs register by D-Bus and get an
/// address of the push service; the messages that arrive there are handed to them, and the bus starts those
/// that do not run.
///
/// To the supervisor it is a client that never leaves the foreground. The addresses are its own, each named by
/// its registration, so that it has no memory of its own to lose.
final class Distributor: BusClient {
    private let loop: HandlerLoop
    private let client: Client
    private let bus: BusConnection
    private var object: BusHold?
    /// By their tokens.
    private var registrations: [String: (registration: Registration, address: String)] = [:]
    /// The push service may have been replaced.
    private var serviceWatch: PathWatch?
    private var lookTimer: LoopTimer?
    private var lookPauses: ArraySlice<Int64> = []
    /// Pushes that are being handled, and calls to programs with their messages.
    private var pushes: [Pushes] = []
    private var calls: [UInt64: Call] = [:]
    private var patience: LoopTimer?
    /// Of those pushes, messages that were not handed over.
    private var hasFailed = false
    /// Notices that are on their way.
    private var notices: [Int: BusHold] = [:]
    private var lastNotice = 0

    static let busName = "org.unifiedpush.Distributor.nightbell"
    private static let path = "/org/unifiedpush/Distributor"
    /// Registrations of one program, so that there are some for the others.
    private static let mostOfProgram = 16
    /// A program that is started for it needs time, in milliseconds.
    private static let callTime: UInt64 = 25_000
    /// Other programs' messages wait so long for one that does not answer, once: while it has not, its further ones
    /// are not waited for.
    private static let waitTime: Int64 = 1_000
    /// A push service that has come may not answer yet: it is asked again after these pauses, in milliseconds.
    private static let lookPauses: [Int64] = [1_000, 10_000]

    /// A call to a program with a message.
    private struct Call {
        let hold: BusHold
        let service: String
        var isAwaited: Bool
    }

    init(_ loop: HandlerLoop, _ client: Client, _ bus: BusConnection) {
        self.loop = loop
        self.client = client
        self.bus = bus
        patience = LoopTimer(loop) { [unowned self] in stopWaiting() }
        lookTimer = LoopTimer(loop) { [unowned self] in lookAgain() }
        bus.add(self)
    }

    /// Reads the registrations that were made before.
    func restore() throws(NightbellError) {
        // Started by the supervisor it is in the background, where it would be told of few messages in an hour.
        try client.enterForeground()
        serviceWatch = PathWatch(loop, [client.pushSocket]) { [unowned self] in
            lookPauses = Self.lookPauses[...]
            lookAgain()
        }
        try client.observe("nightbell.pushes", .pushes)
        // After that: with this question it is told of messages that wait.
        try look()
    }

    /// Compares the addresses with those that programs know. After a start all are told: they may have changed
    /// while no distributor ran.
    private func look() throws(NightbellError) {
        var found: [String: (registration: Registration, address: String)] = [:]
        for (name, address) in try client.pushEndpoints().sorted(by: { $0.key < $1.key }) {
            if let registration = Registration(name: name) {
                found[registration.token] = (registration, address)
            }
        }
        let known = registrations
        registrations = found
        for (token, (registration, _)) in known where found[token]?.registration != registration {
            tell(registration, .unregistered(isConfirmation: false))
        }
        for (token, (registration, address)) in found where known[token]?.address != address {
            tell(registration, .address(address))
        }
    }

    private func lookAgain() {
        do throws(NightbellError) {
            try look()
        } catch {
            if let pause = lookPauses.popFirst() { lookTimer?.set(milliseconds: pause) }
        }
    }

    // MARK: The bus

    func busOpened() {
        guard let bus = unsafe bus.handle else { return }
        object = unsafe BusHold.object(bus, Self.path, name: Self.busName) { [unowned self] in take($0) }
        // Notices that were under way went with the last connection.
        for (registration, address) in registrations.values { tell(registration, .address(address)) }
    }

    func busClosed(_ absence: Absence) {
        object = nil
        notices = [:]
        if !calls.isEmpty { hasFailed = true }
        calls = [:]
        finishPushes()
    }

    func busDiscardedSignals() {}

    private func take(_ call: MethodCall) {
        switch (call.interface, call.member) {
        case ("org.unifiedpush.Distributor1", "Register"):
            guard let service = call.nextText(), let token = call.nextText() else { return call.refuse() }
            _ = call.nextText()  // the description
            let failure = register(Registration(.one, service: service, token: token), key: nil)
            call.answer { writer in
                writer.text(failure == nil ? "NEW_ENDPOINT" : "REGISTRATION_FAILED")
                    && writer.text(failure ?? "")
            }
        case ("org.unifiedpush.Distributor1", "Unregister"):
            guard let token = call.nextText() else { return call.refuse() }
            unregister(token)
            call.answer { _ in true }
        case ("org.unifiedpush.Distributor2", "Register"):
            guard let texts = call.texts() else { return call.refuse() }
            let registration = Registration(
                .two, service: texts["service"] ?? "", token: texts["token"] ?? "")
            let failure = register(registration, key: texts["vapid"])
            call.answer { writer in
                var values: [(String, MessageWriter.Value)] = [
                    ("success", .text(failure == nil ? "REGISTRATION_SUCCEEDED" : "REGISTRATION_FAILED"))
                ]
                if let failure { values.append(("reason", .text(failure))) }
                return writer.dictionary(values)
            }
        case ("org.unifiedpush.Distributor2", "Unregister"):
            guard let texts = call.texts(), let token = texts["token"] else { return call.refuse() }
            unregister(token)
            call.answer { $0.dictionary([]) }
        case ("org.freedesktop.DBus.Introspectable", "Introspect"):
            call.answer { $0.text(Self.interfaces) }
        default:
            call.refuse()
        }
    }

    /// Programs look here for the version that they speak.
    private static let interfaces = """
        <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
        "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
        <node>
        <interface name="org.unifiedpush.Distributor1">
        <method name="Register"><arg type="s" name="service"/><arg type="s" name="token"/><arg type="s" name="description"/>
        <arg type="s" name="result" direction="out"/><arg type="s" name="reason" direction="out"/></method>
        <method name="Unregister"><arg type="s" name="token"/></method>
        </interface>
        <interface name="org.unifiedpush.Distributor2">
        <method name="Register"><arg type="a{sv}" name="args"/><arg type="a{sv}" name="result" direction="out"/></method>
        <method name="Unregister"><arg type="a{sv}" name="args"/><arg type="a{sv}" name="result" direction="out"/></method>
        </interface>
        </node>
        """

    // MARK: Registrations

    /// - Returns: the reason why there is none; nil: there is one, and the program is told its address.
    private func register(_ registration: Registration?, key: String?) -> String? {
        guard let registration else { return "INTERNAL_ERROR" }
        var bytes: [UInt8] = []
        if let key, !key.isEmpty {
            guard let decoded = NightbellWire.bytes(ofBase64URL: key) else { return "INTERNAL_ERROR" }
            bytes = decoded
        }
        // A token belongs to the program that used it first.
        if let known = registrations[registration.token]?.registration {
            guard known.service == registration.service else { return "UNAUTHORIZED" }
            if known != registration { unregister(known.token, isTold: false) }
        }
        let others = registrations.values.count {
            $0.registration.service == registration.service && $0.registration.token != registration.token
        }
        guard others < Self.mostOfProgram else { return "ACTION_REQUIRED" }
        do throws(NightbellError) {
            let address = try client.pushEndpoint(registration.name, applicationServerKey: bytes)
            registrations[registration.token] = (registration, address)
            tell(registration, .address(address))
            return nil
        } catch {
            return error.code == .pushRefused ? "ACTION_REQUIRED" : "NETWORK"
        }
    }

    private func unregister(_ token: String, isTold: Bool = true) {
        guard let registration = registrations[token]?.registration else { return }
        do throws(NightbellError) {
            try client.removePushEndpoint(registration.name)
            registrations[token] = nil
        } catch {
            return complain("\(registration.service) stays registered: \(error)")
        }
        guard isTold else { return }
        tell(registration, .unregistered(isConfirmation: true))
    }

    private enum Notice {
        case address(String)
        case unregistered(isConfirmation: Bool)
    }

    /// Tells a program of its address, or that it has none any more.
    private func tell(_ registration: Registration, _ notice: Notice) {
        guard let bus = unsafe bus.handle else { return }
        lastNotice += 1
        let number = lastNotice
        let member =
            switch notice {
            case .address: "NewEndpoint"
            case .unregistered: "Unregistered"
            }
        notices[number] = unsafe BusHold.call(
            bus, registration.service, Registration.path, registration.interface, member,
            milliseconds: Self.callTime
        ) { writer in
            switch (registration.version, notice) {
            case (.one, .address(let address)): writer.text(registration.token) && writer.text(address)
            // Without a token: the program has asked for it itself.
            case (.one, .unregistered(let isConfirmation)):
                writer.text(isConfirmation ? "" : registration.token)
            case (.two, .address(let address)):
                writer.dictionary([("token", .text(registration.token)), ("endpoint", .text(address))])
            case (.two, .unregistered): writer.dictionary([("token", .text(registration.token))])
            }
        } onReply: { [unowned self] _ in
            notices[number] = nil
        }
    }

    // MARK: Messages

    /// The client was told that messages wait.
    func handle(_ pushes: Pushes) {
        self.pushes.append(pushes)
        handOver(pushes)
        finishPushes()
    }

    private func handOver(_ pushes: Pushes) {
        do throws(NightbellError) {
            while case let messages = try pushes.take(), !messages.isEmpty {
                for message in messages where calls[message.id] == nil { handOver(message, pushes) }
            }
        } catch {
            complain("no messages: \(error)")
            hasFailed = true
        }
    }

    private func handOver(_ message: PushMessage, _ pushes: Pushes) {
        guard let registration = Registration(name: message.subscription),
            registrations[registration.token]?.registration == registration
        else { return acknowledge(message, pushes) }
        guard let bus = unsafe bus.handle else { return hasFailed = true }
        let call = unsafe BusHold.call(
            bus, registration.service, Registration.path, registration.interface, "Message",
            milliseconds: Self.callTime
        ) { writer in
            switch registration.version {
            case .one:
                writer.text(registration.token) && writer.bytes(message.body) && writer.text("\(message.id)")
            case .two:
                writer.dictionary([
                    ("token", .text(registration.token)), ("message", .bytes(message.body)),
                    ("id", .text("\(message.id)")),
                ])
            }
        } onReply: { [unowned self] isDone in
            calls[message.id] = nil
            // One that is not there, and cannot be started, is tried again later.
            if isDone { acknowledge(message, pushes) } else { hasFailed = true }
            finishPushes()
        }
        guard let call else { return hasFailed = true }
        let isSlow = calls.values.contains { $0.service == registration.service && !$0.isAwaited }
        calls[message.id] = Call(hold: call, service: registration.service, isAwaited: !isSlow)
        if patience?.deadline == nil { patience?.set(milliseconds: Self.waitTime) }
    }

    /// Programs that have not answered yet may go on; the supervisor tells of what comes for others.
    private func stopWaiting() {
        for id in calls.keys { calls[id]?.isAwaited = false }
        finishPushes()
    }

    private func acknowledge(_ message: PushMessage, _ pushes: Pushes) {
        do throws(NightbellError) {
            try pushes.acknowledge(message)
        } catch {
            complain("a message may be handed over again: \(error)")
            hasFailed = true
        }
    }

    private func finishPushes() {
        guard !calls.values.contains(where: \.isAwaited), !pushes.isEmpty else { return }
        patience?.deadline = nil
        // Messages without an answer may have to be handed over again.
        let result: FetchResult = hasFailed || !calls.isEmpty ? .failed : .newData
        for pushes in pushes { pushes.complete(result) }
        pushes = []
        hasFailed = false
    }
}
