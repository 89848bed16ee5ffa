import CSystemd
package import EventHandlers
import EventLoop
import Glibc
import LinuxSystem

/// A part of a program that uses a bus.
package protocol BusClient: AnyObject {
    /// There is a connection: rules and calls can be made.
    func busOpened()
    /// The connection is gone, with all rules and calls.
    func busClosed(_ absence: Absence)
    /// The bus has discarded signals: what they would have told has to be asked for.
    func busDiscardedSignals()
}

/// Why something cannot be observed.
package struct Absence {
    package var reason: String
    /// It is there, or is being restarted, and is observed again in some seconds.
    var isTemporary = false
}

/// A connection to one message bus, by sd-bus on the monitor's loop.
///
/// A bus that is not there is tried again when its socket appears; a lost connection is made again with
/// growing pauses. A peer that sends more than can be dealt with in a tenth of the time has its messages wait
/// in the bus. The bus discards signals then if there are too many. After a second of that the connection is
/// given up: the messages that wait go with it, and the next one has another name, which the peer does not
/// know.
package final class BusConnection {
    private let loop: HandlerLoop
    private let address: String
    private let takesDescriptors: Bool
    /// nil: there is no connection.
    private var bus: BusHandle?
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    private var processing: LoopTimer?
    private var reconnecting: LoopTimer?
    /// Set while there are too many messages, and for a while after that.
    private var recovering: LoopTimer?
    private var socketPath: PathWatch?
    /// Failures in a row.
    private var failures = 0
    private var openedAt: Int64 = 0
    private var share = TimeShare()
    private var pausedUntil: Int64?
    /// Connections in a row that were given up.
    private var overloads = 0
    /// Why there is no connection.
    private(set) var absence = Absence(reason: "not connected")
    private var clients: [WeakClient] = []

    private struct WeakClient {
        weak var client: (any BusClient)?
    }

    /// So many messages are handled in a turn.
    private static let messagesPerTurn = 64
    /// In milliseconds. A bus that exists is tried again at the last of them; one that does not, after the
    /// last one only when its socket changes.
    private static let pauses: [Int64] = [100, 400, 1_600, 6_400, 60_000]

    /// In milliseconds.
    private static let recovery: Int64 = 1_000

    /// A backlog of this age is given up, in nanoseconds.
    private static let oldestBacklog: Int64 = 1_000_000_000
    /// In milliseconds, before the connection is made again. A peer that follows it from name to name costs
    /// less and less, and when it stops, the facts are known again within the last of them and the age above.
    private static let overloadPauses: [Int64] = [100, 250, 500, 1_000, 1_500]
    /// A connection that was kept for this time begins with the first pause again, in nanoseconds.
    private static let calm: Int64 = 10_000_000_000

    package init(_ loop: HandlerLoop, address: String, takesDescriptors: Bool) {
        self.loop = loop
        self.address = address
        self.takesDescriptors = takesDescriptors
        processing = LoopTimer(loop) { [unowned self] in
            if pausedUntil != nil { share.resume(at: BootClock.now()) }
            pausedUntil = nil
            process()
        }
        reconnecting = LoopTimer(loop) { [unowned self] in open() }
        recovering = LoopTimer(loop) { [unowned self] in
            guard bus != nil else { return }
            for entry in clients { entry.client?.busDiscardedSignals() }
        }
        open()
    }

    deinit { closeBus() }

    /// The handle, for rules and calls; nil: there is no connection.
    @unsafe package var handle: OpaquePointer? { unsafe bus?.pointer }

    /// Names the bus, as long as it lives; empty: it is unknown.
    var identity: String { bus?.identity ?? "" }

    /// The name that the bus has given this connection; empty: there is none.
    var uniqueName: String { bus?.uniqueName ?? "" }

    /// The client is told at once if there is a connection, and otherwise why there is none.
    package func add(_ client: any BusClient) {
        clients.removeAll { $0.client == nil }
        clients.append(WeakClient(client: client))
        if bus != nil { client.busOpened() } else { client.busClosed(absence) }
    }

    // MARK: Opening and closing

    private func open() {
        guard bus == nil else { return }
        do throws(BusError) {
            let bus = try BusHandle(address: address, takesDescriptors: takesDescriptors)
            let descriptor = bus.descriptor
            do throws(LoopError) {
                input = try DescriptorWatch(loop, descriptor, .read) { [unowned self] _ in process() }
                output = try DescriptorWatch(loop, descriptor, .write, isArmed: false) { [unowned self] _ in
                    process()
                }
            } catch {
                throw BusError(text: "\(error)")
            }
            self.bus = bus
        } catch {
            return fail("the bus at \(address): \(error)", hasExisted: false)
        }
        socketPath = nil
        openedAt = BootClock.now()
        for entry in clients { entry.client?.busOpened() }
    }

    private func fail(_ reason: String, hasExisted: Bool) {
        close(Absence(reason: reason))
        if hasExisted, BootClock.now() - openedAt > 60_000_000_000 { failures = 0 }
        watchSocket()
        // A socket that does not exist need not be tried: its coming is reported.
        if failures < Self.pauses.count || hasExisted, mayListen {
            reconnecting?.set(milliseconds: Self.pauses[min(failures, Self.pauses.count - 1)])
        }
        failures += 1
    }

    private var mayListen: Bool { Self.path(in: address).map { unsafe access($0, F_OK) == 0 } ?? true }

    private func close(_ absence: Absence) {
        self.absence = absence
        closeBus()
        for entry in clients { entry.client?.busClosed(absence) }
    }

    /// Gives up the connection with all that waits for it.
    private func abandonBacklog(at now: Int64) {
        if now - openedAt > Self.calm { overloads = 0 }
        close(Absence(reason: "the bus at \(address): there are too many messages", isTemporary: true))
        reconnecting?.set(milliseconds: Self.overloadPauses[min(overloads, Self.overloadPauses.count - 1)])
        overloads += 1
    }

    private func closeBus() {
        processing?.deadline = nil
        recovering?.deadline = nil
        pausedUntil = nil
        // Their descriptor is the handle's.
        input = nil
        output = nil
        bus = nil
    }

    /// The bus may come, or come back.
    private func watchSocket() {
        guard socketPath == nil, let path = Self.path(in: address) else { return }
        socketPath = PathWatch(loop, [path]) { [unowned self] in
            failures = 0
            // It may not listen yet.
            reconnecting?.set(milliseconds: 10)
        }
    }

    /// The path in an address such as `unix:path=/run/dbus/system_bus_socket`.
    static func path(in address: String) -> String? {
        let mark = "unix:path="
        guard address.hasPrefix(mark) else { return nil }
        return String(address.dropFirst(mark.count).prefix { $0 != "," && $0 != ";" })
    }

    // MARK: Processing

    private func process() {
        guard let bus, pausedUntil == nil else { return }
        let start = ThreadClock.now()
        for _ in 0..<Self.messagesPerTurn {
            let result = bus.process()
            if result < 0 { return fail("the connection was lost: \(BusError(result))", hasExisted: true) }
            if result == 0 { break }
        }
        let now = BootClock.now()
        pausedUntil = share.spend(ThreadClock.now() - start, at: now)
        guard pausedUntil != nil else { return }
        if let since = share.excessSince, now - since >= Self.oldestBacklog { return abandonBacklog(at: now) }
        recovering?.set(milliseconds: Self.recovery)
    }

    /// Has libevent wait for what sd-bus waits for; it changes with each call.
    package func endTurn() {
        guard let bus else { return }
        do throws(LoopError) {
            let events = bus.events
            try input?.setArmed(pausedUntil == nil && events & POLLIN != 0)
            try output?.setArmed(pausedUntil == nil && events & POLLOUT != 0)
        } catch {
            return fail("\(error)", hasExisted: true)
        }
        processing?.deadline = pausedUntil ?? bus.deadline
    }
}

