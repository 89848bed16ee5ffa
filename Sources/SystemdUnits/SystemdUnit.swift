import Glibc
import LinuxSystem

/// A service or scope of systemd, which systemd freezes and thaws for this process.
///
/// systemd documents that no other program writes to the cgroups of its units. It remembers itself whether
/// a unit is frozen, and does not notice other writers.
package final class SystemdUnit {
    /// With its suffix.
    package let name: String
    /// Of its cgroup.
    package let directory: String
    private let pollSet: PollSet
    private var bus: UnitBus?
    private let events: FreezerEvents
    private let path: String
    private var isFrozen = false
    /// Whether systemd may still carry out a freeze of which the answer was not waited for.
    private var mayFreezeLater = false
    private var hasJob = false

    /// - Parameters:
    ///   - name: `.service` is added if it has no suffix.
    ///   - directory: makes a directory of the path of its cgroup.
    package init(_ name: String, directory: (String) -> String) throws(UnitRefusal) {
        guard Self.isName(name) else { throw .noName(name) }
        do throws(UnitFailure) {
            let bus = try UnitBus {}
            let path = try bus.path(of: Self.full(name))
            // One of its other names may have been given.
            self.name = try bus.text("Id", of: "Unit", at: path)
            let interface = try Self.interface(of: self.name)
            guard !Self.needed.contains(self.name) else {
                throw UnitFailure("without it systemd could not be asked to thaw it")
            }
            guard try bus.number("CanFreeze", "b", of: "Unit", at: path) == 1 else {
                throw UnitFailure("systemd cannot freeze it")
            }
            let version = try bus.version()
            if interface == "Service", Self.number(version) < Self.firstWithoutWatchdog,
                case let watchdog = try bus.number("WatchdogUSec", "t", of: interface, at: path),
                watchdog != 0, watchdog != .max
            {
                throw UnitFailure(
                    """
                    it has WatchdogSec, and this systemd (\(version)) would kill it while it sleeps: systemd \
                    \(Self.firstWithoutWatchdog) does not
                    """)
            }
            let cgroup = try bus.text("ControlGroup", of: interface, at: path)
            guard !cgroup.isEmpty, cgroup != "/" else { throw UnitFailure("it has no processes") }
            self.path = path
            self.directory = directory(cgroup)
            refusesJobs = Self.number(version) >= Self.firstThatRefusesJobs
        } catch {
            throw error.name.hasSuffix(".NoSuchUnit")
                ? .noUnit(name) : .refused(name, error, isOfRights: error.isOfRights)
        }
        do throws(SystemError) {
            pollSet = try PollSet()
            events = try FreezerEvents(directory: self.directory)
            try pollSet.add(events.descriptor)
        } catch {
            throw .refused(name, UnitFailure("\(error)"), isOfRights: false)
        }
        do throws(UnitFailure) {
            try connect()
        } catch {
            throw .refused(name, error, isOfRights: error.isOfRights)
        }
    }

    private static let needed = ["dbus.service", "dbus-broker.service", "init.scope"]

    /// Whether this systemd refuses to stop, restart or reload a unit that is frozen.
    package let refusesJobs: Bool

    private static let firstThatRefusesJobs = 256
    private static let firstWithoutWatchdog = 258

    private static func number(_ version: String) -> Int { Int(version.prefix { $0.isNumber }) ?? 0 }

    // MARK: Names

    private static func isName(_ name: String) -> Bool {
        (1...255).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                let letter = byte | 0x20
                return (0x61...0x7A).contains(letter) || (0x30...0x39).contains(byte)
                    || ":-_.\\@".utf8.contains(byte)
            }
    }

    private static func full(_ name: String) -> String { name.contains(".") ? name : name + ".service" }

    private static func interface(of name: String) throws(UnitFailure) -> String {
        if name.hasSuffix(".service") { return "Service" }
        if name.hasSuffix(".scope") { return "Scope" }
        throw UnitFailure("only services and scopes can be adopted")
    }

    // MARK: Its state

    /// The process that systemd takes for the most important one; nil: there is none.
    package func mainProcess() -> Int32? {
        guard name.hasSuffix(".service") else { return nil }
        let pid = try? connected().number("MainPID", "u", of: "Service", at: path)
        return pid.flatMap { $0 == 0 ? nil : Int32(truncatingIfNeeded: $0) }
    }

    /// Such as `active`; empty: it is not known.
    package var activeState: String {
        (try? connected().text("ActiveState", of: "Unit", at: path)) ?? ""
    }

    // MARK: Events

    /// Readable when there is something for `takeEvents`.
    package var descriptor: CInt { pollSet.rawValue }

    package enum Event {
        /// It runs, and nothing has asked systemd for that here.
        case thawed
        /// systemd is about to do something with it, such as to stop it.
        case job
    }

    package func takeEvents() -> [Event] {
        var found: [Event] = []
        if let bus, !bus.process() {
            if isFrozen { found.append(.thawed) }
            disconnect()
        }
        if hasJob { found.append(.job) }
        hasJob = false
        // A killed process runs for a moment, and leaves a cgroup that is still to be frozen.
        if events.take() {
            if isFrozen, !events.isFrozen { found.append(.thawed) }
            if !isFrozen, mayFreezeLater, events.isFrozen { askForThaw() }
        }
        return found
    }

    // MARK: Freezing

    /// Returns once all of its processes are frozen.
    package func freeze() throws(UnitFailure) {
        let bus = try connected()
        // It may be frozen even if the answer does not come.
        isFrozen = true
        do throws(UnitFailure) {
            try bus.call("FreezeUnit", name, within: Self.patience)
            mayFreezeLater = false
        } catch {
            mayFreezeLater = true
            thaw()
            throw error
        }
    }

    /// Returns once it runs again.
    package func thaw() {
        guard isFrozen else { return }
        isFrozen = false
        askForThaw()
    }

    /// Returns once it runs again, whatever has frozen it.
    package func release() {
        let isNeeded = isFrozen || mayFreezeLater || events.isFrozen
        isFrozen = false
        mayFreezeLater = false
        if isNeeded { askForThaw() }
    }

    /// A new connection is made when it is needed: systemd may be busy now.
    private func askForThaw() {
        if let bus, (try? bus.call("ThawUnit", name, within: Self.patience)) != nil { return }
        disconnect()
        Self.thaw(name, directory: directory)
    }

    private static let patience = Duration.seconds(1)

    /// Thaws a unit whatever has happened. Without systemd, the kernel is asked: systemd would take it for
    /// frozen then, which is less bad than that it is.
    package static func thaw(_ name: String, directory: String) {
        do throws(UnitFailure) {
            try UnitBus {}.call("ThawUnit", name, within: patience)
        } catch {
            try? SmallFile.write("0", to: directory + "/cgroup.freeze")
        }
    }

    // MARK: The connection

    private func connected() throws(UnitFailure) -> UnitBus {
        if let bus { return bus }
        try connect()
        guard let bus else { throw UnitFailure("systemd cannot be reached") }
        return bus
    }

    private func connect() throws(UnitFailure) {
        let bus = try UnitBus { [unowned self] in hasJob = true }
        try bus.watchJobs(of: name)
        do throws(SystemError) {
            try pollSet.add(bus.descriptor)
        } catch {
            throw UnitFailure("\(error)")
        }
        self.bus = bus
    }

    /// Without systemd it is not known whether it can be thawed later.
    private func disconnect() {
        guard let bus else { return }
        try? pollSet.remove(bus.descriptor)
        self.bus = nil
        thaw()
    }
}

/// Why a unit cannot be adopted.
package enum UnitRefusal: Error {
    case noName(String)
    case noUnit(String)
    case refused(String, UnitFailure, isOfRights: Bool)
}