/// Owns sd-bus's object.
@safe
final class BusHandle {
    let pointer: OpaquePointer

    init(address: String, takesDescriptors: Bool) throws(BusError) {
        var made: OpaquePointer?
        var result = unsafe sd_bus_new(&made)
        guard result >= 0, let bus = unsafe made else { throw BusError(result) }
        unsafe pointer = bus
        result = unsafe sd_bus_set_address(bus, address)
        if result >= 0 { result = unsafe sd_bus_set_bus_client(bus, 1) }
        // No peer can put descriptors into a process that takes none.
        if result >= 0 { result = unsafe sd_bus_negotiate_fds(bus, takesDescriptors ? 1 : 0) }
        if result >= 0 { result = unsafe sd_bus_start(bus) }
        guard result >= 0 else { throw BusError(result) }
    }

    deinit { unsafe sd_bus_close_unref(pointer) }

    var descriptor: CInt { unsafe sd_bus_get_fd(pointer) }
    var events: CInt { max(0, unsafe sd_bus_get_events(pointer)) }

    /// The bus's own number, in hexadecimal digits.
    var identity: String {
        var id = sd_id128()
        guard unsafe sd_bus_get_bus_id(pointer, &id) >= 0 else { return "" }
        return unsafe withUnsafeBytes(of: &id) { bytes in
            unsafe bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
    }

    var uniqueName: String {
        var name: UnsafePointer<CChar>?
        guard unsafe sd_bus_get_unique_name(pointer, &name) >= 0, let name = unsafe name else { return "" }
        return unsafe String(cString: name)
    }

    /// One message, or one step of connecting: a negative error; 0: there is nothing to do.
    func process() -> CInt { unsafe sd_bus_process(pointer, nil) }

    /// The instant of `BootClock` at which it has something to do.
    var deadline: Int64? {
        var instant: UInt64 = 0
        guard unsafe sd_bus_get_timeout(pointer, &instant) >= 0, instant != .max else { return nil }
        // sd-bus counts in microseconds of the other clock.
        let rest = Int64(clamping: instant) * 1_000 - RunningClock.now()
        return BootClock.now() + max(0, rest)
    }
}

/// The buses, each connected while it is used.
final class BusPool {
    private let loop: HandlerLoop
    private let configuration: MonitorConfiguration
    private weak var systemConnection: BusConnection?
    private weak var sessionConnection: BusConnection?

    init(_ loop: HandlerLoop, _ configuration: MonitorConfiguration) {
        self.loop = loop
        self.configuration = configuration
    }

    func system() -> BusConnection {
        if let systemConnection { return systemConnection }
        let connection = BusConnection(loop, address: configuration.systemBusAddress, takesDescriptors: true)
        systemConnection = connection
        return connection
    }

    func session() -> BusConnection {
        if let sessionConnection { return sessionConnection }
        let connection = BusConnection(
            loop, address: configuration.sessionBusAddress, takesDescriptors: false)
        sessionConnection = connection
        return connection
    }

    func endTurn() {
        systemConnection?.endTurn()
        sessionConnection?.endTurn()
    }
}
